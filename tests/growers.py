"""One agent of many, as a task or as a process of its own: it selects, registers and reports, and may die.

    python -P -m tests.growers '{"redis_url": ..., "lab": ..., "tag": ..., "turns": 50, "seed": 1}'

A process prints each turn as one line of JSON. An agent calls the functions as a web process does, without HTTP.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any, Literal

from functions.kernel.process.lifecycle import Process, opened
from state.errors import Conflict
from state.settings import Settings
from tests.labs import idea

BORED = 40
"""Waiting answers in a row after which it stops: all the others may be gone."""


class Grower:
    """One agent. It tells each turn by `say`."""

    def __init__(
        self, process: Process, task: dict[str, Any], say: Callable[[dict[str, Any]], object]
    ) -> None:
        self.process, self.task, self.say = process, task, say
        self.tag: str = task["tag"]
        self.chance = random.Random(task["seed"])
        self.name = f"agent{task['seed']}"
        self.made = 0

    async def work(self) -> None:
        """As many turns as asked, fewer where it has waited too often."""
        bored = 0
        for _ in range(self.task["turns"]):
            chosen = await self.call(
                "trace::select", tag=self.tag, agent=self.name, wait=self.task.get("wait", 0)
            )
            if chosen["status"] == "wait":
                bored += 1
                self.say({"wait": chosen["reason"], "selection_id": chosen["selection_id"]})
                if bored >= BORED:
                    return
                await asyncio.sleep(0.05)
                continue
            bored = 0
            self.made += 1
            self.may_die("selected")
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
            self.say({"refused": problem.fields["code"], "selection_id": chosen["selection_id"]})
            return
        name = made["experiment_id"]
        self.may_die("registered")
        if self.chance.random() < self.task.get("crashes", 0.0):
            await self.call("experiment::crash", experiment_id=name, error="boom")
        else:
            value = 1.0 + self.task.get("sign", 1) * self.chance.random()
            await self.call("experiment::complete", experiment_id=name, val_bpb=value)
        shown = ("selection_id", "select_seq", "trace_id", "parent_ids", "local_selection")
        self.say({"experiment_id": name} | {field: chosen[field] for field in shown})

    def commit(self) -> str:
        return f"{self.chance.getrandbits(64):016x}"

    def may_die(self, moment: Literal["selected", "registered"]) -> None:
        """The task's `dies` names the moment, and which of its selections it dies with."""
        if self.task.get("dies") == [moment, self.made]:
            os.kill(os.getpid(), signal.SIGKILL)

    async def call(self, name: str, **fields: Any) -> dict[str, Any]:
        invoker = self.process.invoker
        return (await invoker.call(name, fields, invoker.system("test"))).model_dump()


async def main(task: dict[str, Any]) -> None:
    settings = Settings.model_validate({"lab": task["lab"], "redis_url": task["redis_url"]})

    def say(turn: dict[str, Any]) -> None:
        print(json.dumps(turn), flush=True)

    async with opened("web", settings) as process:
        await Grower(process, task, say).work()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
