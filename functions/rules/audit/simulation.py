"""Checks a lab from outside: acknowledged results are there once, and the search stalls where the lab says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from functions.rules.keeps.verdict import TOLERANCE
from functions.rules.swarm.canaries.stalling import LEAST_GAIN, LEAST_RESULTS, WINDOW
from state.trial_facts import RESULTS

VALUED = frozenset({"keep", "discard", "measured", "retracted", "invalid"})
FAILED = frozenset({"crash", "timeout"})


@dataclass(frozen=True)
class Acknowledged:
    """A run whose result was acknowledged."""

    worker_id: str
    value: float | None
    """None: it failed."""
    is_stopped: bool = False
    """Its worker was told to stop: the record stays stopped, whatever came after."""

    @property
    def counts(self) -> bool:
        """Whether the server counts it as an experiment."""
        return self.is_stopped or self.value is not None


@dataclass(frozen=True)
class ShownRun:
    """A run as the server shows it."""

    status: str
    value: float | None


def lost(acknowledged: Mapping[str, Acknowledged], stored: Mapping[str, ShownRun]) -> Iterator[str]:
    """Acknowledged results that the server lacks or shows differently, one text each."""
    for name, sent in acknowledged.items():
        found = stored.get(name)
        if found is None:
            yield f"{name} was acknowledged, and does not exist"
        elif not _agrees(sent, found):
            what = "stopped" if sent.is_stopped else "a failure" if sent.value is None else repr(sent.value)
            yield f"{name} was acknowledged as {what}, and is {found.status} with {found.value!r}"


def _agrees(sent: Acknowledged, found: ShownRun) -> bool:
    if sent.is_stopped:
        return found.status == "stopped"
    if sent.value is None:
        return found.status in FAILED
    return found.status in VALUED and found.value == sent.value


def miscounted(
    acknowledged: Mapping[str, Acknowledged], experiments: int | None, by_worker: Mapping[str, int]
) -> Iterator[tuple[int, str]]:
    """Wrong counts of the server, in all and by worker: the surplus (negative: too few) with a text.

    `experiments` is the server's count since the begin; None if other workers were active, too.
    """
    ours: dict[str, int] = {}
    for sent in acknowledged.values():
        ours[sent.worker_id] = ours.get(sent.worker_id, 0) + sent.counts
    expected = sum(ours.values())
    if experiments is not None and experiments != expected:
        yield (
            experiments - expected,
            f"the server counts {experiments} experiments, {expected} were acknowledged",
        )
    for worker_id, count in by_worker.items():
        if worker_id in ours and count != ours[worker_id]:
            text = (
                f"the server counts {count} experiments of {worker_id}, {ours[worker_id]} were acknowledged"
            )
            yield count - ours[worker_id], text


LATE = 10
"""Results that may come in while the lab decides."""


class SearchProgress:
    """The results and the bests of a tag that compares deltas and minimizes, in the order of their events."""

    def __init__(self) -> None:
        self._ended = list[str]()
        self._bests = list[tuple[str, float]]()
        self._improving = list[bool]()
        """After each result."""

    @property
    def results(self) -> int:
        return len(self._ended)

    def hear(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take an event in, in its turn."""
        if kind == "best.changed":
            self._bests.append((data["experiment_id"], data["val_bpb"]))
        if kind == "experiment.finished" and data["status"] in RESULTS:
            self._ended.append(data["experiment_id"])
            self._improving.append(self._improves())

    @property
    def is_improving(self) -> bool:
        """Whether the search surely does not stall: it does not now, and did not ten results ago."""
        return self._improves() and all(self._improving[-1 - LATE : -LATE])

    def _improves(self) -> bool:
        """Whether the newest 50 results, or fewer than 25, have the best run, better than those before by 0.0005."""
        newest = set(self._ended[-WINDOW:])
        if self.results < LEAST_RESULTS:
            return True
        if not self._bests or self._bests[-1][0] not in newest:
            return False
        before = next((value for name, value in reversed(self._bests) if name not in newest), 0.0)
        return before - self._bests[-1][1] >= LEAST_GAIN + TOLERANCE
