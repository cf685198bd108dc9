"""What a worker is handed out: a config of the tag's dimensions, whatever waits in the queue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.swarm.rules.handing_out import (
    LONGEST_S,
    TRIES,
    QueuedConfig,
    after_asking_again,
    extension_s,
    fits,
    handed_out,
    lost,
    run_time_s,
)
from functions.swarm.rules.populations import everyone
from functions.swarm.rules.refilling import replenished
from state.policy import Policy
from state.records import Dimension, Experiment, SwarmWorker
from state.swarm_facts import NextFacts, RefillFacts
from tests.functions.sample import experiment
from tests.functions.swarm.rules.sample import DEPTH, swarm_facts, swarms

POPULATION = everyone("swarm")
WORKER = SwarmWorker(
    worker_id="w1", number=1, tag="swarm", gpu_type="H100", baseline_bpb=1.0, token_id="t", joined_at=0.0
)


def next_facts(dimensions: Sequence[Dimension], waiting: Sequence[str]) -> NextFacts:
    more: dict[str, Any] = {"worker": WORKER, "run": None, "waiting": waiting, "retests": []}
    return NextFacts(**swarm_facts(dimensions), waiting_for=POPULATION.population_id, **more)


def test_a_frozen_dimension_fits_at_its_value_alone() -> None:
    frozen = DEPTH.model_copy(update={"frozen": True, "frozen_value": 4})
    assert [fits({"DEPTH": depth}, [frozen]) for depth in (4, 5)] == [True, False]


def running(**changes: Any) -> Experiment:
    plain: dict[str, Any] = {"status": "running", "handed_out": 1, "config_delta": {"LR": 0.1}}
    return experiment(**plain | changes)


@given(swarms(), swarms(), st.integers(0, 2 * TRIES), st.integers(0, 2**32))
def test_a_config_fits_its_dimensions_whatever_waits(
    dimensions: list[Dimension], others: list[Dimension], nth: int, seed: int
) -> None:
    rng = Random(seed)
    waiting = replenished(refill_facts(others), POPULATION, rng).added
    out = handed_out(next_facts(dimensions, [text for text, _ in waiting]), POPULATION, "w1", nth, rng)
    config = out.idea.config_delta or {}
    assert fits(config, dimensions)
    assert json.loads(json.dumps(config)) == config
    assert 0 <= out.priority <= 1
    assert (out.most_trials is None) == (nth >= TRIES)


def refill_facts(dimensions: Sequence[Dimension], waiting: Sequence[str] = ()) -> RefillFacts:
    return RefillFacts(
        **swarm_facts(dimensions), observed=[], waiting={POPULATION.population_id: waiting}, best_config={}
    )


@given(swarms(), st.integers(0, 2**32))
def test_what_waits_and_fits_stays_and_the_rest_leaves(dimensions: list[Dimension], seed: int) -> None:
    rng = Random(seed)
    first = replenished(refill_facts(dimensions), POPULATION, rng)
    texts = [text for text, _ in first.added]
    stranger = QueuedConfig({"NO_SUCH": 1}, 0.5, "made for others").text(0)
    second = replenished(refill_facts(dimensions, [*texts, stranger]), POPULATION, rng)
    assert 1 <= len(set(texts)) == len(texts) <= 8  # of a small space there are fewer
    assert second.dropped == [stranger]
    assert len(texts) + len(second.added) <= 8


@pytest.mark.parametrize(
    ("values", "budget_s", "extend_s"),
    [
        ({}, 300, 120.0),
        ({"budgets.base_s": 500}, 500, 40.0),
        ({"budgets.base_s": 9000}, LONGEST_S, 0.0),
        ({"budgets.base_s": 0.2}, 1, 120.0),
        ({"budgets.extend_s": 0}, 300, 0.0),
        ({"budgets.base_s": 4.6}, 5, 120.0),
    ],
)
def test_a_run_ends_before_workers_kill_it(values: dict[str, float], budget_s: int, extend_s: float) -> None:
    policy = Policy().changed(values)
    time_s = run_time_s(policy)
    assert (time_s, extension_s(time_s, policy)) == (budget_s, extend_s)
    assert budget_s + extend_s <= LONGEST_S


@pytest.mark.parametrize(
    ("run", "becomes"),
    [
        (None, "new"),
        (running(), "again"),
        (running(handed_out=2), "lost"),
        (running(stopping=True), "stopped"),
        (running(status="stopped"), "new"),
        (running(status="lost"), "new"),
        (running(status="keep"), "new"),
    ],
)
def test_what_becomes_of_the_run_of_a_worker_that_asks_again(run: Experiment | None, becomes: str) -> None:
    assert after_asking_again(run) == becomes


def test_the_config_of_a_lost_run_waits_for_another_worker() -> None:
    ending = lost(running(proposal_priority=0.7), "silent")
    back = QueuedConfig.read(ending.returned or "")
    assert (back.config, back.priority, ending.status) == ({"LR": 0.1}, 0.7, "lost")
