"""experiment::get shows one experiment with its patch, attempts and ticks."""

from __future__ import annotations

from typing import Any

from functions.contract import Http, Request, Response, function
from functions.formats.patches import text_of
from functions.rules.keeps.gains import Gain, gain_of
from functions.views.experiments import ClaimView, ExperimentView, RetestView, claim_of, retest_view, view
from functions.views.hints import no_signal
from functions.views.timelines import Phase, timeline
from state.experiments import Experiments
from state.ids import ExperimentId


class ReadExperiment(Request):
    experiment_id: ExperimentId


class ExperimentShown(Response):
    experiment: ExperimentView
    diff: str | None
    retests: list[RetestView]
    """Further runs of its code."""
    claim: ClaimView
    gain: Gain | None
    """Gain over the best that it was compared with; null: no shared seed, or no such best."""
    attempts: dict[int, dict[str, str]]
    timeline: list[Phase]
    """Its attempts and retests, phase by phase."""
    ticks: list[tuple[float, float, float]]
    """(progress, metric, seconds since 1970) as the run reported them."""
    no_signal: str | None
    """The two lines that train.py lacks, where its tag stops bad runs early and it has reported nothing."""
    log_tail: str | None
    """The newest lines of the run's log: text of the training script, not to be trusted."""
    late_results: list[dict[str, Any]]


@function("experiment::get", Http("GET", "/api/experiment/{experiment_id}"), role="viewer")
async def get(request: ReadExperiment, experiments: Experiments) -> ExperimentShown:
    """One experiment with everything that is known of it."""
    found = await experiments.shown(request.experiment_id)
    e = found.runs.experiment
    return ExperimentShown(
        experiment=view(e),
        diff=text_of(found.patch),
        retests=[retest_view(r) for r in found.runs.retests],
        claim=claim_of(found.runs, found.noise),
        gain=gain_of(e, found.runs, found.compared, found.direction),
        attempts={n: dict(attempt) for n, attempt in found.attempts.items()},
        timeline=timeline(found.runs, found.attempts),
        ticks=list(found.ticks),
        no_signal=no_signal(e, found.policy),
        log_tail=found.log,
        late_results=[dict(result) for result in found.late_results],
    )
