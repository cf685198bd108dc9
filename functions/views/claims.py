"""An experiment's retests, and the score that they allow to claim."""

from __future__ import annotations

from pydantic import BaseModel

from functions.rules.keeps.noise import claim, noise_of
from functions.rules.keeps.retests import fresh_runs
from functions.views.experiments import score_of
from state.facts import Runs, Spread
from state.records import Experiment, Score


class RetestView(BaseModel):
    """One more run of an experiment's code."""

    retest_id: str
    seed: int | None
    status: str
    val_bpb: float | None
    score: Score | None
    """Source of the value: printed by the scored code, or measured by the tag's trusted evaluator."""
    reported: float | None
    """The value that train.py printed, where it is trusted."""


class ClaimView(BaseModel):
    """The mean of an experiment's retests. Its first run is biased, because it was kept for it."""

    claimed_bpb: float | None = None
    """None while it has not run again."""
    claimed_n: int = 0
    claimed_interval: tuple[float, float] | None = None
    """95 %; None while the noise is not known."""


def retest_view(retest: Experiment) -> RetestView:
    return RetestView(
        retest_id=retest.experiment_id,
        seed=retest.seed,
        status=retest.status,
        val_bpb=retest.val_bpb,
        score=score_of(retest),
        reported=retest.reported,
    )


def claim_of(runs: Runs[Experiment], noise: Spread) -> ClaimView:
    """The claim from an experiment's retests and the noise of its tag and GPU class."""
    fresh = [r.own_value for r in fresh_runs(runs.experiment, runs.retests) if r.own_value is not None]
    found = claim(fresh, noise_of(noise.squares, noise.df))
    if found is None:
        return ClaimView()
    interval = None if found.low is None or found.high is None else (found.low, found.high)
    return ClaimView(claimed_bpb=found.claimed_bpb, claimed_n=found.runs, claimed_interval=interval)
