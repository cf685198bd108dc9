"""Which configs of a queue still wait after much was learned."""

from __future__ import annotations

from random import Random

from functions.rules.swarm.handing_out import Waiting, lost
from functions.rules.swarm.populations import everyone
from functions.rules.swarm.replenishing import replenished
from functions.rules.swarm.shapes import drawn_config
from state.policy import Policy
from state.records import Experiment, Tag
from state.swarm_facts import RefillFacts
from tests.functions.rules.swarm.sample import INVESTIGATE, SOME

CONFIG = drawn_config(SOME, INVESTIGATE, Random(3))
MANY = 1000
"""Results of the tag: far more than workers are active."""


def facts(*waiting: str) -> RefillFacts:
    return RefillFacts(
        now=1.0,
        tag=Tag(name="swarm", branch="swarm/swarm", created_at=0.0, kept=MANY),
        policy=Policy(),
        policy_version=1,
        dimensions=SOME,
        dimensions_version=1,
        active_workers=10,
        best=None,
        newest_at=0.0,
        populations=[],
        assigned={},
        observed=[],
        waiting={everyone("swarm").population_id: waiting},
        best_config={},
    )


def test_a_config_that_was_proposed_before_much_was_learned_leaves_the_queue() -> None:
    old = Waiting(CONFIG, 0.5, "random", results=MANY - 11).text(1)
    new = Waiting(CONFIG, 0.5, "random", results=MANY - 10).text(2)

    assert replenished(facts(old, new), everyone("swarm"), Random(1)).dropped == [old]


def test_the_config_of_a_lost_run_waits_however_much_was_learned_since() -> None:
    run = Experiment.model_validate(
        {
            "experiment_id": "swarm-1",
            "tag": "swarm",
            "number": 1,
            "status": "running",
            "config_delta": CONFIG,
            "proposal_priority": 0.7,
            "hypothesis": "h",
            "category": "hyperparams",
            "commit_sha": "abc1234",
            "diff_summary": "LR",
            "description": "LR",
            "registered_at": 0.0,
        }
    )
    returned = lost(run, "its worker is silent").returned
    assert returned is not None

    assert replenished(facts(returned), everyone("swarm"), Random(1)).dropped == []
