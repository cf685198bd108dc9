"""Digits of a value in a sentence."""

from __future__ import annotations

import pytest

from functions.formats.digits import figure


@pytest.mark.parametrize(
    ("value", "sigma", "told"),
    [
        *((0.9951234567, None, "0.995123"), (0.5, None, "0.5"), (0.5, 0.0, "0.5")),
        *((0.9951234567, 0.0012, "0.9951"), (0.5, 0.0012, "0.5000"), (1234.5, 30.0, "1234")),
        (0.99512345678, 1e-9, "0.995123"),
    ],
)
def test_a_figure_has_the_digits_of_known_noise(value: float, sigma: float | None, told: str) -> None:
    assert figure(value, sigma) == told
