"""Agents take turns in the wait queue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from functions.rules.pool.turns import next_turn
from state.entries import Rounds


def test_an_agents_experiments_wait_in_one_round_each() -> None:
    assert [next_turn(Rounds(own, 0)).round for own in (None, 0, 1)] == [0, 1, 2]


def test_an_agent_that_comes_late_joins_the_round_that_is_served() -> None:
    assert next_turn(Rounds(None, 7)).round == 7
    assert next_turn(Rounds(3, 7)).round == 7


@given(own=st.none() | st.integers(0, 1000), served=st.integers(0, 1000))
def test_no_turn_is_over_or_shared_with_an_earlier_one_of_the_same_agent(
    own: int | None, served: int
) -> None:
    turn = next_turn(Rounds(own, served))

    assert turn.round >= served
    assert own is None or turn.round > own
    assert turn.rounds == Rounds(own, served)
