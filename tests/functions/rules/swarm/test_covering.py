"""The sampler of claims draws each part of a range alike often, whatever was measured there."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from functions.rules.swarm.covering import Covering
from functions.rules.swarm.dimensions import DeclaredDimension, checked
from functions.rules.swarm.observations import Observation
from functions.rules.swarm.rooms import room_of
from functions.rules.swarm.sections import section_of, sections_of
from functions.rules.swarm.shapes import Shape
from state.records import Dimension, Value

LR = checked(DeclaredDimension.model_validate({"name": "LR", "dtype": "float_log", "min": 1e-4, "max": 1e-1}))
OPTIMIZER = checked(
    DeclaredDimension.model_validate(
        {"name": "OPTIMIZER", "dtype": "categorical", "categories": ["adam", "sgd", "lion"]}
    )
)
CENTER: dict[str, Value] = {"LR": 0.003, "OPTIMIZER": "adam"}
OF_LR = Shape("investigate", free=("LR",), center=CENTER)


def whole(name: str, low: float, high: float, dtype: str) -> Dimension:
    return checked(DeclaredDimension.model_validate({"name": name, "dtype": dtype, "min": low, "max": high}))


def parts(shape: Shape, observations: list[Observation], count: int, name: str = "LR") -> Counter[str | None]:
    dimension = LR if name == "LR" else OPTIMIZER
    room = room_of(dimension)
    assert room is not None
    proposals = Covering().propose([LR, OPTIMIZER], observations, shape, count, Random(3))
    assert all(p.config.keys() == CENTER.keys() for p in proposals)
    return Counter(section_of(p.config[name], sections_of(room)) for p in proposals)


def test_each_part_is_drawn_alike_often() -> None:
    assert sorted(parts(OF_LR, [], 30).values()) == [10, 10, 10]


def test_the_parts_with_fewest_runs_come_first_however_bad_they_are() -> None:
    good = [Observation({**CENTER, "LR": 0.003 + n / 10_000}, -1.0) for n in range(1, 7)]
    bad = [Observation({**CENTER, "LR": 0.09}, 1.0, pending=n < 3) for n in range(3)]

    assert sorted(parts(OF_LR, [*good, *bad], 9).values()) == [3, 6]


def test_runs_that_vary_anything_else_do_not_count() -> None:
    elsewhere = [Observation({"LR": 0.09, "OPTIMIZER": "sgd"}, 0.0)] * 9

    assert sorted(parts(OF_LR, elsewhere, 9).values()) == [3, 3, 3]


def test_each_other_category_is_a_part() -> None:
    of_optimizer = Shape("falsify", free=("OPTIMIZER",), center=CENTER)

    assert parts(of_optimizer, [], 8, "OPTIMIZER") == {'"sgd"': 4, '"lion"': 4}


@pytest.mark.parametrize(
    ("dimension", "names"),
    [
        (whole("LR", 1e-4, 1e-1, "float_log"), ["0.0001..0.000398", "0.000398..0.0251", "0.0251..0.1"]),
        (whole("DEPTH", 1, 9, "int"), ["1..3", "4..6", "7..9"]),
        (whole("DEPTH", 1, 3, "int"), ["1..1", "2..2", "3..3"]),
        (whole("DEPTH", 1, 2, "int"), ["1..1", "2..2"]),
    ],
)
def test_a_range_has_two_ends_and_a_middle(dimension: Dimension, names: list[str]) -> None:
    room = room_of(dimension)
    assert room is not None

    assert list(sections_of(room)) == names
