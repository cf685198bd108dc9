"""Whether a confirmed draft says more than the version that stands."""

from __future__ import annotations

import pytest

from functions.rules.pipeline.foreseeing import confirmed_version, is_news
from state.program_facts import ProgramVersion
from state.records import Confirmed


def version(results: int, strategy: str, at: float, reason: str = "50 results came") -> ProgramVersion:
    return ProgramVersion(1, at, "templates", reason, results, strategy, "text", "digest")


DRAFTED = version(110, "exploit", 500.0, "drafted ahead as t-spec-1")
CONFIRMED = confirmed_version(DRAFTED, Confirmed(spec_id="t-spec-1", at=1000.0, strategy="falsify"))
"""Drafted after 110 results, and confirmed as most workers had begun to falsify."""


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        (version(100, "falsify", 400.0), True),
        (version(115, "exploit", 900.0), True),
        (version(115, "falsify", 900.0), False),
        (version(121, "converge", 1001.0), False),
    ],
    ids=[
        "written before the draft",
        "with the strategy of before",
        "with the strategy of now",
        "written after the confirmation",
    ],
)
def test_a_confirmed_draft_is_news_over(current: ProgramVersion, expected: bool) -> None:
    assert is_news(CONFIRMED, current) is expected


def test_an_adopted_draft_is_no_news() -> None:
    assert not is_news(CONFIRMED, CONFIRMED)
