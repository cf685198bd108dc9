"""Configs and trials of new dimensions that workers are handed out, whatever waits in the queue."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from random import Random
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.beliefs.rules.declaring import bootstrapped
from functions.beliefs.rules.sharing import may_be_tested
from functions.swarm.rules.handing_out import (
    LONGEST_S,
    TRIES,
    QueuedConfig,
    after_asking_again,
    extension_s,
    fits,
    handed_out,
    run_time_s,
)
from functions.swarm.rules.populations import everyone
from functions.swarm.rules.proposals import Observation
from functions.swarm.rules.refilling import replenished
from functions.swarm.rules.sampling import sampler_of
from functions.swarm.rules.shapes import Shape, standing_config
from functions.swarm.rules.trial_verdicts import drawn_trial, trial_config, tries
from state.policy import Policy
from state.records import Dimension, Experiment, SwarmWorker
from state.swarm_facts import NextFacts, RefillFacts
from tests.functions.beliefs.rules.sample import claim
from tests.functions.sample import experiment
from tests.functions.swarm.rules.sample import at, swarm_facts, swarms
from tests.functions.swarm.rules.searches import BEST, DEPTH, GATE, LR, WARMUP

POPULATION = everyone("swarm")
WORKER = SwarmWorker(
    worker_id="w1", number=1, tag="swarm", gpu_type="H100", baseline_bpb=1.0, token_id="t", joined_at=0.0
)


def next_facts(dimensions: Sequence[Dimension], waiting: Sequence[str]) -> NextFacts:
    more: dict[str, Any] = {"worker": WORKER, "run": None, "waiting": waiting, "retests": []}
    return NextFacts(**swarm_facts(dimensions), waiting_for=POPULATION.population_id, **more)


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


ALL = (LR, DEPTH, WARMUP)


def handed(dimensions: Sequence[Dimension], n: int, waiting: Sequence[str] = ()) -> list[dict[str, object]]:
    """So many configs as workers are handed out."""
    facts = next_facts(dimensions, waiting)
    outs = [handed_out(facts, POPULATION, "w1", 0, Random(seed)) for seed in range(n)]
    return [out.idea.config_delta or {} for out in outs]


def test_about_twelve_percent_of_all_configs_vary_a_dimension_on_trial_and_the_others_leave_it_out() -> None:
    n = 1000
    configs = handed(ALL, n)
    varied = sum("WARMUP" in config for config in configs)
    margin = NormalDist().inv_cdf(0.9995) * (n * 0.12 * 0.88) ** 0.5
    assert varied == pytest.approx(0.12 * n, abs=margin)
    assert all(tries(config, WARMUP) == ("WARMUP" in config) for config in configs)
    assert all(fits(config, ALL) for config in configs)


def test_a_trial_is_repeated_without_a_limit_and_drawn_once_for_a_hand_out() -> None:
    always = GATE.model_copy(update={"canary_prob": 1.0})
    facts = next_facts([LR, always], [])
    first, again = (handed_out(facts, POPULATION, "w1", nth, Random(1)) for nth in (0, 1))
    assert "GATE" in (first.idea.config_delta or {})
    assert (first.most_trials, first.most_in_flight, first.is_compared) == (None, None, False)
    assert (first.idea.hypothesis_id, first.idea.hypothesis) == (None, "GATE is on trial")
    assert "GATE" not in (again.idea.config_delta or {})


def test_a_run_tries_one_dimension_at_a_time() -> None:
    rng = Random(1)
    tried = Counter(d.name if d else None for d in (drawn_trial([*ALL, GATE], rng) for _ in range(4000)))
    assert [tried["WARMUP"], tried["GATE"]] == pytest.approx([480, 480], abs=70)


def test_a_trial_is_the_best_known_config_with_another_value_of_the_dimension() -> None:
    rng = Random(1)
    found = [trial_config(GATE, [LR, DEPTH, GATE], BEST, rng) for _ in range(50)]
    assert all({**config, "GATE": "none"} == {**BEST, "GATE": "none"} for config in found)
    assert {config["GATE"] for config in found} == {"silu", "gelu"}


def test_a_config_that_waits_goes_on_to_fit_when_a_trial_begins_and_not_when_it_was_promoted() -> None:
    promoted = WARMUP.model_copy(update={"is_canary": False, "canary_prob": None})
    assert fits(BEST, ALL)
    assert fits({**BEST, "WARMUP": 0.2}, ALL)
    assert not fits({**BEST, "WARMUP": 0.7}, ALL)
    assert not fits(BEST, [LR, DEPTH, promoted])
    assert not fits({**BEST, "WARMUP": 0.2}, [LR, DEPTH])
    assert [fits(BEST, [LR, at(DEPTH, depth)]) for depth in (12, 5)] == [True, False]


@pytest.mark.parametrize("name", ["gaussian_process", "thompson"])
def test_once_promoted_the_runs_that_did_not_name_it_count_as_having_had_its_default(name: str) -> None:
    promoted = WARMUP.model_copy(update={"is_canary": False, "canary_prob": None})
    seen = [Observation({"LR": 0.003}, 0.0) for _ in range(20)]
    seen += [Observation({"LR": 0.003, "WARMUP": 0.3 + 0.01 * n}, -0.1) for n in range(20)]
    told = [Observation({"WARMUP": 0.0} | dict(one.config), one.value) for one in seen]

    sampler = sampler_of(name, Shape("investigate"))
    found, same = (
        sampler.propose([LR, promoted], runs, Shape("investigate"), 20, Random(1)) for runs in (seen, told)
    )

    assert [p.config for p in found] == [p.config for p in same]
    assert standing_config([LR, promoted], Shape("exploit", center=BEST))["WARMUP"] == 0.0


def test_what_is_on_trial_has_no_claim_and_a_claim_about_it_or_about_what_is_gone_no_workers() -> None:
    assert [h.dimensions for h in bootstrapped("swarm", ALL, {}, BEST, 1.0)] == [["LR"], ["DEPTH"]]
    of_trial = claim(dimensions=["WARMUP"])
    assert not may_be_tested(of_trial, ALL)
    assert not may_be_tested(of_trial, [LR])
    assert may_be_tested(claim(dimensions=["LR"]), ALL)
    assert not may_be_tested(claim(dimensions=["LR"], config_constraint={"WARMUP": 0.1}), ALL)
