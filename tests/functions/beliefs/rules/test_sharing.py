"""How often the workers of a hypothesis run its reference config."""

from __future__ import annotations

from typing import Any

import pytest

from functions.beliefs.rules.sharing import shared_out
from functions.experiments.rules.opening import swarm_policy, swarm_tag
from state.belief_facts import BeliefFacts
from state.policy import Policy
from state.records import Hypothesis
from tests.functions.beliefs.rules.sample import REFERENCE, influence
from tests.functions.swarm.rules.sample import LR


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
