"""The gains that lists of experiments show, each over the best that an experiment was compared with."""

from __future__ import annotations

from collections.abc import Sequence

from functions.rules.keeps.gains import Gain, gain_of, is_compared
from state.experiments import Experiments
from state.facts import Runs
from state.records import Direction, Trial


async def gains_of(es: Sequence[Trial], direction: Direction, experiments: Experiments) -> dict[str, Gain]:
    """By experiment, of those that can be compared; one round trip at most."""
    compared = [e for e in es if is_compared(e)]
    names = {e.compared_with for e in compared if e.compared_with is not None}
    names.update(e.experiment_id for e in compared if e.retests)
    known = await experiments.runs(sorted(names))
    found = {
        e.experiment_id: gain_of(
            e, known.get(e.experiment_id, Runs(e)), known.get(e.compared_with or ""), direction
        )
        for e in compared
    }
    return {name: gain for name, gain in found.items() if gain is not None}
