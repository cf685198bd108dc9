"""What judges retests: the stores as one bundle; and what ends them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from functions.rules.branches.ancestry import best_of
from functions.rules.keeps.judging import main_key
from state.decisions import Ending
from state.experiments import Experiments
from state.records import OPEN, Experiment, Tag, Trace
from state.settings import Settings
from state.tags import Tags
from state.traces import Traces

ANCESTORS_READ = 500
"""Ancestors among which the best keep is looked for. If there is none, the nearest keep above them is taken."""


@dataclass(frozen=True)
class Judging:
    """The stores that retests are judged with."""

    experiments: Experiments
    tags: Tags
    traces: Traces
    settings: Settings


async def bases_without(
    e: Experiment, traces: Iterable[Trace], tag: Tag, experiments: Experiments
) -> dict[str, Experiment | None]:
    """The best keep of each branch that stands on `e`, for when `e` falls; None is the tag's base."""
    return {
        t.trace_id: await _base_without(e, t, tag, experiments) for t in traces if t.base == e.experiment_id
    }


async def _base_without(e: Experiment, trace: Trace, tag: Tag, experiments: Experiments) -> Experiment | None:
    """Looks at keeps made after `e`, too: if `e` rose or was measured late, they may be worse than `e`."""
    found, is_whole = await experiments.above([trace.tip] if trace.tip else e.parent_ids, ANCESTORS_READ)
    keeps = [each for each in found if each.status == "keep" and each.experiment_id != e.experiment_id]
    best = best_of(keeps, tag.direction, main_key(tag))
    return best if best or is_whole else await experiments.base_above(e.parent_ids)


async def stop_retests(e: Experiment, experiments: Experiments) -> None:
    """Stop what still runs of a retracted experiment's code: it would say nothing any more."""
    e = await experiments.get(e.experiment_id)
    why = f"{e.experiment_id} was retracted: {e.retracted_because}"
    [its] = await experiments.retests([e])
    for retest in its:
        now = retest
        while now.status in OPEN and not now.stopping:
            if now.status in ("leased", "running"):
                await experiments.ask_to_stop(now, why)
            else:
                await experiments.end(Ending(now, "stopped", {"error": why}, reason=why))
            now = await experiments.get(now.experiment_id)
