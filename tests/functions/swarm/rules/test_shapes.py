"""A drawn config is valid, honours what its population may vary, and is what its strategy says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from random import Random

import pytest

from functions.swarm.rules.rooms import Allowed, room_of, section_of, sections_of, sections_of_claim
from functions.swarm.rules.shapes import CANARY_SHARE, Shape, contradictions, drawn_config
from state.records import Dimension, Value
from tests.functions.swarm.rules.sample import (
    DEPTH,
    INVESTIGATE,
    LAYERS,
    LR,
    OPTIMIZER,
    SOME,
    at,
    dimension,
)

CENTER: Mapping[str, Value] = {"LR": 0.003, "DEPTH": 12, "LAYERS": 3, "DROPOUT": 0.25, "OPTIMIZER": "sgd"}


def drawn(shape: Shape, dimensions: Sequence[Dimension] = SOME, n: int = 400) -> list[dict[str, Value]]:
    rng = Random(1)
    return [drawn_config(dimensions, shape, rng) for _ in range(n)]


def values(configs: Sequence[Mapping[str, Value]], name: str) -> set[Value]:
    return {config[name] for config in configs}


def numbers(configs: Sequence[Mapping[str, Value]], name: str) -> list[float]:
    return [value for config in configs if not isinstance(value := config[name], str)]


def moved(config: Mapping[str, Value]) -> set[str]:
    """The dimensions that do not stand at the center."""
    return {name for name, value in config.items() if value != CENTER[name]}


def test_a_float_log_is_drawn_by_factors() -> None:
    found = Counter(
        math.floor(math.log10(lr)) for lr in numbers(drawn(INVESTIGATE, n=3000), "LR") if lr < 0.1
    )
    assert found.keys() == {-4, -3, -2}
    assert min(found.values()) > 850


def test_a_canary_varies_in_its_share_of_the_configs_only() -> None:
    for share in (None, 0.5):
        canary = dimension("DROPOUT", "float", min=0, max=0.5, is_canary=True, canary_prob=share)
        configs = drawn(Shape("investigate", center=CENTER), [LR, canary], n=1000)
        varied = sum(config["DROPOUT"] != 0.25 for config in configs) / len(configs)
        assert varied == pytest.approx(CANARY_SHARE if share is None else share, abs=0.05)


def test_a_constraint_is_a_value_a_list_or_a_range() -> None:
    allowed: dict[str, Allowed] = {"LR": 0.01, "DEPTH": [6, 8.0], "LAYERS": {"min": 4}}
    allowed["DROPOUT"] = {"min": 0.1, "max": 0.2}
    configs = drawn(Shape("investigate", constraint=allowed))
    assert values(configs, "LR") == {0.01}
    assert values(configs, "DEPTH") == {6, 8}
    assert values(configs, "LAYERS") == {4, 5}
    assert min(numbers(configs, "DROPOUT")) == pytest.approx(0.1, abs=0.01)
    assert max(numbers(configs, "DROPOUT")) == pytest.approx(0.2, abs=0.01)


def test_a_constraint_that_nothing_meets_is_told_and_left_out() -> None:
    stands = [at(DEPTH, 8), LR, OPTIMIZER]
    shape = Shape("investigate", constraint={"LR": {"min": 1}, "DEPTH": 9, "OPTIMIZER": ["sgd"], "NONE": 1})
    told = list(contradictions(stands, shape))
    assert [part in line for part, line in zip(("'LR'", "frozen at 8", "'NONE'"), told, strict=True)] == [
        True
    ] * 3
    assert len(values(drawn(shape, stands), "LR")) > 50


def test_investigate_varies_what_is_free_over_its_whole_range_and_leaves_the_rest_at_the_best() -> None:
    configs = drawn(Shape("investigate", free=("DEPTH", "OPTIMIZER"), center=CENTER))
    assert values(configs, "DEPTH") == set(range(4, 25))
    assert values(configs, "OPTIMIZER") == {"adam", "sgd", "lion", "adafactor"}
    assert set[str]().union(*map(moved, configs)) == {"DEPTH", "OPTIMIZER"}


def test_exploit_stays_near_the_best_and_converge_nearer() -> None:
    exploit, converge = (drawn(Shape(each, center=CENTER)) for each in ("exploit", "converge"))
    for configs, apart in ((exploit, 1 / 8), (converge, 1 / 64)):
        assert max(abs(d - 0.25) / 0.5 for d in numbers(configs, "DROPOUT")) == pytest.approx(apart, abs=0.01)
        assert max(abs(math.log10(lr / 0.003)) / 3 for lr in numbers(configs, "LR")) < apart + 0.01
        others = sum(config["OPTIMIZER"] != "sgd" for config in configs) / len(configs)
        assert 0 < others < 0.3
    assert values(converge, "LAYERS") == {2, 3, 4}


def test_falsify_varies_one_dimension_and_nothing_else() -> None:
    assert set[str]().union(*map(moved, drawn(Shape("falsify", free=("LR",), center=CENTER)))) == {"LR"}
    assert max(len(moved(c)) for c in drawn(Shape("falsify", center=CENTER))) == 1


def test_validate_visits_every_cell_of_its_test() -> None:
    cells: dict[str, Allowed] = {"LR": [0.001, 0.01], "OPTIMIZER": ["adam", "sgd"]}
    configs = drawn(Shape("validate", center=CENTER, constraint=cells))
    assert {(c["LR"], c["OPTIMIZER"]) for c in configs} == {*product((0.001, 0.01), ("adam", "sgd"))}
    assert set[str]().union(*map(moved, configs)) == {"LR", "OPTIMIZER"}


def test_moonshots_lie_at_the_ends_of_the_ranges() -> None:
    configs = drawn(Shape("moonshot", center=CENTER))
    assert values(configs, "DEPTH") == {4, 5, 6, 22, 23, 24}
    assert values(configs, "LAYERS") == {1, 5}
    assert all(min(d, 0.5 - d) <= 0.0625 for d in numbers(configs, "DROPOUT"))
    assert {lr < 0.003 for lr in numbers(configs, "LR")} == {True, False}


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
MIDDLE: dict[str, Value] = {"LR": 0.00316, "OPTIMIZER": "adam"}
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
    found = shares(Shape(strategy, free=("LR",), center=MIDDLE), LR)  # type: ignore[arg-type]
    assert len(found) == 3
    assert all(0.2 < share < 0.55 for share in found.values()), found


@pytest.mark.parametrize("of", [LR, DEPTH, METHOD])
def test_what_is_compared_with_a_center_goes_where_evidence_lacks(of: Dimension) -> None:
    center = {**MIDDLE, "DEPTH": 8}
    more, less = [*sections_of_claim(of, None)][-2:]
    shape = Shape("investigate", free=(of.name,), center=center, lacking={more: 3.0, less: 1.0})
    rng = Random(3)

    found = Counter(
        section_of(drawn_config([LR, DEPTH, METHOD], shape, rng)[of.name], sections_of_claim(of, None))
        for _ in range(DRAWS)
    )

    assert found[more] / DRAWS == pytest.approx(0.75, abs=0.05)
    assert found[less] / DRAWS == pytest.approx(0.25, abs=0.05)


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
