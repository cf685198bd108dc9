"""Which of a worker's runs are of the reference config."""

from __future__ import annotations

import pytest

from functions.rules.beliefs.terms import EvidencePolicy
from functions.rules.opening import swarm_policy
from functions.rules.swarm.belonging import Purpose, is_reference, reference_config
from functions.rules.swarm.shapes import Shape
from state.policy import Policy
from state.records import SwarmWorker, Value
from tests.functions.rules.swarm.sample import SOME

CENTER: dict[str, Value] = {"LR": 0.001, "DEPTH": 8, "LAYERS": 2, "DROPOUT": 0.125, "OPTIMIZER": "adam"}
TESTS = Purpose("investigate", Shape("investigate", free=("LR",), center=CENTER))
USUAL = swarm_policy(Policy())


def begins_with_a_reference(
    number: int, purpose: Purpose = TESTS, policy: Policy = USUAL, **fields: object
) -> bool:
    return reference_config(worker(number, **fields), purpose, SOME, policy) is not None


def worker(number: int, **fields: object) -> SwarmWorker:
    return SwarmWorker.model_validate(
        {
            "worker_id": f"w{number}",
            "number": number,
            "tag": "swarm",
            "gpu_type": "H100",
            "baseline_bpb": 1.0,
            "token_id": "t",
            "joined_at": 0.0,
            **fields,
        }
    )


@pytest.mark.parametrize(("share", "each"), [(0.5, 2), (0.25, 4)])
def test_so_many_workers_begin_with_a_reference_run_as_runs_are_one(share: float, each: int) -> None:
    policy = USUAL.changed({"belief.reference_share": share})

    begin = [begins_with_a_reference(n, policy=policy) for n in range(1, 4 * each + 1)]
    later = [begins_with_a_reference(n, policy=policy, population_id="pop_1") for n in range(1, 9)]

    assert sum(begin) == 4
    assert not any(later)
    assert begins_with_a_reference(1, policy=policy, population_id="pop_1", compared=each - 1)


@pytest.mark.parametrize("evidence", ["matched", "baseline"])
def test_cells_of_a_test_need_no_reference_runs_and_are_run_to_their_end(evidence: EvidencePolicy) -> None:
    cells = Purpose("validate", Shape("validate", free=("OPTIMIZER",), center=CENTER), evidence)

    assert not begins_with_a_reference(1, cells)
    assert not begins_with_a_reference(1, cells, population_id="pop_1", compared=9)
    assert not is_reference(CENTER, cells)
    assert cells.is_compared


def test_runs_beside_baselines_need_no_reference_runs() -> None:
    alone = USUAL.changed({"belief.evidence": "baseline"})

    assert not begins_with_a_reference(1, Purpose("investigate", TESTS.shape, alone.belief.evidence))
    assert not begins_with_a_reference(1, Purpose("exploit", TESTS.shape))


def test_a_reference_run_is_of_the_reference_config_whatever_the_claim_allows() -> None:
    claimed = Purpose("investigate", Shape("investigate", ("DEPTH",), {"DEPTH": {"min": 10}}, CENTER))

    config = reference_config(worker(1, compared=9, population_id="pop_1"), claimed, SOME, USUAL)

    assert config == CENTER
    assert is_reference(config, claimed)
