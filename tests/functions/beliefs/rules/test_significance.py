"""The tests of cell means agree with others' implementations, and with what they promise under pure noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from functions.beliefs.rules.posterior import (
    concordance,
    concordance_p,
    contrast,
    holm,
    interaction_p,
    pooled_variance,
    residuals,
)

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
