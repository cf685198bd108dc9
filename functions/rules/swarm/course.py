"""How a swarm's search goes, by its lab's events alone: this checks what the lab itself takes for a stall."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from functions.rules.keeps.verdict import TOLERANCE
from functions.rules.swarm.canaries.stalling import LEAST_GAIN, LEAST_RESULTS, WINDOW
from state.trial_facts import RESULTS

LATE = 10
"""Results that may come in while the lab decides."""


class Course:
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
