"""Which configs of a queue still wait after much was learned."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from functions.rules.swarm.handing_out import QueuedConfig, lost
from functions.rules.swarm.populations import Population, everyone
from functions.rules.swarm.refilling import observations_of, replenished
from functions.rules.swarm.shapes import Shape, drawn_config
from state.policy import Policy
from state.records import Best, Experiment, Tag, Value
from state.swarm_facts import Observed, RefillFacts
from tests.functions.rules.swarm.sample import INVESTIGATE, SOME

CONFIG = drawn_config(SOME, INVESTIGATE, Random(3))
EVERYONE = everyone("swarm")
MANY = 1000
"""Results of the tag: far more than workers are active."""


def facts(*waiting: str, population: Population = EVERYONE, best: Best | None = None) -> RefillFacts:
    return RefillFacts(
        now=1.0,
        tag=Tag(name="swarm", branch="swarm/swarm", created_at=0.0, kept=MANY),
        policy=Policy(),
        policy_version=1,
        dimensions=SOME,
        dimensions_version=1,
        active_workers=10,
        best=best,
        newest_at=0.0,
        populations=[],
        assigned={},
        observed=[],
        waiting={population.population_id: waiting},
        best_config={},
    )


def test_a_config_that_was_proposed_before_much_was_learned_leaves_the_queue() -> None:
    old = QueuedConfig(CONFIG, 0.5, "random", results=MANY - 11).text(1)
    new = QueuedConfig(CONFIG, 0.5, "random", results=MANY - 10).text(2)

    assert replenished(facts(old, new), everyone("swarm"), Random(1)).dropped == [old]


def test_a_config_near_a_best_that_is_no_more_leaves_the_queue_as_the_next_best_is_found() -> None:
    near = Population(
        "pop_1", "exploit", "hyp_1", "LR matters", target=1, shape=Shape("exploit", center=CONFIG)
    )
    old = QueuedConfig(CONFIG, 0.5, "random", results=MANY, around={**CONFIG, "LAYERS": 4}).text(1)
    new = QueuedConfig(CONFIG, 0.5, "random", results=MANY, around=CONFIG).text(2)
    now = replace(facts(old, new, population=near), best_config=CONFIG)

    change = replenished(now, near, Random(1))

    assert change.dropped == [old]
    assert all(QueuedConfig.read(text).around == CONFIG for text, _ in change.added)


def test_a_run_that_was_stopped_tells_the_sampler_nothing_of_its_config() -> None:
    whole = Observed(experiment_id="swarm-1", status="discard", config_delta=CONFIG, delta_bpb=-0.1)
    stopped = Observed(experiment_id="swarm-2", status="stopped", config_delta={**CONFIG, "DROPOUT": 0.5})
    going = Observed(experiment_id="swarm-3", status="running", config_delta=CONFIG)

    seen = observations_of(replace(facts(), observed=[whole, stopped, going]))

    assert [(o.config["DROPOUT"], o.value, o.pending) for o in seen] == [
        (CONFIG["DROPOUT"], -0.1, False),
        (CONFIG["DROPOUT"], None, True),
    ]


def test_a_lucky_run_is_the_best_of_a_tag_and_not_what_the_next_configs_are_near() -> None:
    near = Population("pop_1", "converge", "hyp_1", "LR matters", target=8, shape=Shape("converge"))
    rng = Random(5)
    good, lucky = {**CONFIG, "DROPOUT": 0.1}, {**CONFIG, "DROPOUT": 0.5}
    values = [(good, -0.1)] * 6 + [(lucky, -0.11), *[(lucky, 0.1)] * 3]
    values += [(drawn_config(SOME, INVESTIGATE, rng), 0.3 + rng.gauss(0, 0.01)) for _ in range(20)]
    ended = [
        Observed(experiment_id=f"swarm-{n}", status="discard", config_delta=config, delta_bpb=value)
        for n, (config, value) in enumerate(values)
    ]
    now = replace(facts(population=near), observed=ended, best_config=lucky)

    def around(sampler: str) -> list[float]:
        policy = Policy.model_validate({"sampler": sampler})
        added = replenished(replace(now, policy=policy), near, Random(1)).added
        return [(QueuedConfig.read(text).around or {})["DROPOUT"] for text, _ in added]

    assert max(around("gaussian_process")) < 0.2
    assert {*around("thompson")} == {lucky["DROPOUT"]}


def test_what_is_compared_keeps_its_center_and_what_looks_for_the_best_is_around_the_newest() -> None:
    other = {**CONFIG, "DEPTH": 5}
    tested = Population(
        "pop_1", "investigate", "hyp_1", "LR matters", shape=Shape("investigate", center=CONFIG)
    )
    near = Population("pop_2", "exploit", "hyp_1", "LR matters", shape=Shape("exploit", center=CONFIG))

    assert tested.shape_around(other).center == CONFIG
    assert near.shape_around(other).center == other
    assert near.shape_around({}).center == CONFIG
    assert EVERYONE.shape_around(other).center == other


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


def test_what_is_near_a_config_that_has_hardly_moved_stays_in_the_queue() -> None:
    near = Population(
        "pop_1", "exploit", "hyp_1", "LR matters", target=1, shape=Shape("exploit", center=CONFIG)
    )
    dropout = CONFIG["DROPOUT"]
    assert isinstance(dropout, float)
    by: dict[str, dict[str, Value]] = {
        "a little": {"DROPOUT": dropout + 0.05},
        "far": {"DROPOUT": dropout + 0.1},
        "to another category": {"OPTIMIZER": "lion"},
    }
    moved = {
        name: QueuedConfig(CONFIG, 0.5, "random", results=MANY, around={**CONFIG, **change}).text(1)
        for name, change in by.items()
    }
    now = replace(facts(*moved.values(), population=near), best_config=CONFIG)

    dropped = replenished(now, near, Random(1)).dropped

    assert {name for name, text in moved.items() if text in dropped} == {"far", "to another category"}
