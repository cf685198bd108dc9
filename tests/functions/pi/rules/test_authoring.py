"""Prices of requests to language models, and pauses before a request is sent again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.pi.rules.authoring import (
    LIST_PRICES,
    MOST_COUNTED,
    MOST_TRIES,
    Price,
    RequestBackoff,
    UsedTokens,
    counted,
    micro_usd,
    most_used,
    pause_s,
    price_of,
)

PRICE = Price(read=2.0, written=10.0, cached=0.2, cache_written=2.5)
COUNTS = st.integers(0, 100_000)


def test_each_kind_of_token_has_its_price() -> None:
    assert micro_usd(UsedTokens(1000, 100, 500, 200), PRICE) == 2000 + 1000 + 100 + 500


@pytest.mark.parametrize(
    ("model", "known_as"),
    [
        ("claude-sonnet-5", "claude-sonnet-5"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("gpt-6.1-terra-2026-10-26", "gpt-6.1-terra"),
        ("models/gemini-3.8-flash", "gemini-3.8-flash"),
        ("claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("claude-sonnet-5-latest", None),
        ("my-model", None),
    ],
)
def test_a_dated_name_has_the_price_of_the_model(model: str, known_as: str | None) -> None:
    expected = None if known_as is None else LIST_PRICES[known_as]
    assert price_of(model, None) == expected


def test_a_given_price_comes_before_the_list() -> None:
    assert price_of("claude-sonnet-5", "1/4") == Price(1.0, 4.0, 1.0, 1.25)


@given(st.text(max_size=300), COUNTS, st.sampled_from([PRICE, *LIST_PRICES.values()]), st.data())
def test_no_request_costs_more_than_held(sent: str, written: int, price: Price, data: st.DataObject) -> None:
    most = most_used(sent, written)
    read = data.draw(st.integers(0, most.cache_written))
    cached = data.draw(st.integers(0, most.cache_written - read))
    used = UsedTokens(read, written, cached, most.cache_written - read - cached)
    assert used.tokens <= most.tokens
    assert micro_usd(used, price) <= micro_usd(most, price)


@pytest.mark.parametrize("told", [None, -1, True, 1.5, "7", MOST_COUNTED + 1, [3]])
def test_what_is_no_count_is_not_believed(told: object) -> None:
    assert counted(told) is None


BACKOFF = RequestBackoff(first_s=1.0, longest_s=6.0)
DRAWN = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(("tries", "longest"), [(1, 1), (2, 2), (3, 4), (4, 6)])
@given(drawn=DRAWN)
def test_pauses_double_up_to_the_longest_and_differ(tries: int, longest: float, drawn: float) -> None:
    found = pause_s(tries, None, 1000, drawn, BACKOFF)
    assert found is not None
    assert longest / 2 <= found <= longest


@given(
    tries=st.integers(1, MOST_TRIES), asked=st.none() | st.floats(0, 1e9), left=st.floats(-5, 60), drawn=DRAWN
)
def test_no_pause_outlasts_the_time_left(tries: int, asked: float | None, left: float, drawn: float) -> None:
    found = pause_s(tries, asked, left, drawn, BACKOFF)
    assert found is None or 0 <= found < left
