"""Fifty clients call at once: the stream shows one change after the other, and every answer agrees with it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from functions.kernel.process.lifecycle import Process, opened
from state.errors import Conflict
from state.events import Event
from state.settings import Settings
from tests.labs import expire, idea, silence

GPUS = tuple(f"host:gpu{n}" for n in range(6))
CLIENTS = 50
ROUNDS = 6
EXPERIMENTS_PER_ROUND = 16
SILENCE_S = 100_001.0
CALLS = {"acquire": 9, "release": 5, "heartbeat": 4, "complete": 3, "crash": 2, "give_back": 1, "sweep": 2}
CALLS |= {"submit": 2, "dispatch": 2, "stop": 1, "pause": 1, "unpause": 2}
MOST_RUNS = 40
"""What clients do, and how often."""


@pytest.fixture
async def process(settings: Settings) -> AsyncIterator[Process]:
    """Of a lab in which no GPU falls silent because the machine is slow."""
    async with opened("web", settings.model_copy(update={"stale_s": SILENCE_S - 1})) as running:
        yield running


@dataclass
class Clients:
    """Call a lab by chance, with leases that they or others saw, and keep what was answered."""

    process: Process
    chance: random.Random
    names: list[str] = field(default_factory=list)
    leases: dict[str, tuple[str, int]] = field(default_factory=dict)
    lent: set[tuple[str, str, int]] = field(default_factory=set)
    """(experiment, GPU, fence) of answers."""
    given_back: list[int] = field(default_factory=list)
    reported: dict[str, set[tuple[Any, ...]]] = field(default_factory=dict)
    """Answers to reports on each experiment."""

    async def told(self, name: str, **request: Any) -> dict[str, Any]:
        return await self.process.invoker.system("history").invoke(name, request)

    async def call(self) -> None:
        name = self.chance.choice(self.names)
        gpu_id, fence = self.leases.get(name) or (self.chance.choice(GPUS), self.chance.randrange(1, 50))
        fenced = {"fence": fence} if self.chance.random() < 0.7 else {}
        value = 1.0 + self.chance.randrange(40) / 1000  # few values, so that reports are repeated
        match self.chance.choices([*CALLS], [*CALLS.values()])[0]:
            case "acquire":
                lease = await self.told("pool::acquire", experiment_id=name)
                if lease["acquired"]:
                    self.leases[name] = lease["gpu_id"], lease["fence"]
                    self.lent.add((name, lease["gpu_id"], lease["fence"]))
            case "release":
                await self.told("pool::release", experiment_id=name, gpu_id=gpu_id, **fenced)
            case "heartbeat":
                alive = await self.told("pool::heartbeat", gpu_id=gpu_id, **fenced)
                assert not fenced or alive["action"] == "stop" or alive["fence"] == fence
            case "complete":
                told = await self.told("experiment::complete", experiment_id=name, val_bpb=value)
                self.answered(name, told["status"], value, told["best_val_bpb"])
            case "crash":
                told = await self.told("experiment::crash", experiment_id=name, error=repr(value))
                self.answered(name, "crash", value, told["consecutive_crashes"])
            case "give_back":
                if (await self.told("pool::give_back", gpu_id=gpu_id, fence=fence, reason="it died"))[
                    "given_back"
                ]:
                    self.given_back.append(fence)
            case "submit":
                self.names.append((await self.told("experiment::submit", **idea("t")))["experiment_id"])
            case "stop":
                await self.told("experiment::stop", experiment_id=name)
            case "pause" | "unpause" as verb:
                await self.told(f"tag::{verb}", tag="t")
            case verb:
                await self.told(f"pool::{verb}")

    def answered(self, name: str, *said: Any) -> None:
        self.reported.setdefault(name, set()).add(said)

    async def calls(self) -> None:
        for _ in range(2):
            try:
                await self.call()
            except Conflict:
                continue

    async def time_passes(self) -> None:
        """While nobody calls: a lease runs out, or a GPU falls silent."""
        for gpu_id in GPUS:
            fate = self.chance.random()
            held = (await self.told("gpu::get", gpu_id=gpu_id))["worker"]["holder"]
            if held is not None and fate < 0.3:
                await expire(self.process.lab, gpu_id)
            elif fate > 0.85:
                await silence(self.process.lab, gpu_id, SILENCE_S)


def check_leases(events: list[Event], clients: Clients) -> None:
    """Each GPU was idle before it was lent, each lease has the next fence, and no client was told of another."""
    state = dict.fromkeys(GPUS, "gpu.idle")
    fences, lent = [], set()
    for event in events:
        if event.type == "gpu.leased":
            assert state[event.subject] == "gpu.idle", event
            fences.append(event.data["fence"])
            lent.add((event.data["experiment_id"], event.subject, event.data["fence"]))
        if event.type.startswith("gpu.") and event.type != "gpu.registered":
            state[event.subject] = event.type
    assert fences == [*range(1, len(fences) + 1)]
    assert clients.lent <= lent
    assert len(set(clients.given_back)) == len(clients.given_back)


def check_ends(events: list[Event], clients: Clients) -> None:
    """Each experiment ended once, judged beside the best of that moment, and its reporters were told just that."""
    best, crashes = 9.0, 0
    ended: dict[str, tuple[Any, ...]] = {}
    for event in events:
        if event.type != "experiment.finished":
            continue
        assert event.subject not in ended, event
        if event.data["status"] not in ("keep", "discard", "crash"):
            ended[event.subject] = (event.data["status"],)  # without a report
            continue
        if event.data["status"] == "crash":
            crashes += 1
            ended[event.subject] = "crash", crashes
            continue
        value, crashes = event.data["val_bpb"], 0
        assert event.data["status"] == ("keep" if value < best else "discard"), event
        best = min(best, value)
        ended[event.subject] = event.data["status"], best
    told = {name: {(status, after) for status, _, after in said} for name, said in clients.reported.items()}
    assert told == {name: {ended[name]} for name in told}
    assert all(len(said) == 1 for said in clients.reported.values())
    assert told.keys() == {name for name, (status, *after) in ended.items() if after}


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.long) for n in range(2, 10))])
async def test_what_fifty_clients_did_at_once_happened_one_after_the_other(
    process: Process, seed: int
) -> None:
    clients = Clients(process, random.Random(seed))
    await clients.told("experiment::setup", tag="t")
    await clients.told("tag::budget", tag="t", runs=MOST_RUNS)
    for n, gpu_id in enumerate(GPUS):
        gpu = {"gpu_id": gpu_id, "gpu_index": n, "gpu_name": "H100", "vram_mb": 80000.0}
        await clients.told("pool::register_gpu", **gpu)

    for _ in range(ROUNDS):
        clients.names = [name for name in clients.names if name not in clients.reported][:4]
        for _ in range(EXPERIMENTS_PER_ROUND - len(clients.names)):
            clients.names.append((await clients.told("experiment::register", **idea("t")))["experiment_id"])
        await clients.time_passes()
        await asyncio.gather(*(clients.calls() for _ in range(CLIENTS)))

    events = await process.stream.last(100_000)
    budget = (await clients.told("tag::budget", tag="t"))["runs"]
    assert len(clients.lent) > ROUNDS
    assert budget["reserved"] > 0
    check_leases(events, clients)
    check_ends(events, clients)
    assert (await clients.told("lab::audit"))["violations"] == []
