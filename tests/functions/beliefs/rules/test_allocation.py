"""Workers go where the next result is worth most; none is lost or made up, and no active hypothesis starves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.beliefs.rules.allocation import (
    MOONSHOT,
    credibility,
    has_converged,
    information_value,
    minimum,
    population_for,
    steadied,
    targets,
)
from functions.beliefs.rules.sharing import shared_out
from functions.experiments.rules.opening import swarm_policy, swarm_tag
from state.belief_facts import BeliefFacts
from state.policy import Policy
from state.records import Hypothesis
from tests.functions.beliefs.rules.sample import REFERENCE, believed, claim, claims, influence
from tests.functions.swarm.rules.sample import LR

WORKERS = st.integers(0, 400)
TURNS = st.integers(0, 50)


def calm_targets(
    hypotheses: list[Hypothesis], workers: int, temperature: float = 1.0, converged: Collection[str] = ()
) -> dict[str, int]:
    """Targets without moonshots."""
    with patch("functions.beliefs.rules.allocation.MOONSHOT_SHARE", 0):
        return targets(hypotheses, workers, temperature, converged=converged)


def needed(hypotheses: list[Hypothesis]) -> int:
    return sum(map(minimum, hypotheses))


def converged_of(hypotheses: list[Hypothesis], some: set[int]) -> list[str]:
    return [h.hypothesis_id for n, h in enumerate(hypotheses) if n in some]


def test_a_model_s_proposal_becomes_credible_in_a_straight_line_over_12_results() -> None:
    for results, expected in {0: 0.25, 4: 0.5, 8: 0.75, 12: 1.0, 200: 1.0}.items():
        assert credibility(claim(source="llm_proposed", n_experiments=results)) == pytest.approx(expected)
        for source in ("operator", "default"):
            assert credibility(claim(source=source, n_experiments=results)) == 1


def test_information_value_is_the_product_of_its_four_parts() -> None:
    found = believed(0.8, 4, source="llm_proposed", importance=0.6, allocation_penalty=0.5)
    assert information_value(found) == pytest.approx(4 * 0.8 * 0.2 * 0.6 * 0.5 * 0.5)


@given(claims(), WORKERS, TURNS, st.sets(st.integers(0, 11)), st.floats(0.05, 5))
def test_targets_are_all_workers_with_the_minimum_where_they_suffice_and_more_where_it_is_worth_more(
    hypotheses: list[Hypothesis], more: int, turn: int, some: set[int], temperature: float
) -> None:
    converged = converged_of(hypotheses, some)
    few = targets(hypotheses, more, temperature, converged=converged, turn=turn)
    enough = targets(hypotheses, needed(hypotheses) + more, temperature, converged=converged, turn=turn)
    alike = targets(hypotheses, needed(hypotheses) + more, turn=turn)

    assert (sum(few.values()), sum(enough.values())) == (more, needed(hypotheses) + more)
    assert min(few.values()) >= 0
    assert few.keys() - {MOONSHOT} == enough.keys() - {MOONSHOT} == {h.hypothesis_id for h in hypotheses}
    for one in hypotheses:
        assert enough[one.hypothesis_id] >= minimum(one)
        for other in hypotheses:
            if minimum(one) == minimum(other) and information_value(one) > information_value(other) + 1e-6:
                assert alike[one.hypothesis_id] >= alike[other.hypothesis_id]


def test_a_claim_that_is_given_up_has_no_workers_and_alone_leaves_none_to_share() -> None:
    for verdict in ("refuted", "irrelevant"):
        settled = claim("hyp_000002", settled=verdict)
        assert calm_targets([claim(), settled], 8) == {"hyp_000001": 8}
        assert targets([settled], 8) == {}


@given(claims(2), st.integers(1, 40))
def test_with_too_few_workers_all_have_their_turn(hypotheses: list[Hypothesis], workers: int) -> None:
    workers = min(workers, needed(hypotheses) - 1)
    rounds = [targets(hypotheses, workers, turn=turn) for turn in range(len(hypotheses))]
    for hypothesis in hypotheses:
        served = [found[hypothesis.hypothesis_id] for found in rounds]
        assert any(served)
        assert all(had == 0 or had >= min(minimum(hypothesis), workers) for had in served)
    assert all(sum(found.values()) == workers for found in rounds)


def test_with_too_few_workers_the_most_valuable_come_first() -> None:
    four = [believed(p, name=f"hyp_{n:06x}") for n, p in enumerate((0.9, 0.5, 0.7, 0.8))]
    first, second = (targets(four, 7, turn=turn) for turn in (0, 1))
    assert first == {"hyp_000001": 4, "hyp_000002": 3, "hyp_000000": 0, "hyp_000003": 0}
    assert second == {"hyp_000001": 0, "hyp_000002": 0, "hyp_000000": 3, "hyp_000003": 4}


def test_moonshots_have_a_twentieth_of_the_workers() -> None:
    assert targets([claim()], 60)[MOONSHOT] == 3


def test_a_hypothesis_converges_at_a_support_of_085_after_15_results() -> None:
    assert [has_converged(*known) for known in ((0.85, 15), (0.849, 15), (0.99, 14))] == [True, False, False]


def test_the_converged_one_has_seven_tenths_of_the_workers() -> None:
    three = [believed(p, name=f"hyp_{n:06x}") for n, p in enumerate((0.9, 0.5, 0.5))]
    found = calm_targets(three, 60, converged=["hyp_000000"])
    assert found == {"hyp_000000": 42, "hyp_000001": 9, "hyp_000002": 9}


def test_most_workers_test_the_claim_of_which_least_is_known() -> None:
    published = {"hyp_000084": 0.84, "hyp_000051": 0.51, "hyp_000012": 0.12, "hyp_000028": 0.28}
    found = targets([believed(p, name=name) for name, p in published.items()], 40)
    assert sorted(published, key=lambda name: -found[name])[0] == "hyp_000051"
    assert found["hyp_000051"] > sum(found[name] for name in published) / 2


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


@given(TARGETS, st.lists(st.sampled_from("ABCDEF"), max_size=60), st.integers(0, 99))
def test_nobody_moves_twice_or_without_need_and_then_all_have_what_they_lack(
    targets: dict[str, int], start: list[str], seed: int
) -> None:
    members: dict[int, str | None] = dict(enumerate(start)) | {100: None}
    ended = sum(name not in targets for name in start)
    assigned = assigned_of(members)
    surplus = sum(max(0, assigned[name] - targets[name]) for name in targets)
    enough = {**targets, "A": targets.get("A", 0) + max(0, len(members) - sum(targets.values()))}

    first = round_of(members, targets, Random(seed))
    again = round_of(members, targets, Random(seed + 1))

    assert first <= ended + surplus
    # workers of populations that ended may have filled others beyond their targets: those leave in the second round
    assert again <= surplus
    assert round_of(members, targets, Random(seed + 2)) == 0
    round_of(members, enough, Random(seed))
    round_of(members, enough, Random(seed))
    assert sum(enough.values()) > len(members) or assigned_of(members) == +Counter(enough)


@pytest.mark.parametrize(
    ("now", "targets", "assigned", "joins"),
    [
        (None, {"A": 5, "B": 9, "C": 3}, {"A": 1, "B": 4, "C": 3}, "B"),  # which lacks most
        (None, {"A": 2, "B": 9, "C": 9}, {"B": 7, "C": 7}, "B"),  # of equal lacks the larger target
        (None, {"D": 2, "C": 2}, {}, "C"),  # and then the lower id
        ("A", {"A": 3, "B": 9}, {"A": 3, "B": 1}, "A"),  # is needed, though another lacks more
        ("A", {"A": 3, "B": 2}, {"A": 5, "B": 2}, "A"),  # too many, but no other lacks one
        ("Z", {"A": 3, "B": 2}, {"A": 1, "B": 1, "Z": 4}, "A"),  # its population has ended
        ("Z", {"A": 3}, {"A": 7, "Z": 1}, "A"),
    ],
)
def test_a_worker_joins_the_population_that_lacks_most_unless_its_own_needs_it(
    now: str | None, targets: dict[str, int], assigned: dict[str, int], joins: str
) -> None:
    assert population_for(now, targets, assigned) == joins


@pytest.mark.parametrize(
    ("wanted", "counts"),
    [
        ({"A": 6, "B": 4, "C": 0}, False),
        ({"A": 7, "B": 3, "C": 0}, True),  # by two
        ({"A": 5, "B": 4, "C": 1}, True),  # a first worker
        ({"A": 6, "B": 5, "C": 0}, True),  # one more in all
        ({"A": 6, "B": 4}, True),  # a population ended
        ({"A": 5, "B": 4, "D": 1}, True),  # another began
    ],
)
def test_a_change_by_one_worker_moves_nobody(wanted: dict[str, int], counts: bool) -> None:
    before = {"A": 5, "B": 5, "C": 0}
    assert steadied(before, wanted) == (wanted if counts else before)


@given(TARGETS, TARGETS)
def test_targets_in_force_are_nearly_those_wanted(before: dict[str, int], wanted: dict[str, int]) -> None:
    found = steadied(before, wanted)
    assert found.keys() == wanted.keys()
    assert sum(found.values()) == sum(wanted.values())
    assert all(abs(found[name] - wanted[name]) <= 1 for name in wanted)


def runs_for_a_reference(h: Hypothesis) -> int:
    tag: dict[str, Any] = {
        "now": 9.0,
        "tag": swarm_tag("swarm"),
        "policy": swarm_policy(Policy()),
        "version": 1,
    }
    counts: dict[str, Any] = {"active_workers": 4, "results": 0, "allocated_at": 0, "allocations": 0}
    facts = BeliefFacts(**tag, **counts, dimensions=[LR], open=[h], populations={})
    return shared_out(facts, [h], REFERENCE)[0].tests_for_reference


@pytest.mark.parametrize(
    ("wins", "losses", "constraint", "runs"),
    [
        (0, 0, {}, 1),
        (4, 5, {}, 1),  # too few to tell
        (8, 4, {}, 1),
        (4, 8, {}, 3),
        (4, 8, {"LR": {"max": 0.001}}, 1),  # pairs may refute it
    ],
)
def test_reference_runs_are_fewer_once_pairs_will_hardly_support_that_a_dimension_matters(
    wins: int, losses: int, constraint: dict[str, object], runs: int
) -> None:
    counts = {"alpha": 2.0 + wins, "beta": 2.0 + losses, "n_experiments": wins + losses}
    h = influence(dimensions=["LR"], config_constraint=constraint, **counts)
    assert runs_for_a_reference(h) == runs
