"""Short numbers: floats of at most 3 significant digits, as published workers write them into a train.py."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

DIGITS = 3


def short(value: float) -> float:
    """The short number next to a finite one."""
    return _rounded(value, ROUND_HALF_EVEN)


def is_short(value: float) -> bool:
    """Whether 3 significant digits say it exactly."""
    return short(value) == value


def short_within(low: float, high: float) -> tuple[float, float]:
    """The lowest and the highest short number of a range; the first is above the second where it holds none."""
    return _rounded(low, ROUND_CEILING), _rounded(high, ROUND_FLOOR)


def _rounded(value: float, rounding: str) -> float:
    # of its shortest text: 0.1 is 0.1, and not the binary number a little above it
    return float(Context(prec=DIGITS, rounding=rounding).plus(Decimal(repr(value))))
