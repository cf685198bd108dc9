"""Which discards are near misses."""

from __future__ import annotations

import pytest

from functions.rules.keeps.near import near_margin, near_scores
from functions.rules.keeps.noise import Noise
from functions.rules.opening import first_policy
from state.facts import Spread
from state.settings import Settings


@pytest.mark.parametrize(
    ("of_policy", "noise", "margin"),
    [
        (None, None, 0.002),
        (None, Noise(0.0006, 9), 0.002),
        (None, Noise(0.02, 2), 0.02 * 2**0.5),
        (0.0, Noise(0.02, 2), 0.0),
        (0.002, Noise(0.02, 2), 0.002),
        (0.5, None, 0.5),
    ],
)
def test_the_margin_is_the_policy_s_else_one_sigma_of_a_difference_and_at_least_two_thousandths(
    of_policy: float | None, noise: Noise | None, margin: float
) -> None:
    assert near_margin(of_policy, noise) == pytest.approx(margin)


def test_the_band_of_near_misses_grows_with_the_noise() -> None:
    narrow, wide = (near_scores(1.0, "minimize", None, spread) for spread in (Spread(), Spread(0.0008, 2)))

    assert narrow == pytest.approx((0.998, 1.002))
    assert wide == pytest.approx((1 - 0.02 * 2**0.5, 1 + 0.02 * 2**0.5))


def test_a_lab_s_setting_gives_new_tags_a_margin_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    unset = Settings().near_miss_threshold
    monkeypatch.setenv("NEAR_MISS_THRESHOLD", "0.002")
    given = Settings().near_miss_threshold

    margins = [first_policy(each, 3).near_miss_margin for each in (unset, given)]

    assert margins == [None, 0.002]
