"""A queue is filled with what may run, and how often a config may; where little is left, the swarm goes on."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from functions.swarm.rules.dimensions import same
from functions.swarm.rules.handing_out import QueuedConfig
from functions.swarm.rules.populations import Population, everyone, queue_target
from functions.swarm.rules.proposals import (
    REPEATING,
    ConfigProposal,
    ConfigSampler,
    History,
    RunCounts,
    canonical,
    desired_repeats,
    fingerprint,
    may_run,
    normalised,
)
from functions.swarm.rules.refilling import Refilling, observations_of, replenished
from functions.swarm.rules.sampling import Thompson
from functions.swarm.rules.shapes import Shape, SwarmStrategy, drawn_config
from state.policy import Duplicates, Policy
from state.records import Dimension, Tag, Value
from state.swarm_facts import Observed, RefillFacts
from tests.functions.swarm.rules.sample import (
    INVESTIGATE,
    LAYERS,
    SHAPES,
    SOME,
    STRATEGIES,
    VALUES,
    dimension,
    dimensions,
    runs,
    swarm_facts,
    swarms,
)

CENTER: dict[str, Value] = {"LR": 0.003, "DEPTH": 12, "LAYERS": 3, "DROPOUT": 0.25, "OPTIMIZER": "sgd"}
FLAG = dimension("FLAG", "categorical", categories=["on", "off"])


def thompson(shape: Shape) -> ConfigSampler:
    """What proposes within any shape."""
    return Thompson()


def refilled(
    dimensions: Sequence[Dimension],
    seen: History,
    shape: Shape,
    tried: Mapping[str, RunCounts],
    count: int,
    rng: Random,
) -> list[ConfigProposal]:
    return Refilling(dimensions, seen, shape, thompson, rng, tried).refilled(count)


def keys(proposals: Sequence[ConfigProposal], dimensions: Sequence[Dimension] = SOME) -> Counter[str]:
    return Counter(fingerprint(p.config, dimensions) for p in proposals)


@pytest.mark.parametrize(
    ("target", "workers", "length"),
    [(None, 0, 8), (None, 3, 8), (None, 20, 20), (None, 10_000, 500), (4, 20, 4), (9_000, 2, 9_000)],
)
def test_a_queue_holds_8_to_500_configs_as_workers(target: int | None, workers: int, length: int) -> None:
    assert queue_target(Policy(queue_target=target), workers) == length


@given(swarms(), SHAPES, st.integers(1, 12), st.integers(0, 2**32), st.data())
def test_places_are_filled_within_the_limits_and_never_left_all_empty(
    dimensions: list[Dimension], shape: Shape, count: int, seed: int, data: st.DataObject
) -> None:
    seen, rng = runs([0.1, 0.3, None, 0.2], dimensions), Random(seed)
    often = st.builds(RunCounts, st.integers(0, 7), st.integers(0, 3))
    tried = {fingerprint(o.config, dimensions): data.draw(often) for o in seen}

    proposals = refilled(dimensions, seen, shape, tried, count, rng)

    assert 1 <= len(proposals) <= count
    if len(proposals) > 1 and not shape.is_of_claim:
        for key, times in keys(proposals, dimensions).items():
            before = tried.get(key, RunCounts())
            assert before.all + times <= 6
            assert shape.strategy in REPEATING or before.in_flight + times <= 2


def test_a_config_that_was_run_is_not_proposed_while_others_are_left() -> None:
    layers = [LAYERS]
    tried = {fingerprint({"LAYERS": n}, layers): RunCounts(trials=1) for n in (1, 2, 4)}
    proposals = refilled(layers, [], INVESTIGATE, tried, 2, Random(1))
    assert {p.config["LAYERS"] for p in proposals} == {3, 5}


def test_where_all_was_run_the_one_that_was_run_least_is_run_again() -> None:
    tried = {fingerprint({"FLAG": value}, [FLAG]): RunCounts(n) for value, n in (("on", 40), ("off", 30))}
    proposals = refilled([FLAG], [], INVESTIGATE, tried, 4, Random(1))
    assert [p.config for p in proposals] == [{"FLAG": "off"}]
    assert "nothing else is left" in proposals[0].why


def reasons(ended: int, shape: Shape = INVESTIGATE) -> Counter[str]:
    seen = runs([0.01 * n for n in range(ended)])
    drawn = [p for seed in range(20) for p in refilled(SOME, seen, shape, {}, 10, Random(seed))]
    return Counter(p.why.split()[0].rstrip(":") for p in drawn)


@pytest.mark.parametrize(
    ("ended", "promotes"), [(39, False), (99, False), (100, True), (139, True), (140, False), (200, True)]
)
def test_every_100_results_the_best_configs_get_neighbours(ended: int, promotes: bool) -> None:
    found = reasons(ended)
    assert (found["near"] > 50) is promotes
    assert (found["near"] > 0) is promotes
    assert 0 < found["moonshot"] < 30


def test_the_config_that_a_winner_is_looked_for_around_is_run_three_times() -> None:
    shape, key = Shape("converge", center=CENTER), fingerprint(CENTER, SOME)

    def times(tried: RunCounts) -> int:
        return keys(refilled(SOME, runs([0.1]), shape, {key: tried}, 8, Random(1)))[key]

    assert [times(RunCounts(n)) for n in range(5)] == [2, 2, 1, 0, 0]
    assert times(RunCounts(1, in_flight=1)) == 1


CONFIG = drawn_config(SOME, INVESTIGATE, Random(3))
EVERYONE = everyone("swarm")
MANY = 1000
"""Results of the tag: far more than workers are active."""


def facts(*waiting: str, population: Population = EVERYONE, **changes: Any) -> RefillFacts:
    tag = Tag(name="swarm", branch="swarm/swarm", created_at=0.0, kept=MANY)
    plain = swarm_facts(SOME) | {"tag": tag, "policy": Policy(), "active_workers": 10, "best_config": {}}
    queue = {population.population_id: waiting}
    return RefillFacts(**plain | {"observed": [], "waiting": queue} | changes)


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
    now = facts(old, new, population=near, best_config=CONFIG)

    change = replenished(now, near, Random(1))

    assert change.dropped == [old]
    assert all(QueuedConfig.read(text).around == CONFIG for text, _ in change.added)


def test_a_run_that_was_stopped_tells_the_sampler_nothing_of_its_config() -> None:
    whole = Observed(experiment_id="swarm-1", status="discard", config_delta=CONFIG, delta_bpb=-0.1)
    stopped = Observed(experiment_id="swarm-2", status="stopped", config_delta={**CONFIG, "DROPOUT": 0.5})
    going = Observed(experiment_id="swarm-3", status="running", config_delta=CONFIG)
    seen = observations_of(facts(observed=[whole, stopped, going]))
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
    now = facts(population=near, observed=ended, best_config=lucky)

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


@pytest.mark.parametrize(
    ("priority", "repeats"),
    [(1, 4), (0.85, 4), (0.849, 3), (0.70, 3), (0.699, 2), (0.55, 2), (0.549, 1), (0, 1)],
)
def test_repeats_follow_the_published_table(priority: float, repeats: int) -> None:
    assert desired_repeats(priority) == repeats


@pytest.mark.parametrize(
    ("tried", "priority", "strategy", "may"),
    [
        (RunCounts(in_flight=1), 0.9, "exploit", True),
        (RunCounts(in_flight=2), 0.9, "exploit", False),
        (RunCounts(trials=2, in_flight=1), 0.9, "exploit", True),
        (RunCounts(trials=1), 0.5, "exploit", False),
        *((RunCounts(in_flight=5), 0.0, strategy, True) for strategy in sorted(REPEATING)),
        *((RunCounts(trials=1, in_flight=5), 1.0, strategy, False) for strategy in STRATEGIES),
    ],
)
def test_a_config_runs_as_often_as_it_deserves_and_at_once_where_repeats_are_the_purpose(
    tried: RunCounts, priority: float, strategy: SwarmStrategy, may: bool
) -> None:
    assert may_run(tried, priority, strategy, Duplicates()) is may
    assert may_run(RunCounts(60, 9), priority, strategy, Duplicates(), is_of_claim=True)


CONFIGS = st.dictionaries(st.text(max_size=4), VALUES, max_size=5)


def fp(**config: Value) -> str:
    return fingerprint(config, SOME)


def test_a_fingerprint_is_the_digest_of_values_in_the_types_of_their_dimensions() -> None:
    assert canonical({"LR": 0.001, "DEPTH": 8, "NAME": "é"}) == r'{"DEPTH":8,"LR":0.001,"NAME":"\u00e9"}'
    assert fp(LR=1e-3, DEPTH=8.0) == hashlib.sha256(b'{"DEPTH":8,"LR":0.001}').hexdigest()
    assert fp(DROPOUT=0) == fp(DROPOUT=0.0) == fp(DROPOUT=-0.0)
    assert fp(DEPTH=8) != fp(DEPTH=9)
    flag = [dimension("FLAG", "categorical", categories=[1, True, "1", 0, False])]
    assert len({fingerprint({"FLAG": value}, flag) for value in (1, True, "1", 0, False)}) == 5
    assert fingerprint({"FLAG": 1.0}, flag) == fingerprint({"FLAG": 1}, flag)
    assert fp(DROPOUT=True) != fp(DROPOUT=1)


@given(CONFIGS, CONFIGS)
def test_configs_that_differ_have_other_texts(one: dict[str, Value], other: dict[str, Value]) -> None:
    assume(one.keys() != other.keys() or any(not same(one[name], other[name]) for name in one))
    assert canonical(one) != canonical(other)


@given(dimensions(), VALUES)
def test_a_normalised_config_stays_as_it_is(found: Dimension, value: Value) -> None:
    once = normalised({"A": value}, [found])
    assert canonical(normalised(once, [found])) == canonical(once)
    assert same(once["A"], value)
