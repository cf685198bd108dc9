"""Keep rules: what is lower is kept; confirmed, it has to be lower again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.experiments.rules.keeping import (
    KEEP_RULES,
    SeedScores,
    is_confirmed,
    plausible_margin,
    winner,
)

SIGMA = 0.0006
VALUES = st.floats(0.9, 1.1)
SIGMAS = st.none() | st.floats(0, 0.1)
STRICT, CONFIRMED = KEEP_RULES["strict"], KEEP_RULES["confirmed"]
BEST = SeedScores("best", 0.9700, (0.9706,))


@given(VALUES, VALUES, SIGMAS)
def test_both_rules_discard_the_same_runs(value: float, best: float, sigma: float | None) -> None:
    candidate, incumbent = SeedScores("new", value), SeedScores("best", best)
    strict, confirmed = (rule(candidate, incumbent, sigma, None) for rule in (STRICT, CONFIRMED))
    assert (strict == "discard") == (confirmed == "discard") == (value >= best)


@pytest.mark.parametrize(
    ("first", "best", "sigma", "plausible", "verdict"),
    [
        (0.97, None, None, None, "keep"),
        (BEST.first - 3.99 * SIGMA, BEST, SIGMA, None, "provisional"),
        (BEST.first - 4.01 * SIGMA, BEST, SIGMA, None, "keep"),
        (0.4, BEST, SIGMA, 0.5, "provisional"),
        (0.5, BEST, SIGMA, 0.5, "keep"),
        (0.5, BEST, None, None, "provisional"),
    ],
    ids=[
        *("the first run of a tag", "just within four sigmas", "beyond four sigmas"),
        *("far beyond all earlier gains", "as far as is plausible", "while nobody knows the noise"),
    ],
)
def test_a_win_is_kept_at_once_or_runs_again(
    first: float, best: SeedScores | None, sigma: float | None, plausible: float | None, verdict: str
) -> None:
    assert CONFIRMED(SeedScores("new", first), best, sigma, plausible) == verdict
    assert STRICT(SeedScores("new", first), best, sigma, plausible) == "keep"


def test_ten_keeps_show_which_margin_is_plausible() -> None:
    assert (plausible_margin(0.1, 9), plausible_margin(0.1, 10)) == (None, 0.5)


LONGER = SeedScores("best", 0.9700, (0.9706, 0.5))


# the standard error of a difference of two means of two runs each is sigma
@pytest.mark.parametrize(
    ("new", "best", "sigma", "confirmed"),
    [
        ((0.9690, 0.9698), BEST, SIGMA, True),
        ((0.9690, 0.9715), BEST, SIGMA, False),
        ((BEST.first - 2 * 0.51 * SIGMA, *BEST.fresh), BEST, SIGMA, True),
        ((BEST.first - 2 * 0.49 * SIGMA, *BEST.fresh), BEST, SIGMA, False),
        ((0.9690, 0.9698), LONGER, SIGMA, True),
        ((0.9690, 0.9715), LONGER, SIGMA, False),
        ((BEST.first, *BEST.fresh), BEST, 0.0, False),
        ((BEST.first, *BEST.fresh), BEST, None, False),
    ],
    ids=[
        *("a gain that is there again", "a lucky run", "means half a standard error apart", "means nearer"),
        *("a run that only one side has", "a lucky run beside one that only one side has"),
        *("equal without noise", "equal with an unknown noise"),
    ],
)
def test_a_win_is_confirmed(
    new: tuple[float, float], best: SeedScores, sigma: float | None, confirmed: bool
) -> None:
    assert is_confirmed(SeedScores("new", new[0], new[1:]), best, sigma) == confirmed


def test_nothing_is_settled_before_everybody_has_run_again() -> None:
    new = SeedScores("new", 0.9690)
    with pytest.raises(ValueError, match="'new' and 'best' have to run again"):
        is_confirmed(new, BEST, SIGMA)
    with pytest.raises(ValueError, match="'new' and 'best' have to run again"):
        winner([new, SeedScores("other", 0.9691, (0.97,))], BEST, SIGMA)


def test_a_claim_rests_on_the_runs_that_chose_nothing() -> None:
    assert SeedScores("new", 0.96, (0.970, 0.972)).claimed == pytest.approx(0.971)
    assert SeedScores("new", 0.96).claimed == 0.96


def test_the_race_goes_to_the_best_mean_not_to_the_luckiest_first() -> None:
    lucky = SeedScores("lucky", 0.9680, (0.9710, 0.9705))
    steady = SeedScores("steady", 0.9690, (0.9688, 0.9692))
    incumbent = SeedScores("best", 0.9700, (0.9706, 0.9704))

    assert winner([lucky, steady], incumbent, SIGMA) == steady
    assert winner([lucky], incumbent, SIGMA) == lucky
    assert winner([SeedScores("lucky", 0.9680, (0.9730, 0.9705))], incumbent, SIGMA) is None
    assert winner([], incumbent, SIGMA) is None
