"""Posteriors equal an integration of the density; e-values stay valid however often one looks at them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from functions.beliefs.rules.learning import NEWEST, after
from functions.beliefs.rules.posterior import e_value, e_values, posterior, posterior_of, trajectory
from state.records import Evidence
from tests.functions.beliefs.rules.sample import hypothesis, pair

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


TALLIES = st.integers(0, 80)


@given(against=TALLIES, for_it=TALLIES)
def test_an_e_value_is_the_mixture_of_likelihood_ratios(against: int, for_it: int) -> None:
    def ratio(p: float) -> float:
        return math.exp(math.log(2) * (against + for_it + 1)) * p**for_it * (1 - p) ** against

    peak = min(max(for_it / (against + for_it), 0.5), 1.0) if against + for_it else 0.75
    mixed = quad(ratio, 0.5, peak)[0] + quad(ratio, peak, 1)[0]

    assert e_value(against, for_it) == pytest.approx(mixed, rel=1e-6)


@given(against=TALLIES, for_it=TALLIES, chance=st.floats(0, 0.5))
def test_under_the_null_hypothesis_no_outcome_raises_it(against: int, for_it: int, chance: float) -> None:
    now = e_value(against, for_it)
    expected = chance * e_value(against, for_it + 1) + (1 - chance) * e_value(against + 1, for_it)
    assert expected <= now * (1 + 1e-9)
    if chance == 0.5:
        assert expected == pytest.approx(now)


def test_it_begins_at_one_and_stays_finite() -> None:
    assert e_value(0, 0) == pytest.approx(1)
    assert e_value(0, 5) == pytest.approx((2**6 - 1) / 6)
    assert e_value(10_000, 0) < 1e-4
    assert math.isfinite(e_value(0, 10_000))


@given(wins=TALLIES, losses=TALLIES, stopped=st.integers(1, 20))
def test_runs_that_were_stopped_count_against_each_claim(wins: int, losses: int, stopped: int) -> None:
    without, having = e_values(wins, losses), e_values(wins, losses, stopped)
    assert having.supported < without.supported
    assert having.refuted < without.refuted
    assert e_values(wins, losses).supported == e_values(losses, wins).refuted


STOPPED_EARLY = Evidence(experiment_id="s", outcome=0.2, against="stopped", worker_id="w1")
KINDS = [pair(1.0, -2.0), pair(0.0, 2.0), pair(None, 0.0), STOPPED_EARLY]


@given(said=st.lists(st.sampled_from(KINDS), max_size=70))
def test_the_way_back_finds_each_posterior_that_there_was(said: list[Evidence]) -> None:
    known = [hypothesis()]
    for each in said:
        known.append(after(known[-1], each, now=9.0))

    start, steps = trajectory(known[-1])

    was = known[-1 - len(steps) :]
    assert len(steps) == min(len(said), NEWEST)
    assert [each for each, _ in steps] == said[-NEWEST:]
    points = [start, *(point for _, point in steps)]
    assert [p.n for p in points] == [h.n_experiments for h in was]
    assert [p.mean for p in points] == pytest.approx([h.alpha / (h.alpha + h.beta) for h in was])
    low, high = posterior_of(was[0].alpha, was[0].beta).credible_interval_90
    assert (start.low, start.high) == pytest.approx((low, high))
