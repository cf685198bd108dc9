"""The effect of a seed on every run, learned from code that ran on two seeds, and the noise without that effect."""

from __future__ import annotations

import math
from collections.abc import Sequence

from functions.rules.keeps.keeping import SeedScores, borne_out
from functions.rules.keeps.noise import Noise, Repeats, is_outlier
from functions.rules.keeps.retests import Confirm, Contender, Demote, Promote, Step
from state.records import Seeds

ENOUGH_KEPT = 2
"""Kept pairs, the baseline's included, that a shift is estimated from. One pair cannot tell seed from noise."""
BORROWED = 2
"""Most degrees of freedom that are borrowed from the noise of all repeats."""


def learned(
    step: Step, chain: Sequence[Contender], rivals: Sequence[Contender], seeds: Seeds, noise: Noise | None
) -> Seeds:
    """`seeds` with the pair of the code that this step judges, and at first with the baseline's pair.

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


def paired(trial: SeedScores) -> float | None:
    """Score on the second seed minus score on the first; None if one of them is unusable."""
    return trial.fresh[0] - trial.first if trial.fresh and not trial.contradicted else None


def shift_of(seeds: Seeds) -> float | None:
    """Mean difference between the second seed's scores and the first's; None while it is not known.

    Only kept code counts. Demoted code had a lucky first run, which biases the difference.
    """
    return seeds.kept_total / seeds.kept if seeds.kept >= ENOUGH_KEPT else None


def with_pair(seeds: Seeds, trial: SeedScores, noise: Noise | None, *, is_kept: bool) -> Seeds:
    """`seeds` with the pair of one more code, unless its second run is an outlier."""
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


def with_bar(seeds: Seeds, incumbent: SeedScores) -> Seeds:
    """`seeds` with the bar that this incumbent's two runs set (`keeping.borne_out`)."""
    shift = shift_of(seeds)
    return seeds.model_copy(update={"bar": None if shift is None else borne_out(incumbent, shift)})


def own_noise(noise: Noise | None, seeds: Seeds) -> Noise | None:
    """Noise of runs on one seed.

    Repeats of one code run on different seeds, so `noise` includes the effect of the seeds. A difference of two codes
    on shared seeds does not. The shift costs one degree of freedom. A few are borrowed from `noise`, so that little
    evidence changes little. There are never more than `noise` has.
    """
    shift = shift_of(seeds)
    if noise is None or shift is None or seeds.pairs < ENOUGH_KEPT:
        return noise
    free = seeds.pairs - 1
    # a pair is the difference of two runs, so half of its square belongs to one run
    squares = max(0.0, seeds.squares - 2 * shift * seeds.total + seeds.pairs * shift * shift) / 2
    borrowed = max(0, min(BORROWED, noise.df - free))
    sigma = math.sqrt((squares + borrowed * noise.sigma**2) / (free + borrowed))
    return Noise(sigma, min(free + borrowed, noise.df))
