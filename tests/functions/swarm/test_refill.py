"""swarm::refill changes many long queues one after the other, and a few short ones at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from functions.swarm.configs import LETTERS_AT_ONCE, MOST_QUEUES, _as_many_as_fit
from state.swarm_facts import Replenishing

SIZES = st.lists(st.integers(0, LETTERS_AT_ONCE), max_size=12)


def changes(sizes: list[int]) -> dict[str, Replenishing]:
    """Of populations, each with so many letters of configs that join its queue."""
    return {f"pop_{n}": Replenishing([], [("x" * size, 0.5)]) for n, size in enumerate(sizes)}


def parts(sizes: list[int]) -> list[dict[str, Replenishing]]:
    """What each commit takes of them."""
    left = iter(changes(sizes).items())
    return [*iter(lambda: _as_many_as_fit(left), {})]


@given(SIZES)
def test_every_population_is_changed_once_and_no_commit_is_much_too_long(sizes: list[int]) -> None:
    found = parts(sizes)
    assert [name for part in found for name in part] == [*changes(sizes)]
    for part in found:
        letters = [len(text) for change in part.values() for text, _ in change.added]
        assert sum(letters[:-1]) <= LETTERS_AT_ONCE


def test_what_a_usual_swarm_waits_for_is_changed_in_one_commit() -> None:
    assert len(parts([20_000] * 20)) == 1
    assert [len(part) for part in parts([1] * 1001)] == [MOST_QUEUES, MOST_QUEUES, 1]


def test_queues_that_stay_as_they_are_take_no_room_in_a_commit() -> None:
    full = {f"full_{n}": Replenishing([], []) for n in range(2 * MOST_QUEUES)}
    assert len(_as_many_as_fit(iter((full | changes([1] * 9)).items()))) == 2 * MOST_QUEUES + 9
