"""Whatever is done to a tag's traces, in whatever order: the audit finds nothing, and no limit is passed."""

from __future__ import annotations

import math
import random
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
        self.client, self.lab, self.chance = client, process.lab, random.Random(seed)
        self.selections: list[str] = []
        self.experiments: list[str] = []
        self.log: list[str] = []

    async def ask(self, path: str, **body: Any) -> None:
        response = await curl(self.client, f"/api/{path}", body)
        assert response.status_code < 500, response.text
        answer: dict[str, Any] = response.json()
        said = answer.get("code") or answer.get("status") or answer.get("detail") or ""
        self.log.append(f"{path} {body}: {response.status_code} {said}")
        if answer.get("status") == "selected":
            self.selections.append(answer["selection_id"])
        if path == "experiment/register" and "number" in answer:
            self.experiments.append(answer["experiment_id"])

    async def end(self, key: str, name: str) -> None:
        """As if the lease of this experiment or selection had run out, where it has one."""
        place = await self.lab.command("ZSCORE", self.lab.keys(*key.split()), name)
        if place is not None and float(place) < math.inf:
            await self.lab.command("ZADD", self.lab.keys(*key.split()), "1", name)

    async def step(self) -> None:
        """What comes to mind often, seldom or rarely."""
        chance, traces = self.chance, (await told(self.client, "/api/trace/list", tag=TAG))["traces"]
        trace = chance.choice(traces)["trace_id"] if traces else f"{TAG}-t1"
        one, two = chance.choices(self.experiments or [f"{TAG}-1"], k=2)
        selection = chance.choice(self.selections or [f"{TAG}-s1"])
        parents: list[dict[str, Any]] = [
            {"parent_ids": each} for each in ([one], [*dict.fromkeys((one, two))])
        ]
        wishes = [{}, {}, {}, {}, {"trace_id": trace}, *parents]
        wishes += [{"intent": intent} for intent in ("new_root", "extend", "branch")]
        ideas = [{"selection_id": selection}] * 6 + [{"parent_id": one}, {}]
        merge = {
            "selector": chance.choice(["best_base", "near_miss"]),
            **chance.choice([{"into": trace}, {}]),
        }
        often: list[tuple[str, dict[str, Any]]] = [
            ("trace/select", {"tag": TAG, **chance.choice(wishes)}),
            ("experiment/register", idea(TAG, **chance.choice(ideas))),
            ("experiment/complete", {"experiment_id": one, "val_bpb": round(chance.uniform(0.9, 1.1), 4)}),
        ]
        crash = {"error": "boom", "kind": chance.choice(["oom", "timeout", "infra"])}
        seldom: list[tuple[str, dict[str, Any]]] = [
            ("experiment/crash", {"experiment_id": one, **crash}),
            ("experiment/stop", {"experiment_id": one}),
            ("experiment/retract", {"experiment_id": one, "reason": "a mistake"}),
            ("trace/release", {"selection_id": selection}),
            ("trace/merge", {"tag": TAG, **merge}),
            ("pool/sweep", {}),
            ("trace/sweep", {}),
        ]
        rarely: list[tuple[str, dict[str, Any]]] = [
            ("trace/close", {"tag": TAG, "trace_id": trace}),
            ("trace/reopen", {"tag": TAG, "trace_id": trace}),
            ("trace/configure", {"tag": TAG, "mode": chance.choice(["single", "multi", "multi"])}),
            ("trace/configure", {"tag": TAG, "new_epoch": True}),
        ]
        drawn = chance.random()
        path, body = chance.choice(often if drawn < 0.75 else seldom if drawn < 0.93 else rarely)
        if path == "pool/sweep":
            await self.end("open", one)
        if path == "trace/sweep":
            await self.end(f"open_selections {TAG}", selection)
        await self.ask(path, **body)

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
