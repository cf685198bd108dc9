"""Gains of several experiments, each over the best that it was compared with."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from functions.rules.keeps.gains import gain_of, is_compared
from state.experiments import Experiments
from state.facts import Runs
from state.records import ComparedRun, Direction, ExperimentRecord, OneRun

AT_ONCE = 500
"""Experiments that one round trip reads."""


async def runs_beside(
    es: Sequence[ExperimentRecord | ComparedRun], experiments: Experiments
) -> dict[str, Runs[OneRun]]:
    """Experiments with their retests, and what each was compared with, by id."""
    found: dict[str, Runs[OneRun]] = {e.experiment_id: Runs(e) for e in es if not e.retests}
    names = {e.experiment_id for e in es if e.retests}
    names.update(e.compared_with for e in es if e.compared_with is not None and is_compared(e))
    unread = sorted(names - found.keys())
    for begin in range(0, len(unread), AT_ONCE):
        found |= await experiments.runs(unread[begin : begin + AT_ONCE])
        await asyncio.sleep(0)
    return found


def gains_of(
    es: Sequence[ExperimentRecord | ComparedRun], known: Mapping[str, Runs[OneRun]], direction: Direction
) -> dict[str, float]:
    """The gain of each experiment that can be compared, by id; above zero is better."""
    gains: dict[str, float] = {}
    for e in es:
        own, best = known.get(e.experiment_id), known.get(e.compared_with or "")
        if own is not None and (gain := gain_of(e, own, best, direction)) is not None:
            gains[e.experiment_id] = gain.by
    return gains
