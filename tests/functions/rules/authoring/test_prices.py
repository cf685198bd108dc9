"""What a request costs, and what it may cost at most."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.rules.authoring.prices import (
    LIST_PRICES,
    MOST_COUNTED,
    Price,
    Used,
    counted,
    micro_usd,
    most_used,
    price_of,
)

PRICE = Price(read=2.0, written=10.0, cached=0.2, cache_written=2.5)
COUNTS = st.integers(0, 100_000)


def test_each_kind_of_token_has_its_price() -> None:
    assert micro_usd(Used(1000, 100, 500, 200), PRICE) == 2000 + 1000 + 100 + 500


def test_a_fraction_of_a_millionth_is_rounded_up() -> None:
    assert micro_usd(Used(0, 0, cached=1), PRICE) == 1


def test_a_price_that_is_not_known_costs_nothing() -> None:
    assert micro_usd(Used(1000, 1000), None) == 0


@pytest.mark.parametrize("price", LIST_PRICES.values(), ids=LIST_PRICES)
def test_a_list_price_is_dearer_for_what_is_written_and_cheaper_from_the_cache(price: Price) -> None:
    assert price.cached < price.read <= price.cache_written < price.written


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

    assert price_of(model, None, None) == expected


def test_a_given_price_comes_before_the_list() -> None:
    assert price_of("claude-sonnet-5", 1.0, 4.0) == Price(1.0, 4.0, 1.0, 1.25)


@given(st.text(max_size=300), COUNTS, st.sampled_from([PRICE, *LIST_PRICES.values()]), st.data())
def test_no_request_costs_more_than_is_reserved_for_it(
    sent: str, written: int, price: Price, data: st.DataObject
) -> None:
    most = most_used(sent, written)
    read = data.draw(st.integers(0, most.cache_written))
    cached = data.draw(st.integers(0, most.cache_written - read))
    used = Used(read, written, cached, most.cache_written - read - cached)

    assert used.tokens <= most.tokens
    assert micro_usd(used, price) <= micro_usd(most, price)


@pytest.mark.parametrize("told", [None, -1, True, 1.5, "7", MOST_COUNTED + 1, [3]])
def test_what_is_no_count_is_not_believed(told: object) -> None:
    assert counted(told) is None


@pytest.mark.parametrize("told", [0, 7, MOST_COUNTED])
def test_a_count_is(told: int) -> None:
    assert counted(told) == told
