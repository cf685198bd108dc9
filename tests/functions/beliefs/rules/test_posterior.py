"""Posteriors equal an integration of the density; e-values stay valid however often one looks at them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad

from functions.beliefs.rules.learning import NEWEST, after
from functions.beliefs.rules.posterior import (
    concordance,
    concordance_p,
    contrast,
    e_value,
    holm,
    interaction_p,
    pooled_variance,
    posterior_of,
    residuals,
    trajectory,
)
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


TALLIES = st.integers(0, 80)


@given(against=TALLIES, for_it=TALLIES)
def test_an_e_value_is_the_mixture_of_likelihood_ratios(against: int, for_it: int) -> None:
    def ratio(p: float) -> float:
        return math.exp(math.log(2) * (against + for_it + 1)) * p**for_it * (1 - p) ** against

    peak = min(max(for_it / (against + for_it), 0.5), 1.0) if against + for_it else 0.75
    mixed = quad(ratio, 0.5, peak)[0] + quad(ratio, peak, 1)[0]

    assert e_value(against, for_it) == pytest.approx(mixed, rel=1e-6)


def test_it_begins_at_one_and_stays_finite() -> None:
    assert e_value(0, 0) == pytest.approx(1)
    assert e_value(0, 5) == pytest.approx((2**6 - 1) / 6)
    assert e_value(10_000, 0) < 1e-4
    assert math.isfinite(e_value(0, 10_000))


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


DRAWN = np.random.default_rng(4)


def drawn(*sizes: int) -> list[list[float]]:
    return [list(map(float, DRAWN.normal(size=size))) for size in sizes]


def test_two_arms_are_compared_as_by_student_s_t_test() -> None:
    cells = drawn(5, 7)
    found = contrast(cells, [1, -1], pooled_variance(cells))
    statistic, p_value = stats.ttest_ind(cells[0], cells[1])
    assert found.p_value == pytest.approx(p_value)
    assert found.effect == pytest.approx(np.mean(cells[0]) - np.mean(cells[1]))
    assert found.effect / (found.standard_error or 0) == pytest.approx(statistic)


@pytest.mark.parametrize(("apart", "expected"), [(0.0, 1.0), (0.1, 0.0)])
def test_without_noise_any_difference_is_certain(apart: float, expected: float) -> None:
    cells = [[1.0, 1.0], [1.0 + apart, 1.0 + apart]]
    assert contrast(cells, [1, -1], pooled_variance(cells)).p_value == expected
    assert interaction_p([*cells, cells[0], cells[0]], 2, pooled_variance([*cells, *cells])) == expected


def test_holm_corrects_the_textbook_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.7, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_a_two_by_two_interaction_is_the_t_test_of_its_one_contrast() -> None:
    cells = drawn(4, 3, 6, 5)
    found = interaction_p(cells, 2, pooled_variance(cells))
    assert found == pytest.approx(contrast(cells, [1, -1, -1, 1], pooled_variance(cells)).p_value)


def test_a_balanced_interaction_is_the_f_test_of_the_textbook() -> None:
    cells = drawn(*[4] * 12)
    found = interaction_p(cells, 3, pooled_variance(cells))
    squares = 4 * sum(each**2 for each in residuals([float(np.mean(c)) for c in cells], 3))
    assert found == pytest.approx(stats.f.sf(squares / 6 / pooled_variance(cells).variance, 6, 36))


def test_agreement_is_friedman_s_statistic_over_its_largest_and_its_chance_is_exact() -> None:
    rankings = [[1, 2, 3, 4], [1, 3, 2, 4], [2, 1, 4, 3]]
    theirs = stats.friedmanchisquare(*zip(*rankings, strict=True))
    assert concordance(rankings) == pytest.approx(theirs.statistic / (3 * 3))
    assert concordance([[1, 2, 3]] * 4) == pytest.approx(1)
    assert concordance([[1, 2, 3], [3, 2, 1]]) == pytest.approx(0)
    assert concordance_p([[1, 2]] * 2) == pytest.approx(1 / 2)
    assert concordance_p([[1, 2, 3]] * 3) == pytest.approx(1 / 36)
    assert concordance_p([[1, 2, 3], [3, 2, 1]]) == pytest.approx(1)
