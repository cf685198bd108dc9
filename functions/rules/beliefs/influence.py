"""Claims of influence: some dimensions matter, whichever of their values are better.

Such a claim names dimensions and constrains none. Runs that draw any of their values lose as often as they win where
the reference config stands well, however much the dimension matters. So a pair wins where its two runs lie further
apart than two runs of one config do half of the time, to either side. Without an influence that is an even chance,
whatever the dimension's values. What speaks against such a claim is the verdict of irrelevance, not that of
refutation: a share of wins below one half says that the noise was taken for larger than it is. A run that was stopped
early has no distance, and one that crashed no known one: they say nothing.
"""

from __future__ import annotations

from functions.rules.beliefs.terms import BeliefTerms
from state.records import Claim


def is_of_influence(claim: Claim) -> bool:
    """Whether it claims that dimensions matter, and not which of their values are better."""
    return bool(claim.dimensions) and not claim.config_constraint and claim.test_spec is None


def outcome_of_distance(contrast: float, terms: BeliefTerms) -> float | None:
    """1 where a pair lies further apart than noise does half of the time, and than the dead zone; else 0.

    None while the noise is not known.
    """
    if terms.usual_distance is None:
        return None
    return float(abs(contrast) > max(terms.usual_distance, terms.smallest))
