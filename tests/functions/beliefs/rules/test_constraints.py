"""Claims that pin what they are about are compared with another value of it."""

from __future__ import annotations

from typing import Any

import pytest

from functions.beliefs.rules.specs import with_rival
from state.records import Dimension
from tests.functions.beliefs.rules.sample import REFERENCE, claim
from tests.functions.swarm.rules.sample import DEPTH, LR, at, dimension

OPTIMIZER = dimension("OPTIMIZER", "categorical", categories=["adam", "sgd"])
ALL = [LR, DEPTH, OPTIMIZER]


def moved(constraint: dict[str, Any], dimensions: list[Dimension] = ALL, **fields: Any) -> dict[str, Any]:
    """What stands otherwise than in the reference config."""
    found = with_rival(claim(config_constraint=constraint, **fields), REFERENCE, dimensions)
    assert found.keys() == REFERENCE.keys()
    return {name: value for name, value in found.items() if value != REFERENCE[name]}


def test_a_pinned_value_is_compared_with_another_one() -> None:
    assert moved({"OPTIMIZER": "adam"}) == {"OPTIMIZER": "sgd"}
    assert moved({"LR": {"min": 0.001, "max": 0.001}}) == {"LR": 0.00316}
    assert moved({"OPTIMIZER": ["adam"], "DEPTH": 8}).keys() == {"DEPTH"}


@pytest.mark.parametrize(
    "constraint",
    [{}, {"OPTIMIZER": "sgd"}, {"DEPTH": {"min": 6}}, {"OPTIMIZER": "adam", "DEPTH": [8, 10]}],
    ids=str,
)
def test_a_claim_whose_runs_may_differ_keeps_the_reference_config(constraint: dict[str, Any]) -> None:
    assert moved(constraint) == {}


def test_a_dimension_that_is_named_beside_the_constraint_may_differ() -> None:
    named = claim(config_constraint={"OPTIMIZER": "adam"}, dimensions=["LR"])
    assert with_rival(named, REFERENCE, ALL) == REFERENCE


def test_a_frozen_dimension_and_one_with_a_single_value_stay() -> None:
    only = dimension("OPTIMIZER", "categorical", categories=["adam"])
    assert moved({"OPTIMIZER": "adam"}, [LR, at(DEPTH, 8), only]) == {}
    assert moved({"DEPTH": 8, "OPTIMIZER": "adam"}, [LR, at(DEPTH, 8), OPTIMIZER]) == {"OPTIMIZER": "sgd"}
