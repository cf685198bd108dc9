"""A belief calls for a strategy, and the strategy shapes the configs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.beliefs.rules.specs import DecisionRule, InteractionGrid
from functions.beliefs.rules.terms import COMPARED, MOST_VARIED, shape_of, strategy_of
from functions.swarm.rules.shapes import NEAR, Shape, SwarmStrategy, drawn_config
from state.records import Hypothesis, Value
from tests.functions.beliefs.rules.sample import believed, claim
from tests.functions.swarm.rules.sample import SOME, STRATEGIES

REFERENCE: Mapping[str, Value] = {"LR": 0.001, "DEPTH": 8, "LAYERS": 2, "DROPOUT": 0.125, "OPTIMIZER": "adam"}
BEST: Mapping[str, Value] = {"LR": 0.003, "DEPTH": 12, "LAYERS": 3, "DROPOUT": 0.25, "OPTIMIZER": "sgd"}
DIMENSIONS = st.lists(st.sampled_from(list(BEST)), unique=True, max_size=5)


def varied(shape: Shape, center: Mapping[str, Value], n: int = 60) -> list[set[str]]:
    """Of some configs, the dimensions that do not stand at the center."""
    rng = Random(3)
    configs = [drawn_config(SOME, shape, rng) for _ in range(n)]
    return [{name for name, value in config.items() if value != center[name]} for config in configs]


def about(*dimensions: str, **fields: Any) -> Hypothesis:
    return claim(dimensions=list(dimensions), reference_config=dict(REFERENCE), **fields)


CONSTRAINED: dict[str, Any] = {"config_constraint": {"LR": 0.01}}


@pytest.mark.parametrize(
    ("belief", "expected"),
    [
        (believed(0.84, **CONSTRAINED), "exploit"),
        (believed(0.51, **CONSTRAINED), "investigate"),
        (believed(0.28, **CONSTRAINED), "moonshot"),
        (believed(0.12, **CONSTRAINED), "falsify"),
        (believed(0.65, 996, dimensions=["LR"]), "exploit"),
        (believed(0.649, 996, dimensions=["LR"]), "investigate"),
        (believed(0.35, 996, dimensions=["LR"]), "investigate"),
        (believed(0.28, dimensions=["LR"]), "falsify"),  # a doubted influence is compared in pairs
        (believed(0.12), "moonshot"),  # a claim about no dimension cannot be falsified
        (believed(0.6, status="supported"), "exploit"),
        (believed(0.9, sprint_left=3), "decision_sprint"),  # a sprint comes before all else
        (believed(0.9, sprint_left=3, phase="validation"), "validate"),  # but a test
    ],
)
def test_a_belief_calls_for_its_strategy(belief: Hypothesis, expected: str) -> None:
    assert strategy_of(belief) == expected
    tested_first = expected in ("decision_sprint", "validate")
    assert strategy_of(belief, converged=True) == (expected if tested_first else "converge")


@given(DIMENSIONS, DIMENSIONS, st.sampled_from(STRATEGIES))
def test_a_config_varies_at_most_three_dimensions_unless_the_claim_is_about_more(
    own: list[str], constrained: list[str], strategy: SwarmStrategy
) -> None:
    hypothesis = about(*own, config_constraint={name: [BEST[name]] for name in constrained})
    for moved in varied(
        shape_of(hypothesis, strategy, BEST), BEST if strategy not in COMPARED else REFERENCE
    ):
        free = moved - set(constrained)
        assert len(free) <= max(MOST_VARIED, len(own))
        assert not own or strategy in NEAR or free <= set(own)


@pytest.mark.parametrize("strategy", ["exploit", "converge"])
def test_near_the_best_a_config_varies_three_dimensions_or_the_claim_s(strategy: SwarmStrategy) -> None:
    moved = varied(shape_of(about("LR", "DROPOUT"), strategy, BEST), BEST, 400)
    assert max(map(len, moved)) == MOST_VARIED
    assert set[str]().union(*moved) == set(BEST)
    assert sum({"LR", "DROPOUT"} <= each for each in moved) > len(moved) / 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_constraint_is_honoured_under_every_strategy(strategy: SwarmStrategy) -> None:
    hypothesis, rng = about("LR", config_constraint={"DEPTH": {"min": 16}, "OPTIMIZER": ["lion"]}), Random(1)
    configs = [drawn_config(SOME, shape_of(hypothesis, strategy, BEST), rng) for _ in range(20)]
    assert {(float(c["DEPTH"]) >= 16, c["OPTIMIZER"]) for c in configs} == {(True, "lion")}
    if strategy in COMPARED:
        moved = set[str]().union(*varied(shape_of(about("LR", "DEPTH"), strategy, BEST), REFERENCE))
        assert moved == {"LR", "DEPTH"}


def test_every_config_of_a_validation_is_a_cell_of_its_test() -> None:
    grid: dict[str, list[Value]] = {"LR": [0.001, 0.01], "OPTIMIZER": ["sgd", "lion"]}
    rule = DecisionRule(threshold=0.001)
    test = InteractionGrid(
        type="interaction_grid", variables=[*grid], grid=grid, fixed={"DEPTH": 6}, decision_rule=rule
    )
    rng = Random(1)

    configs = [drawn_config(SOME, shape_of(about(), "validate", BEST, test), rng) for _ in range(60)]

    assert {(c["LR"], c["OPTIMIZER"]) for c in configs} == {*product(grid["LR"], grid["OPTIMIZER"])}
    assert {(c["DEPTH"], c["LAYERS"], c["DROPOUT"]) for c in configs} == {(6, 2, 0.125)}
