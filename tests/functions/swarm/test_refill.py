"""swarm::refill changes many long queues one after the other, and a few short ones at once."""

from __future__ import annotations

from functions.swarm.configs import LETTERS_AT_ONCE, MOST_QUEUES, _as_many_as_fit
from state.swarm_facts import Replenishing


def parts(sizes: list[int]) -> list[int]:
    """How many queues each commit changes, of populations with so many letters of new configs."""
    left = iter(
        {
            f"pop_{n}": Replenishing([], [("x" * size, 0.5)] * bool(size)) for n, size in enumerate(sizes)
        }.items()
    )
    return [*iter(lambda: len(_as_many_as_fit(left)), 0)]


def test_a_commit_changes_few_long_queues_or_many_short_ones_and_any_that_stay_as_they_are() -> None:
    assert parts([20_000] * 20) == [20]
    assert parts([LETTERS_AT_ONCE // 2 + 1] * 5) == [2, 2, 1]
    assert parts([1] * 1001) == [MOST_QUEUES, MOST_QUEUES, 1]
    assert parts([0] * 2 * MOST_QUEUES + [1] * 9) == [2 * MOST_QUEUES + 9]
