"""When a provider that is busy or away is asked again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.rules.authoring.retrying import MOST_TRIES, Backoff, pause_s

BACKOFF = Backoff(first_s=1.0, longest_s=6.0)
DRAWN = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(("tries", "longest"), [(1, 1), (2, 2), (3, 4), (4, 6)])
@given(drawn=DRAWN)
def test_pauses_double_up_to_the_longest_and_differ(tries: int, longest: float, drawn: float) -> None:
    found = pause_s(tries, None, 1000, drawn, BACKOFF)

    assert found is not None
    assert longest / 2 <= found <= longest


@given(asked=st.floats(0, 500), drawn=DRAWN)
def test_what_the_provider_asks_is_waited_and_a_little_more(asked: float, drawn: float) -> None:
    found = pause_s(1, asked, 1000, drawn, BACKOFF)

    assert found is not None
    assert asked <= found <= asked + 0.5


@given(
    tries=st.integers(1, MOST_TRIES), asked=st.none() | st.floats(0, 1e9), left=st.floats(-5, 60), drawn=DRAWN
)
def test_no_pause_is_longer_than_the_time_that_is_left(
    tries: int, asked: float | None, left: float, drawn: float
) -> None:
    found = pause_s(tries, asked, left, drawn, BACKOFF)

    assert found is None or 0 <= found < left


def test_there_is_an_end() -> None:
    assert pause_s(MOST_TRIES, None, 1000, 0.5, BACKOFF) is None
    assert pause_s(MOST_TRIES, 0.0, 1000, 0.5, BACKOFF) is None
