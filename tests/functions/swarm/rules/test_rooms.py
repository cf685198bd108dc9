"""The values that are left to one dimension, and the sections of its range that are compared."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from functions.swarm.rules.rooms import room_of, section_of, sections_of, sections_of_claim
from functions.swarm.rules.shapes import Shape, drawn_config
from state.records import Dimension, Value
from tests.functions.swarm.rules.sample import DEPTH, LAYERS, LR, OPTIMIZER, dimension


def test_a_room_without_a_value_has_all_others_while_they_can_be_told() -> None:
    layers, optimizer, lr = map(room_of, (LAYERS, OPTIMIZER, LR))
    assert layers
    assert optimizer
    assert lr

    assert layers.without(3).choices == (1, 2, 4, 5)
    assert "adam" not in optimizer.without("adam").choices
    assert lr.without(0.001) == lr
    only = room_of(dimension("ONE", "categorical", categories=["tanh"]))
    assert only
    assert only.without("tanh") == only


METHOD = dimension("OPTIMIZER", "categorical", categories=["adam", "sgd", "lion"])
CENTER: dict[str, Value] = {"LR": 0.00316, "OPTIMIZER": "adam"}
DRAWS = 600


def shares(shape: Shape, of: Dimension) -> dict[str, float]:
    """Share of the configs that lie in each section of a dimension."""
    room, rng = room_of(of), Random(3)
    assert room is not None
    configs = [drawn_config([LR, METHOD], shape, rng) for _ in range(DRAWS)]
    found = Counter(section_of(config[of.name], sections_of(room)) for config in configs)
    return {str(name): count / DRAWS for name, count in found.items()}


@pytest.mark.parametrize("strategy", ["investigate", "falsify", "decision_sprint"])
def test_what_is_compared_with_a_center_lies_in_every_section(strategy: str) -> None:
    found = shares(Shape(strategy, free=("LR",), center=CENTER), LR)  # type: ignore[arg-type]
    assert len(found) == 3
    assert all(0.2 < share < 0.55 for share in found.values()), found


@pytest.mark.parametrize("of", [LR, DEPTH, METHOD])
def test_what_is_compared_with_a_center_goes_where_evidence_lacks(of: Dimension) -> None:
    center = {**CENTER, "DEPTH": 8}
    more, less = [*sections_of_claim(of, None)][-2:]
    shape = Shape("investigate", free=(of.name,), center=center, lacking={more: 3.0, less: 1.0})
    rng = Random(3)

    found = Counter(
        section_of(drawn_config([LR, DEPTH, METHOD], shape, rng)[of.name], sections_of_claim(of, None))
        for _ in range(DRAWS)
    )

    assert found[more] / DRAWS == pytest.approx(0.75, abs=0.05)
    assert found[less] / DRAWS == pytest.approx(0.25, abs=0.05)


def test_what_looks_for_good_values_is_drawn_uniformly() -> None:
    found = shares(Shape("investigate", free=("LR",)), LR)
    assert found["0.000398..0.0251"] == pytest.approx(0.6, abs=0.06)


def test_each_other_category_is_a_section() -> None:
    found = shares(Shape("falsify", free=("OPTIMIZER",), center=CENTER), METHOD)
    assert found == {'"sgd"': pytest.approx(0.5, abs=0.06), '"lion"': pytest.approx(0.5, abs=0.06)}


@pytest.mark.parametrize(
    ("some", "names"),
    [
        (LR, ["0.0001..0.000398", "0.000398..0.0251", "0.0251..0.1"]),
        (dimension("DEPTH", "int", min=1, max=9), ["1..3", "4..6", "7..9"]),
        (dimension("DEPTH", "int", min=1, max=3), ["1..1", "2..2", "3..3"]),
        (dimension("DEPTH", "int", min=1, max=2), ["1..1", "2..2"]),
    ],
)
def test_a_range_has_two_ends_and_a_middle(some: Dimension, names: list[str]) -> None:
    room = room_of(some)
    assert room is not None
    assert list(sections_of(room)) == names
