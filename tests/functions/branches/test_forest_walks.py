"""Whatever is done to a tag's traces, in whatever order: the audit finds nothing, and no limit is passed."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from state.records import OPEN
from tests.labs import curl, idea, open_tag, told

TAG = "mar11"
STEPS = 80


class Walk:
    """Somebody who does what comes to mind; refusals are as good as answers."""

    def __init__(self, client: httpx.AsyncClient, process: Process, seed: int) -> None:
        self.client, self.process, self.chance = client, process, random.Random(seed)
        self.selections: list[str] = []
        self.experiments: list[str] = []
        self.log: list[str] = []

    async def ask(self, path: str, **body: Any) -> dict[str, Any]:
        response = await curl(self.client, f"/api/{path}", body)
        assert response.status_code < 500, response.text
        answer: dict[str, Any] = response.json()
        said = answer.get("code") or answer.get("status") or answer.get("detail") or ""
        self.log.append(f"{path} {body}: {response.status_code} {said}")
        return answer

    async def some_trace(self) -> str:
        traces = (await told(self.client, "/api/trace/list", tag=TAG))["traces"]
        return str(self.chance.choice(traces)["trace_id"]) if traces else f"{TAG}-t1"

    def some(self, names: list[str]) -> str:
        return self.chance.choice(names) if names else f"{TAG}-1"

    # -- what may come to mind

    async def select(self) -> None:
        one, two = self.some(self.experiments), self.some(self.experiments)
        wishes: list[dict[str, Any]] = [
            *([{}] * 4),
            *({"intent": intent} for intent in ("new_root", "extend", "branch")),
            {"trace_id": await self.some_trace()},
            *({"parent_ids": parents} for parents in ([one], list(dict.fromkeys([one, two])))),
        ]
        wish = self.chance.choice(wishes)
        self.heard(await self.ask("trace/select", tag=TAG, **wish))

    async def merge(self) -> None:
        selector = self.chance.choice(["best_base", "near_miss"])
        into = {"into": await self.some_trace()} if self.chance.random() < 0.5 else {}
        self.heard(await self.ask("trace/merge", tag=TAG, selector=selector, **into))

    def heard(self, answer: dict[str, Any]) -> None:
        if answer.get("status") == "selected":
            self.selections.append(answer["selection_id"])

    async def register(self) -> None:
        more = {"selection_id": self.some(self.selections)} if self.selections else {}
        if self.chance.random() < 0.15:
            named = self.experiments and self.chance.random() < 0.5
            more = {"parent_id": self.some(self.experiments)} if named else {}
        answer = await self.ask("experiment/register", **idea(TAG, **more))
        if "number" in answer:
            self.experiments.append(answer["experiment_id"])

    async def complete(self) -> None:
        value = round(self.chance.uniform(0.9, 1.1), 4)
        await self.ask("experiment/complete", experiment_id=self.some(self.experiments), val_bpb=value)

    async def crash(self) -> None:
        kind = self.chance.choice(["oom", "timeout", "infra"])
        await self.ask("experiment/crash", experiment_id=self.some(self.experiments), error="boom", kind=kind)

    async def stop(self) -> None:
        await self.ask("experiment/stop", experiment_id=self.some(self.experiments))

    async def retract(self) -> None:
        await self.ask("experiment/retract", experiment_id=self.some(self.experiments), reason="a mistake")

    async def fall_silent(self) -> None:
        name, lab = self.some(self.experiments), self.process.lab
        if await lab.command("ZSCORE", lab.keys("open"), name) is not None:
            await lab.command("ZADD", lab.keys("open"), "1", name)
        await self.ask("pool/sweep")

    async def run_out(self) -> None:
        name, lab = self.some(self.selections), self.process.lab
        key = lab.keys("open_selections", TAG)
        if float(await lab.command("ZSCORE", key, name) or "inf") < math.inf:
            await lab.command("ZADD", key, "1", name)

    async def release(self) -> None:
        await self.ask("trace/release", selection_id=self.some(self.selections))

    async def close(self) -> None:
        await self.ask("trace/close", tag=TAG, trace_id=await self.some_trace())

    async def reopen(self) -> None:
        await self.ask("trace/reopen", tag=TAG, trace_id=await self.some_trace())

    async def switch(self) -> None:
        await self.ask("trace/configure", tag=TAG, mode=self.chance.choice(["single", "multi", "multi"]))

    async def new_epoch(self) -> None:
        await self.ask("trace/configure", tag=TAG, new_epoch=True)

    async def step(self) -> None:
        often: list[Callable[[], Awaitable[None]]] = [self.select, self.register, self.complete]
        seldom = [self.crash, self.stop, self.release, self.merge]
        seldom += [self.run_out, self.fall_silent, self.retract]
        rarely = [self.close, self.reopen, self.switch, self.new_epoch]
        drawn = self.chance.random()
        await self.chance.choice(often if drawn < 0.75 else seldom if drawn < 0.93 else rarely)()

    async def finish_all(self) -> None:
        """Every experiment ends, every selection is given back."""
        for name in self.experiments:
            shown = (await self.client.get(f"/api/experiment/{name}")).json()["experiment"]
            if shown["status"] in OPEN:
                await self.ask("experiment/complete", experiment_id=name, val_bpb=1.0)
        for name in self.selections:
            await self.ask("trace/release", selection_id=name)


@pytest.mark.parametrize(("seed", "direction"), [(0, "minimize"), (3, "maximize")])
async def test_the_audit_finds_nothing_wherever_a_walk_leads(
    client: httpx.AsyncClient, process: Process, seed: int, direction: str
) -> None:
    traces = {"mode": "multi", "target_traces": 3, "max_parallel": 4, "max_inflight_per_trace": 2}
    policy = {"traces": {**traces, "stale_after": 6, "dead_after_crashes": 2}}
    await open_tag(client, TAG, metric={"name": "score", "direction": direction}, policy=policy)
    walk = Walk(client, process, seed)

    for nth in range(STEPS):
        await walk.step()
        if nth % 6 == 5:
            seen = await told(client, "/api/trace/audit", tag=TAG)
            assert seen["violations"] == [], "\n".join(walk.log)
            assert seen["open_selections"] <= 4
            listed = await told(client, "/api/trace/list", tag=TAG)
            growing = [t for t in listed["traces"] if t["status"] in ("live", "pending")]
            assert listed["mode"] == "single" or sum(t["number"] > 0 for t in growing) <= 3
    await walk.finish_all()

    assert (await told(client, "/api/lab/audit"))["violations"] == [], "\n".join(walk.log)
    listed = await told(client, "/api/trace/list", tag=TAG)
    assert listed["open_selections"] == 0
    assert {t["in_flight"] for t in listed["traces"]} <= {0}
    assert not any(t["status"] == "pending" and t["number"] > 0 for t in listed["traces"])
