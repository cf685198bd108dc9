"""One agent of many, as a process of its own: it selects, registers and reports, and may die in the middle.

    python -P -m tests.growers '{"redis_url": ..., "lab": ..., "tag": ..., "turns": 50, "seed": 1}'

Every line that it prints is one turn, as JSON. It calls the functions as a web process does, without HTTP.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from typing import Any

from functions.process.lifecycle import Process, opened
from state.errors import Conflict
from state.settings import Settings
from tests.labs import idea

BORED = 40
"""Waiting answers in a row after which it stops: all the others may be gone."""


class Grower:
    """One agent."""

    def __init__(self, process: Process, task: dict[str, Any]) -> None:
        self.process, self.task = process, task
        self.tag: str = task["tag"]
        self.chance = random.Random(task["seed"])
        self.name = f"agent{task['seed']}"

    async def work(self) -> None:
        """As many turns as asked; `dies` is the chance to be killed at each of two moments of a turn."""
        bored = 0
        for _ in range(self.task["turns"]):
            chosen = await self.call(
                "trace::select", tag=self.tag, agent=self.name, wait=self.task.get("wait", 0)
            )
            if chosen["status"] == "wait":
                bored += 1
                say(wait=chosen["reason"], selection_id=chosen["selection_id"])
                if bored >= BORED:
                    return
                await asyncio.sleep(0.05)
                continue
            bored = 0
            self.maybe_die()
            await self.make(chosen)

    async def make(self, chosen: dict[str, Any]) -> None:
        """An experiment from a selection; one that came too late is told, and nothing more."""
        try:
            made = await self.call(
                "experiment::register",
                **idea(
                    self.tag, selection_id=chosen["selection_id"], agent=self.name, commit_sha=self.commit()
                ),
            )
        except Conflict as problem:
            say(refused=problem.fields["code"], selection_id=chosen["selection_id"])
            return
        name = made["experiment_id"]
        self.maybe_die()
        if self.chance.random() < self.task.get("crashes", 0.0):
            await self.call("experiment::crash", experiment_id=name, error="boom")
        else:
            value = 1.0 + self.task.get("sign", 1) * self.chance.random()
            await self.call("experiment::complete", experiment_id=name, val_bpb=value)
        say(
            experiment_id=name,
            selection_id=chosen["selection_id"],
            select_seq=chosen["select_seq"],
            trace_id=chosen["trace_id"],
            parent_ids=chosen["parent_ids"],
            local_selection=chosen["local_selection"],
        )

    def commit(self) -> str:
        return f"{self.chance.getrandbits(64):016x}"

    def maybe_die(self) -> None:
        if self.chance.random() < self.task.get("dies", 0.0):
            os.kill(os.getpid(), signal.SIGKILL)

    async def call(self, name: str, **fields: Any) -> dict[str, Any]:
        invoker = self.process.invoker
        return (await invoker.call(name, fields, invoker.system("test"))).model_dump()


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def main(task: dict[str, Any]) -> None:
    settings = Settings.model_validate({"lab": task["lab"], "redis_url": task["redis_url"]})
    async with opened("web", settings) as process:
        await Grower(process, task).work()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
