"""How often the workers of a hypothesis run its reference config."""

from __future__ import annotations

import pytest

from functions.beliefs.rules.sharing import shared_out
from functions.experiments.rules.opening import swarm_policy, swarm_tag
from state.belief_facts import BeliefFacts
from state.policy import Policy
from state.records import Hypothesis
from tests.functions.beliefs.rules.sample import REFERENCE, influence
from tests.functions.swarm.rules.sample import LR


def runs_for_a_reference(h: Hypothesis) -> int:
    facts = BeliefFacts(
        now=9.0,
        tag=swarm_tag("swarm"),
        policy=swarm_policy(Policy()),
        dimensions=[LR],
        version=1,
        open=[h],
        active_workers=4,
        populations={},
        results=0,
        allocated_at=0,
        allocations=0,
    )
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
    h = influence(
        dimensions=["LR"],
        config_constraint=constraint,
        alpha=2.0 + wins,
        beta=2.0 + losses,
        n_experiments=wins + losses,
    )

    assert runs_for_a_reference(h) == runs
