"""Digits of a value, its gain and its noise: the same for all three, as many as the noise leaves meaningful."""

from __future__ import annotations

import math

DECIMALS = 6
"""Decimals while the noise is not known; never more."""


def figure(value: float, sigma: float | None) -> str:
    """A value in a sentence: with the digits of the noise, or with six significant ones while there is none."""
    return f"{value:.{decimals(sigma)}f}" if sigma else f"{value:.6g}"


def decimals(sigma: float | None) -> int:
    """Two digits of the noise, a standard deviation."""
    return min(DECIMALS, max(0, 1 - math.floor(math.log10(sigma)))) if sigma else DECIMALS
