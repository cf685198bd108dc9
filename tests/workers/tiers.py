"""Which tiers of isolation this machine has: the tests of the others are skipped on a laptop and fail in CI."""

from __future__ import annotations

import functools
import os

import pytest

from functions.kernel.process.remote import Isolation
from state.errors import Invalid
from workers.attempt.isolation import Tier, chosen


def needs(tier: Tier) -> Tier:
    """The tier, if it works here or this is CI; else the test is skipped."""
    if (problem := _problem(tier)) is not None and not os.environ.get("CI"):
        pytest.skip(problem)
    return tier


@functools.cache
def _problem(tier: Isolation) -> str | None:
    try:
        chosen(tier)
    except Invalid as problem:
        return problem.detail
    return None
