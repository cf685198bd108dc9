"""What a seed does to every run alike, learned from code that ran on two, and the noise that is left beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from functions.rules.keeps.keeping import Trial, borne_out
from functions.rules.keeps.noise import Noise, Repeats, is_outlier
from functions.rules.keeps.retests import Confirm, Contender, Demote, Promote, Step
from state.records import Seeds

ENOUGH_KEPT = 2
"""Kept pairs, the baseline's one of them, from which on a shift is known: one pair may be the seed's or the run's."""
BORROWED = 2
"""Degrees of freedom, at most, for which the noise of all repeats stands in."""


def learned(
    step: Step, chain: Sequence[Contender], rivals: Sequence[Contender], seeds: Seeds, noise: Noise | None
) -> Seeds:
    """With what a step of this chain tells: the pair of the code that it judges, and at first the baseline's.

    `noise` is that of all repeats.
    """
    foot = chain[0]
    if not seeds.pairs and foot.is_baseline:
        seeds = with_pair(seeds, foot.trial, noise, is_kept=True)
    if isinstance(step, Confirm | Promote | Demote):
        judged = next(c for c in (*chain, *rivals) if c.name == step.name)
        is_kept = not isinstance(step, Demote)
        if judged is not foot:
            seeds = with_pair(seeds, judged.trial, noise, is_kept=is_kept)
        foot = judged if is_kept else foot
    return with_bar(seeds, foot.trial)


def paired(trial: Trial) -> float | None:
    """By how much its score on the second seed lies above that on the first; None where one of them says nothing."""
    return trial.fresh[0] - trial.first if trial.fresh and not trial.contradicted else None


def shift_of(seeds: Seeds) -> float | None:
    """By how much the second seed's scores lie above the first's, whatever the code; None while that is not known.

    By kept code only. What was demoted ran again because its first run was lucky, so that its second looks bad.
    """
    return seeds.kept_total / seeds.kept if seeds.kept >= ENOUGH_KEPT else None


def with_pair(seeds: Seeds, trial: Trial, noise: Noise | None, *, is_kept: bool) -> Seeds:
    """With the pair of one more code, unless a run of it went so wrong that it says nothing of the seeds."""
    pair = paired(trial)
    if pair is None or noise is None:
        return seeds
    usual = trial.first + (shift_of(seeds) or 0.0)
    if is_outlier(Repeats(1, usual, 0.0), trial.fresh[0], noise):
        return seeds
    return seeds.model_copy(
        update={
            "pairs": seeds.pairs + 1,
            "total": seeds.total + pair,
            "squares": seeds.squares + pair * pair,
            "kept": seeds.kept + is_kept,
            "kept_total": seeds.kept_total + (pair if is_kept else 0.0),
        }
    )


def with_bar(seeds: Seeds, incumbent: Trial) -> Seeds:
    """With what both runs of this incumbent bear out."""
    shift = shift_of(seeds)
    return seeds.model_copy(update={"bar": None if shift is None else borne_out(incumbent, shift)})


def own_noise(noise: Noise | None, seeds: Seeds) -> Noise | None:
    """How far runs on one seed differ, without what the seed does to all of them.

    Repeats of one code are runs on different seeds, so that `noise` holds the seeds' part, too; the difference of two
    codes on shared seeds does not. The shift takes one degree of freedom. A few are borrowed from `noise`, so that
    little evidence changes little, and there are never more than `noise` has.
    """
    shift = shift_of(seeds)
    if noise is None or shift is None or seeds.pairs < ENOUGH_KEPT:
        return noise
    free = seeds.pairs - 1
    # Each pair is the difference of two runs: half of its square is one run's.
    squares = max(0.0, seeds.squares - 2 * shift * seeds.total + seeds.pairs * shift * shift) / 2
    borrowed = max(0, min(BORROWED, noise.df - free))
    sigma = math.sqrt((squares + borrowed * noise.sigma**2) / (free + borrowed))
    return Noise(sigma, min(free + borrowed, noise.df))
