"""What is believed of a share of wins, beside an integration of the density by itself."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from functions.rules.beliefs.posterior import posterior, posterior_of
from tests.functions.rules.beliefs.sample import hypothesis

COUNTS = st.floats(2, 200)


def mass(alpha: float, beta: float, low: float, high: float) -> float:
    """Of a Beta distribution between two shares, from its density and the gamma function."""
    log = math.lgamma(alpha + beta) - math.lgamma(alpha) - math.lgamma(beta)

    def density(x: float) -> float:
        return math.exp(log + (alpha - 1) * math.log(x) + (beta - 1) * math.log1p(-x)) if 0 < x < 1 else 0.0

    mode = min(max((alpha - 1) / (alpha + beta - 2), low), high) if alpha + beta > 2 else (low + high) / 2
    return sum(
        float(quad(density, *ends, epsabs=1e-13, limit=200)[0]) for ends in ((low, mode), (mode, high))
    )


@given(alpha=COUNTS, beta=COUNTS)
def test_probabilities_and_interval_are_those_of_the_density(alpha: float, beta: float) -> None:
    believed = posterior_of(alpha, beta)
    low, high = believed.credible_interval_90

    assert believed.posterior_mean == pytest.approx(alpha / (alpha + beta))
    assert believed.support_probability == pytest.approx(mass(alpha, beta, 0.6, 1), abs=1e-9)
    assert believed.refute_probability == pytest.approx(mass(alpha, beta, 0, 0.4), abs=1e-9)
    assert believed.rope_probability == pytest.approx(mass(alpha, beta, 0.4, 0.6), abs=1e-9)
    assert mass(alpha, beta, 0, low) == pytest.approx(0.05, abs=1e-9)
    assert mass(alpha, beta, high, 1) == pytest.approx(0.05, abs=1e-9)


@given(alpha=COUNTS, beta=COUNTS)
def test_what_supports_a_claim_refutes_its_opposite(alpha: float, beta: float) -> None:
    one, other = posterior_of(alpha, beta), posterior_of(beta, alpha)

    assert one.support_probability == pytest.approx(other.refute_probability, abs=1e-12)
    assert one.credible_interval_90[0] == pytest.approx(1 - other.credible_interval_90[1], abs=1e-9)


def test_nothing_is_known_of_a_new_hypothesis() -> None:
    believed = posterior(hypothesis())

    assert believed.posterior_mean == 0.5
    # Beta(2, 2) has the distribution function 3 x^2 - 2 x^3
    assert believed.refute_probability == pytest.approx(0.352)
    assert believed.support_probability == pytest.approx(0.352)
    assert believed.rope_probability == pytest.approx(0.296)
