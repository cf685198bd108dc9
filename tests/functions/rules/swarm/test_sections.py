"""Runs that test a claim lie in each section of a range with the same probability."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from functions.rules.swarm.dimensions import DeclaredDimension, checked
from functions.rules.swarm.rooms import room_of, section_of, sections_of
from functions.rules.swarm.shapes import Shape, drawn_config
from state.records import Dimension, Value


def whole(name: str, low: float, high: float, dtype: str) -> Dimension:
    return checked(DeclaredDimension.model_validate({"name": name, "dtype": dtype, "min": low, "max": high}))


LR = whole("LR", 1e-4, 1e-1, "float_log")
OPTIMIZER = checked(
    DeclaredDimension.model_validate(
        {"name": "OPTIMIZER", "dtype": "categorical", "categories": ["adam", "sgd", "lion"]}
    )
)
CENTER: dict[str, Value] = {"LR": 0.00316, "OPTIMIZER": "adam"}
DRAWS = 3000


def shares(shape: Shape, dimension: Dimension) -> dict[str, float]:
    """Share of the configs that lie in each section of a dimension."""
    room, rng = room_of(dimension), Random(3)
    assert room is not None
    configs = [drawn_config([LR, OPTIMIZER], shape, rng) for _ in range(DRAWS)]
    found = Counter(section_of(config[dimension.name], sections_of(room)) for config in configs)
    return {str(name): count / DRAWS for name, count in found.items()}


@pytest.mark.parametrize("strategy", ["investigate", "falsify", "decision_sprint"])
def test_what_is_compared_with_a_center_lies_in_every_section(strategy: str) -> None:
    found = shares(Shape(strategy, free=("LR",), center=CENTER), LR)  # type: ignore[arg-type]

    assert len(found) == 3
    assert all(0.22 < share < 0.53 for share in found.values()), found


def test_what_looks_for_good_values_is_drawn_uniformly() -> None:
    found = shares(Shape("investigate", free=("LR",)), LR)

    assert found["0.000398..0.0251"] == pytest.approx(0.6, abs=0.04)


def test_each_other_category_is_a_section() -> None:
    found = shares(Shape("falsify", free=("OPTIMIZER",), center=CENTER), OPTIMIZER)

    assert found == {'"sgd"': pytest.approx(0.5, abs=0.04), '"lion"': pytest.approx(0.5, abs=0.04)}


@pytest.mark.parametrize(
    ("dimension", "names"),
    [
        (LR, ["0.0001..0.000398", "0.000398..0.0251", "0.0251..0.1"]),
        (whole("DEPTH", 1, 9, "int"), ["1..3", "4..6", "7..9"]),
        (whole("DEPTH", 1, 3, "int"), ["1..1", "2..2", "3..3"]),
        (whole("DEPTH", 1, 2, "int"), ["1..1", "2..2"]),
    ],
)
def test_a_range_has_two_ends_and_a_middle(dimension: Dimension, names: list[str]) -> None:
    room = room_of(dimension)
    assert room is not None

    assert list(sections_of(room)) == names
