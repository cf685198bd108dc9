"""Which of a worker's runs are of the reference config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from functions.beliefs.rules.terms import EvidencePolicy
from functions.experiments.rules.opening import swarm_policy
from functions.swarm.rules.populations import Population, Purpose, is_reference, purpose_of, reference_config
from functions.swarm.rules.shapes import Shape, SwarmStrategy
from state.policy import Policy
from state.records import SwarmWorker, Value
from tests.functions.swarm.rules.sample import SOME

CENTER: dict[str, Value] = {"LR": 0.001, "DEPTH": 8, "LAYERS": 2, "DROPOUT": 0.125, "OPTIMIZER": "adam"}
TESTS = Purpose("investigate", Shape("investigate", free=("LR",), center=CENTER))
SEARCHES = Shape("exploit", center=CENTER)
USUAL = swarm_policy(Policy())


def population(name: str, strategy: SwarmStrategy, target: int, **shapes: Any) -> Population:
    shape = Shape(strategy, free=("LR",), center=CENTER)
    return Population(name, strategy, f"hyp_{name}", "LR matters", target=target, shape=shape, **shapes)


def claiming(name: str, target: int, **fields: Any) -> Population:
    """One that tests its claim, beside a search."""
    return population(name, "investigate", target, searched=SEARCHES, **fields)


def searching(name: str, target: int) -> Population:
    """One that looks for the best config, beside a test of its claim."""
    return population(name, "exploit", target, tested=TESTS.shape)


def compared_share(of: Population, others: Sequence[Population], policy: Policy = USUAL) -> float:
    """Share of a population's runs that are compared with reference runs, or are such runs."""
    purposes = [purpose_of(of, others, policy, n / 1000) for n in range(1000)]
    return sum(p.is_compared for p in purposes) / len(purposes)


def worker(number: int, **fields: object) -> SwarmWorker:
    plain = {"worker_id": f"w{number}", "number": number, "tag": "swarm", "gpu_type": "H100"}
    usual = {"baseline_bpb": 1.0, "token_id": "t", "joined_at": 0.0}
    return SwarmWorker.model_validate(plain | usual | fields)


CELLS = Purpose("validate", Shape("validate", free=("OPTIMIZER",), center=CENTER))
BASELINES: EvidencePolicy = "baseline"
LATER = {"population_id": "pop_1"}


@pytest.mark.parametrize(
    ("purpose", "fields", "begins"),
    [
        (TESTS, {}, True),  # half of the workers, those with an odd number
        (TESTS, {"number": 2}, False),
        (TESTS, LATER, False),
        (TESTS, LATER | {"compared": 1}, True),  # every second run
        (replace(TESTS, tests_for_reference=3), {}, True),
        (replace(TESTS, tests_for_reference=3), LATER | {"compared": 2}, False),
        (replace(TESTS, tests_for_reference=3), LATER | {"compared": 3}, True),
        (CELLS, {}, False),
        (CELLS, LATER | {"compared": 9}, False),
        (replace(CELLS, evidence=BASELINES), {}, False),
        (replace(TESTS, evidence=BASELINES), {}, False),
        (Purpose("exploit", TESTS.shape), {}, False),
    ],
)
def test_a_run_is_a_reference_run_where_its_claim_needs_one(
    purpose: Purpose, fields: dict[str, Any], begins: bool
) -> None:
    worker_after = worker(**{"number": 1} | fields)
    assert (reference_config(worker_after, purpose, SOME) is not None) is begins


def test_cells_of_a_test_are_run_to_their_end_and_where_baselines_are_the_evidence_all_runs_test() -> None:
    assert CELLS.is_compared
    assert not is_reference(CENTER, CELLS)
    published, tests = USUAL.changed({"belief.evidence": BASELINES}), claiming("a", 30)
    assert {purpose_of(tests, [tests], published, n / 10).strategy for n in range(10)} == {"investigate"}


def test_claims_with_fewer_reference_runs_are_tested_more_within_their_share() -> None:
    policy = USUAL.changed({"belief.reference_share": 0.1})
    few = [claiming("a", 10, tests_for_reference=3), claiming("b", 10, tests_for_reference=3)]
    assert compared_share(few[0], few, policy) == pytest.approx(0.4)


@pytest.mark.parametrize(("share", "compared"), [(0.1, 0.2), (0.25, 0.5), (0.5, 1.0)])
def test_reference_runs_are_at_most_their_share_where_all_test_claims(share: float, compared: float) -> None:
    policy = USUAL.changed({"belief.reference_share": share})
    all_of_them = [claiming("a", 3), claiming("b", 20), claiming("c", 0)]
    found = [compared_share(p, all_of_them, policy) for p in all_of_them]
    assert found == pytest.approx([compared] * 3)


def test_a_claim_is_tested_by_every_run_while_few_workers_test_claims() -> None:
    settled, tested = population("a", "converge", 50), claiming("b", 20)
    assert compared_share(tested, [settled, tested]) == 1.0
    assert compared_share(settled, [settled, tested]) == 0.0


def test_populations_that_look_for_the_best_config_test_less_where_others_need_the_reference_runs() -> None:
    policy = USUAL.changed({"belief.reference_share": 0.25})
    tests, searches = claiming("a", 30), searching("b", 30)
    alone = compared_share(searches, [searches], policy)
    beside = [compared_share(p, [tests, searches], policy) for p in (tests, searches)]
    assert alone == 0.5
    assert beside == pytest.approx([2 / 3, 1 / 3], abs=0.001)


def test_runs_that_test_no_claim_look_for_the_best_config() -> None:
    tests = claiming("a", 30)
    last = purpose_of(tests, [tests], USUAL.changed({"belief.reference_share": 0.25}), 0.999)
    assert (last.strategy, last.shape) == ("exploit", SEARCHES)
    assert not last.is_compared
    assert tests.queued == SEARCHES


def test_a_reference_run_is_of_the_reference_config_whatever_the_claim_allows() -> None:
    claimed = Purpose("investigate", Shape("investigate", ("DEPTH",), {"DEPTH": {"min": 10}}, CENTER))
    config = reference_config(worker(1, compared=9, population_id="pop_1"), claimed, SOME)
    assert config == CENTER
    assert is_reference(config, claimed)
