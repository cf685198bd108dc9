"""Traces among many: eight agents select, make and report at once, and real processes are killed in the middle.

What happened is read from the lab's own events, in their order, and held against what has to be true after each.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process, opened
from state.events import Event
from state.experiments import Experiments
from state.traces import Traces
from tests.growers import Grower
from tests.labs import open_tag, told

TAG = "mar11"
AGENTS = 8
MAXIMIZED = [("maximize", 5), pytest.param("minimize", 5, marks=pytest.mark.long)]
MORE = [pytest.param(direction, 40, marks=pytest.mark.long) for direction in ("minimize", "maximize")]
"""Each direction is played once, and all of them at length with the long tests."""
DEATHS = (["selected", 4], ["registered", 6], None, None)
"""With which of its selections each process dies, and when; two live on."""
PATIENCE_S = 500.0
pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

Turn = dict[str, Any]


async def growers(process: Process, **task: Any) -> list[Turn]:
    """Agents with stores of their own, at work together until all have done their turns."""
    turns: list[Turn] = []

    patient = process.settings.model_copy(update={"redis_timeout_s": PATIENCE_S})  # they share one event loop

    async def grow(seed: int) -> None:
        async with opened("web", patient) as own:
            await Grower(own, {"tag": TAG, "seed": seed, **task}, turns.append).work()

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as together:
        for seed in range(AGENTS):
            together.create_task(grow(seed))
    return turns


async def dying_growers(process: Process, **task: Any) -> tuple[list[Turn], list[int]]:
    """Agents in processes of their own until all have done their turns or died; answers the exit statuses too."""
    redis_url = process.settings.redis_url
    assert redis_url is not None
    common = {"tag": TAG, "lab": process.settings.lab, "redis_url": redis_url.get_secret_value(), **task}
    running = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "tests.growers"),
            json.dumps({**common, "seed": seed, "dies": dies}),
            stdout=asyncio.subprocess.PIPE,
        )
        for seed, dies in enumerate(DEATHS)
    ]
    async with asyncio.timeout(PATIENCE_S):
        said = await asyncio.gather(*(p.communicate() for p in running))
    return [json.loads(line) for out, _ in said for line in out.splitlines()], [
        p.returncode or 0 for p in running
    ]


@dataclass
class Replay:
    """The forest as the events tell it, one after the other."""

    open: dict[str, str] = field(default_factory=dict)
    """Open selections with their traces."""
    growing: set[str] = field(default_factory=set)
    live: set[str] = field(default_factory=set)
    most_open: int = 0
    most_growing: int = 0
    picks: list[str] = field(default_factory=list)
    """Traces of the selections that extended one, in order."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """How often each trace that is free has been passed over since it was."""
    longest_wait: int = 0
    roots: int = 0

    def step(self, event: Event) -> None:
        data = event.data
        match event.type:
            case "selection.opened":
                self._selected(data["trace_id"], data["kind"])
                self.open[event.subject] = data["trace_id"]
            case "selection.committed":
                self.passed_over.pop(self.open.pop(event.subject), None)
            case "selection.expired" | "selection.released":
                trace = self.open.pop(event.subject)
                if trace not in self.live and data.get("experiment_id") is None:
                    self.growing.discard(trace)
            case "trace.opened":
                self.live.add(event.subject)
            case "trace.ended":
                self.live.discard(event.subject)
                self.growing.discard(event.subject)
            case _:
                return
        self.most_open = max(self.most_open, len(self.open))
        self.most_growing = max(self.most_growing, len(self.growing))

    def _selected(self, trace: str, kind: str) -> None:
        if kind != "extend":
            self.growing.add(trace)
            self.roots += 1
            return
        self.picks.append(trace)
        busy = set(self.open.values())
        for other in self.live - busy - {trace}:
            self.passed_over[other] += 1
            self.longest_wait = max(self.longest_wait, self.passed_over[other])
        self.passed_over.pop(trace, None)


async def replayed(process: Process) -> Replay:
    replay = Replay()
    for event in await process.stream.last(1_000_000):
        replay.step(event)
    return replay


async def parents_are_as_selected(process: Process, turns: list[Turn]) -> int:
    """Every experiment has the parents that its own agent selected, whatever came in between; answers how many."""
    experiments = Experiments(process.lab)
    made = {t["experiment_id"]: t for t in turns if "experiment_id" in t}
    for e in await experiments.many(list(made)):
        turn = made[e.experiment_id]
        assert e.parent_ids == turn["parent_ids"], e
        assert e.local_selection == turn["local_selection"], e
        assert (e.selection_id, e.trace_id) == (turn["selection_id"], turn["trace_id"])
        assert e.selection is not None
        assert e.selection.parent_ids == e.parent_ids
    return len(made)


async def audited(http: httpx.AsyncClient) -> None:
    assert (await told(http, "/api/trace/audit", tag=TAG))["violations"] == []
    assert (await told(http, "/api/lab/audit"))["violations"] == []


@pytest.mark.parametrize(("direction", "turns"), [*MAXIMIZED, *MORE])
async def test_agents_grow_just_as_many_traces_as_they_may_and_each_in_its_turn(
    client: httpx.AsyncClient, process: Process, direction: str, turns: int
) -> None:
    target, slots = 4, 3
    policy = {"mode": "multi", "target_traces": target, "max_parallel": slots, "stale_after": 100_000}
    metric = {"name": "score", "direction": direction}
    await open_tag(client, TAG, policy={"traces": policy}, metric=metric)

    told_by = await growers(process, turns=turns, wait=20, sign=-1 if direction == "maximize" else 1)

    replay = await replayed(process)
    assert (replay.roots, replay.most_growing, replay.most_open) == (target, target, slots)
    assert replay.open == {}
    assert replay.longest_wait <= target - 1  # with one experiment in flight on each
    assert await parents_are_as_selected(process, told_by) == len(replay.picks) + target
    assert all(t["selection_id"] is None for t in told_by if "wait" in t)
    await audited(client)
    nodes = (await told(client, "/api/trace/list", tag=TAG, limit=1000))["nodes"]
    assert not any(node["forked"] for node in nodes)  # one at a time on each


@pytest.mark.long
async def test_what_agents_leave_behind_when_they_die_is_selected_again_without_a_clock(
    client: httpx.AsyncClient, process: Process
) -> None:
    policy = {"mode": "multi", "target_traces": 3, "max_parallel": 3, "max_inflight_per_trace": 2}
    limits = {"lease_ttl_s": 2.0, "dead_after_crashes": 4, "stale_after": 60}
    await open_tag(client, TAG, policy={"traces": {**policy, **limits}, "stale_after_s": 4.0})

    told_by, statuses = await dying_growers(process, turns=30, wait=5, crashes=0.3)

    assert statuses == [-signal.SIGKILL if dies else 0 for dies in DEATHS]
    for trace in (await Traces(process.lab).forest(TAG)).growing:
        if trace.status == "live":
            await selectable_again(client, trace.trace_id)
    replay = await replayed(process)
    assert replay.most_growing <= 3
    assert replay.most_open <= 3
    await parents_are_as_selected(process, told_by)
    await everything_is_given_back(client, process)
    await audited(client)


async def selectable_again(http: httpx.AsyncClient, trace_id: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            response = await http.post(
                "/api/trace/select", json={"tag": TAG, "trace_id": trace_id, "wait": 20}
            )
            answer = response.json()
            if answer.get("status") == "selected":
                break
            assert answer.get("code") in ("busy_trace", None), answer
    await told(http, "/api/trace/release", selection_id=answer["selection_id"])


async def everything_is_given_back(http: httpx.AsyncClient, process: Process) -> None:
    """Slots and traces count nothing in flight, once the last lease and the last patience have ended."""
    traces, experiments = Traces(process.lab), Experiments(process.lab)
    async with asyncio.timeout(PATIENCE_S):
        while await traces.open_selections(TAG):
            await told(http, "/api/trace/sweep")
            await experiments.close_forgotten()
            await asyncio.sleep(0.1)
    found, _ = await traces.page(TAG, 1000)
    assert {t.in_flight for t in found} == {0}
