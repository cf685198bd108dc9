"""Claims of influence: some dimensions matter, whichever of their values are better.

Such a claim names dimensions and has no constraint. With a good reference config, random values of an important
dimension lose as often as they win. So a pair wins if its two runs differ, in either direction, by more than the
median distance of two runs of one config. Without an influence that is an even chance.

The verdict against such a claim is irrelevance, not refutation: a win share below one half only says that the noise
was overestimated. Stopped and crashed runs have no distance and are no evidence.
"""

from __future__ import annotations

from functions.rules.beliefs.terms import BeliefTerms
from state.records import HypothesisClaim


def is_of_influence(claim: HypothesisClaim) -> bool:
    """Whether it claims that dimensions matter, without a direction."""
    return bool(claim.dimensions) and not claim.config_constraint and claim.test_spec is None


def outcome_of_distance(contrast: float, terms: BeliefTerms) -> float | None:
    """1 where a pair differs by more than the median distance of noise; else 0.

    None while the noise is not known.
    """
    if terms.usual_distance is None:
        return None
    return float(abs(contrast) > terms.usual_distance)
