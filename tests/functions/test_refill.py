"""swarm::refill changes many long queues one after the other, and a few short ones at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from functions.swarm.refill import LETTERS_AT_ONCE, _in_parts
from state.swarm_facts import Replenishing

SIZES = st.lists(st.integers(0, LETTERS_AT_ONCE), max_size=12)


def changes(sizes: list[int]) -> dict[str, Replenishing]:
    """Of populations, each with so many letters of configs that join its queue."""
    return {f"pop_{n}": Replenishing([], [("x" * size, 0.5)]) for n, size in enumerate(sizes)}


@given(SIZES)
def test_every_population_is_changed_once_in_its_turn_and_no_move_is_much_too_long(sizes: list[int]) -> None:
    parts = [*_in_parts(changes(sizes))]

    assert [name for part in parts for name in part] == [*changes(sizes)]
    for part in parts:
        letters = [len(text) for change in part.values() for text, _ in change.added]
        assert sum(letters[:-1]) <= LETTERS_AT_ONCE


def test_what_a_usual_swarm_waits_for_is_changed_in_one_move() -> None:
    assert len([*_in_parts(changes([20_000] * 20))]) == 1
