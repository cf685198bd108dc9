"""How many of our own functions a request calls, and in how many files: ceilings that only go down.

They count calls, not time: a loaded machine makes the same ones.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

from functions.kernel.process.lifecycle import Process
from functions.swarm import configs
from tests.labs import idea

ROOT = Path(__file__).resolve().parents[3]
OURS = tuple(f"{ROOT / folder}/" for folder in ("functions", "state", "triggers"))
BESIDE = str(ROOT / "state" / "wakeups.py")
"""It hears of every event of the lab, whoever has caused it."""
WARM = 3
"""Requests of each kind that come before the ones that are counted."""
COUNTED = 3

CEILINGS: dict[str, tuple[int, int]] = {
    "experiment::complete": (290, 35),
    "experiment::submit": (312, 30),
    "search::suggest_direction": (320, 29),
    "swarm::next_config": (612, 34),
    "swarm::result": (388, 34),
}
"""Calls of our functions, and files of ours that they are in: lower a number where you save some."""
SLACK = 3
"""Calls: a reply of Redis may come in several pieces, and a time may just have passed."""


@contextmanager
def counted(found: list[tuple[int, int]]) -> Iterator[None]:
    """Append the number of calls of our functions, and of the files that they are in."""
    calls: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (file := frame.f_code.co_filename).startswith(OURS) and file != BESIDE:
            calls.append(file)

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
    found.append((len(calls), len(set(calls))))


class Requests:
    """A lab that is asked the same again and again."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._found: dict[str, list[tuple[int, int]]] = {}

    async def call(self, name: str, /, **body: Any) -> dict[str, Any]:
        return (
            await self._process.invoker.call(name, body, self._process.invoker.system("test"))
        ).model_dump()

    async def noted(self, name: str, /, **body: Any) -> dict[str, Any]:
        with counted(self._found.setdefault(name, [])):
            return await self.call(name, **body)

    @property
    def least(self) -> dict[str, tuple[int, int]]:
        """Of the warm requests the one with the fewest calls: replies may come in several pieces."""
        return {name: min(each[WARM:]) for name, each in self._found.items()}


async def test_requests_call_within_their_ceilings(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Random(0)
    monkeypatch.setattr(configs, "SystemRandom", lambda: chance)
    lab = Requests(process)
    await lab.call("experiment::setup", tag="mar11", base_commit="abc1234")
    await lab.call("dimension::define", tag="swarm", profile="mnist")
    await lab.call("swarm::register", worker_id="w1", gpu_type="H100", baseline_bpb=1.0, tag="swarm")
    for nth in range(WARM + COUNTED):
        registered = await lab.call("experiment::register", **idea("mar11"))
        await lab.noted("experiment::complete", experiment_id=registered["experiment_id"], val_bpb=1.0 + nth)
        await lab.noted("experiment::submit", **idea("mar11"))
        await lab.noted("search::suggest_direction", tag="mar11")
        run = await lab.noted("swarm::next_config", worker_id="w1")
        ran = {"worker_id": "w1", "duration_seconds": 1.0, "exp_id": run["run_id"]}
        await lab.noted("swarm::result", **ran, val_bpb=1.0 + nth / 100)

    assert lab.least.keys() == CEILINGS.keys()
    assert min(calls for calls, _ in lab.least.values()) > 100, "calls were not counted"
    wrong = {name: found for name, found in lab.least.items() if not _is_within(found, CEILINGS[name])}
    assert not wrong, f"calls and files: {wrong}, at most {CEILINGS}"


def _is_within(found: tuple[int, int], most: tuple[int, int]) -> bool:
    return found[0] <= most[0] + SLACK and found[1] <= most[1]
