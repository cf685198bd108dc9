"""What judges retests: the stores as one bundle; and what ends them."""

from __future__ import annotations

from dataclasses import dataclass

from state.decisions import Ending
from state.experiments import Experiments
from state.records import OPEN, Experiment
from state.settings import Settings
from state.tags import Tags
from state.traces import Traces


@dataclass(frozen=True)
class Judging:
    """The stores that retests are judged with."""

    experiments: Experiments
    tags: Tags
    traces: Traces
    settings: Settings


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
