"""Workers change their population until membership is what the targets say, and never more than that."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.rules.beliefs.allocation import population_for, steadied

TARGETS = st.dictionaries(st.sampled_from("ABCDEF"), st.integers(0, 12), min_size=1)


def round_of(members: dict[int, str | None], targets: dict[str, int], rng: Random) -> int:
    """Each worker asks once, in any order; how many moved."""
    moved = 0
    for worker in rng.sample(sorted(members), len(members)):
        before = members[worker]
        members[worker] = population_for(before, targets, assigned_of(members))
        moved += before is not None and members[worker] != before
    return moved


def assigned_of(members: dict[int, str | None]) -> Counter[str]:
    return Counter(name for name in members.values() if name is not None)


def drawn_targets(workers: int, rng: Random) -> dict[str, int]:
    """Any targets that add up to the workers, some populations ended or new."""
    names = rng.sample("ABCDEFGHIJ", rng.randint(1, 10))
    return dict.fromkeys(names, 0) | Counter(rng.choices(names, k=workers))


@pytest.mark.parametrize("seed", range(10))
def test_over_500_results_membership_is_what_the_targets_say_one_round_after_every_change(seed: int) -> None:
    rng = Random(seed)
    members: dict[int, str | None] = dict.fromkeys(range(60))
    results, changes = 0, 0
    while results < 500:
        for worker in rng.sample(sorted(members), rng.randint(0, 5)):
            del members[worker]
        joining = range(max(members) + 1, max(members) + 1 + rng.randint(0, 5))
        members |= dict.fromkeys(joining)
        targets = drawn_targets(len(members), rng)

        round_of(members, targets, rng)

        results, changes = results + len(members), changes + 1
        assert assigned_of(members) == +Counter(targets)
    assert changes >= 8


@given(TARGETS, st.lists(st.sampled_from("ABCDEF"), max_size=60), st.integers(0, 99))
def test_nobody_moves_twice_and_no_more_than_are_missing_elsewhere(
    targets: dict[str, int], start: list[str], seed: int
) -> None:
    members: dict[int, str | None] = dict(enumerate(start))
    ended = sum(name not in targets for name in start)
    assigned = assigned_of(members)
    surplus = sum(max(0, assigned[name] - targets[name]) for name in targets)

    first = round_of(members, targets, Random(seed))
    again = round_of(members, targets, Random(seed + 1))

    assert first <= ended + surplus
    # workers of populations that ended may have filled others beyond their targets: those leave in the second round
    assert again <= surplus
    assert round_of(members, targets, Random(seed + 2)) == 0


def test_a_newcomer_joins_the_population_that_lacks_most() -> None:
    assert population_for(None, {"A": 5, "B": 9, "C": 3}, {"A": 1, "B": 4, "C": 3}) == "B"


def test_of_equal_lacks_the_larger_target_then_the_lower_id_comes_first() -> None:
    assert population_for(None, {"A": 2, "B": 9, "C": 9}, {"B": 7, "C": 7}) == "B"
    assert population_for(None, {"D": 2, "C": 2}, {}) == "C"


def test_a_worker_stays_where_it_is_needed_though_another_lacks_more() -> None:
    assert population_for("A", {"A": 3, "B": 9}, {"A": 3, "B": 1}) == "A"


def test_a_worker_stays_where_there_are_too_many_while_no_other_lacks_one() -> None:
    assert population_for("A", {"A": 3, "B": 2}, {"A": 5, "B": 2}) == "A"


def test_the_workers_of_a_population_that_ended_find_another() -> None:
    assert population_for("Z", {"A": 3, "B": 2}, {"A": 1, "B": 1, "Z": 4}) == "A"
    assert population_for("Z", {"A": 3}, {"A": 7, "Z": 1}) == "A"


def test_without_populations_there_is_none_to_join() -> None:
    assert population_for("A", {}, {"A": 1}) is None
    assert population_for(None, {}, {}) is None


# -- targets that hardly change


def test_a_change_by_one_worker_moves_nobody() -> None:
    assert steadied({"A": 5, "B": 5, "C": 5}, {"A": 6, "B": 4, "C": 5}) == {"A": 5, "B": 5, "C": 5}


@pytest.mark.parametrize(
    "wanted",
    [
        {"A": 7, "B": 3, "C": 0},  # by two
        {"A": 5, "B": 4, "C": 1},  # a first worker
        {"A": 6, "B": 5, "C": 0},  # one more in all
        {"A": 6, "B": 4},  # a population ended
        {"A": 5, "B": 4, "D": 1},  # another began
    ],
)
def test_other_changes_count(wanted: dict[str, int]) -> None:
    assert steadied({"A": 5, "B": 5, "C": 0}, wanted) == wanted


@given(TARGETS, TARGETS)
def test_the_targets_in_force_are_never_further_than_one_from_those_wanted(
    before: dict[str, int], wanted: dict[str, int]
) -> None:
    found = steadied(before, wanted)

    assert found.keys() == wanted.keys()
    assert sum(found.values()) == sum(wanted.values())
    assert all(abs(found[name] - wanted[name]) <= 1 for name in wanted)
