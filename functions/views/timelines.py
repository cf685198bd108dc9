"""The timeline of an experiment: how long it waited, trained and was scored, attempt by attempt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict

from state.facts import Runs
from state.records import OPEN, Experiment

PhaseName = Literal["queued", "leased", "preparing", "training", "scoring", "retest"]


class Phase(BaseModel):
    """A part of an experiment's time. Times are seconds since 1970."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    phase: PhaseName
    """queued: it waits for a GPU. leased: its worker has not begun. preparing: its code is checked out. training: by
    a worker, or by its agent. scoring: a trusted evaluator measures it. retest: one more run of its code."""
    since: float
    until: float | None
    """Null: it goes on."""
    attempt: int
    """0: its agent trains it."""
    gpu_id: str | None = None
    retest_id: str | None = None
    status: str | None = None
    """Status with which an attempt or a retest ended."""


def timeline(runs: Runs[Experiment], attempts: Mapping[int, Mapping[str, str]]) -> list[Phase]:
    """The phases of an experiment in the order in which they began."""
    e = runs.experiment
    found = [phase for number, attempt in attempts.items() for phase in _of_attempt(e, number, attempt)]
    if not attempts:
        found.append(_whole(e, "training"))
    found += [_whole(r, "retest") for r in runs.retests]
    return sorted(found, key=lambda phase: phase.since)


def _whole(e: Experiment, name: PhaseName) -> Phase:
    """From its registration to its end."""
    return Phase(
        phase=name,
        since=e.registered_at,
        until=e.finished_at,
        attempt=e.attempt,
        gpu_id=e.gpu_id,
        retest_id=e.experiment_id if e.retest_of else None,
        status=None if e.status in OPEN else e.status,
    )


def _of_attempt(e: Experiment, number: int, attempt: Mapping[str, str]) -> Iterator[Phase]:
    times = {name: float(text) for name, text in attempt.items() if name.endswith("_at")}
    status, gpu_id, ended = attempt["status"], attempt.get("gpu_id"), times.get("ended_at")
    if status == "queued":
        times = {name: at for name, at in times.items() if name == "queued_at"}
    is_last = number == e.attempt
    trained = _trained_at(e, times) if is_last else None
    begins: list[tuple[PhaseName, float | None]] = [
        ("queued", times.get("queued_at")),
        ("leased", times.get("leased_at")),
        ("preparing", times.get("started_at")),
        ("training", times.get("built_at")),
        ("scoring", trained),
    ]
    there: list[tuple[PhaseName, float]] = [(name, at) for name, at in begins if at is not None]
    for nth, (name, since) in enumerate(there):
        is_final = nth == len(there) - 1
        until = ended if is_final else there[nth + 1][1]
        how = status if is_final and ended is not None else None
        place = None if name == "queued" else gpu_id
        yield Phase(phase=name, since=since, until=until, attempt=number, gpu_id=place, status=how)


def _trained_at(e: Experiment, times: Mapping[str, float]) -> float | None:
    """When the training ended, by the seconds that its worker measured; None: unknown, or without a trusted score."""
    built, ended = times.get("built_at"), times.get("ended_at")
    if e.score != "trusted" or built is None or ended is None or e.wall_seconds is None:
        return None
    return min(built + e.wall_seconds, ended)
