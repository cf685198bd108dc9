"""A dimension that contradicts itself is refused by its name; a value that it has is always one of its own."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from functions.swarm.rules.dimensions import (
    MOST,
    DeclaredDimension,
    checked,
    defined,
    frozen,
    is_short,
    short,
    short_within,
    unfrozen,
    value_of,
    violations,
)
from state.errors import Invalid
from state.records import Dimension
from tests.functions.swarm.rules.sample import NUMBERS, dimensions

LR = {"name": "LR", "dtype": "float_log", "min": 1e-4, "max": 1e-1}
DEPTH = {"name": "DEPTH", "dtype": "int", "min": 4, "max": 24}
OPTIMIZER = {"name": "OPTIMIZER", "dtype": "categorical", "categories": ["adam", "sgd"]}


def dimension(fields: dict[str, Any], **changes: Any) -> Dimension:
    return checked(DeclaredDimension.model_validate(fields | changes))


WRONG: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "min .* is not below max": (
        LR,
        [{"dtype": dtype, "min": low, "max": 4} for dtype in ("float_log", "float", "int") for low in (4, 5)],
    ),
    "is not above 0": (LR, [{"min": 0}, {"min": 0.0}, {"min": -1e-4}]),
    "min and max, and no categories": (DEPTH, [{"min": None}, {"max": None}, {"categories": [1]}]),
    "a categorical has categories": (OPTIMIZER, [{"categories": None}, {"min": 1}, {"max": 2.0}]),
    "at least 1 item": (OPTIMIZER, [{"categories": []}]),
    "stands there twice": (
        OPTIMIZER,
        [{"categories": c} for c in (["a", "a"], [1, 1.0], [0.0, -0.0], [True, False, True], [2, "2", 2])],
    ),
    "has 201 characters": (OPTIMIZER, [{"categories": ["a" * 201]}]),
    "not printable": (OPTIMIZER, [{"categories": [text]} for text in ("a\nb", "a\x7f", "\u202e")]),
    "no name of a constant": (
        LR,
        [
            {"name": name}
            for name in (
                *("", "1A", "a b", "a.b", "__name__", "größe", "A\n", "A;B", "*", "for", "None", "lambda"),
            )
        ],
    ),
    "at most 64 characters": (LR, [{"name": "A" * 65}]),
    "no dimension may be this constant": (
        LR,
        [{"name": name} for name in ("TOTAL_WALL_CLOCK_TIME", "SEED", "random_state", "dataSeed")],
    ),
    "validation error": (
        DEPTH,
        [{"min": "1"}, {"max": True}, {"dtype": "double"}, {"step": 2}, {"frozen": 1}],
    ),
    "not two values of 3 significant digits": (LR, [{"min": 0.12341, "max": 0.12349}]),
    "4.5 is no whole number": (DEPTH, [{"min": 4.5}]),
    "canary_prob": (
        LR,
        [{"canary_prob": 0.12}, *({"is_canary": True, "canary_prob": share} for share in (0, -0.1, 1.1))],
    ),
    "'DEPTH'": (DEPTH, [{"frozen": True}, {"frozen_value": 8}, {"frozen": True, "frozen_value": 99}]),
}


@pytest.mark.parametrize(
    ("why", "fields", "wrong"),
    [(why, fields, wrong) for why, (fields, all_wrong) in WRONG.items() for wrong in all_wrong],
)
def test_a_contradicting_dimension_is_wrong(why: str, fields: dict[str, Any], wrong: dict[str, Any]) -> None:
    with pytest.raises((Invalid, ValidationError), match=why):
        dimension(fields, **wrong)


def test_categories_of_other_types_are_other_categories() -> None:
    assert dimension(OPTIMIZER, categories=[1, True, "1", 0, False]).categories == [1, True, "1", 0, False]


@pytest.mark.parametrize(
    "bad", [float("nan"), float("inf"), -float("inf"), 1e-300, 1e300, 2**53 + 1, 10**400]
)
@pytest.mark.parametrize("at", ["min", "max", "categories"])
def test_numbers_that_no_client_can_handle_are_refused(at: str, bad: float) -> None:
    fields: dict[str, Any] = OPTIMIZER | {at: [bad]} if at == "categories" else LR | {at: bad}
    with pytest.raises((Invalid, ValidationError)):
        dimension(fields)


def test_an_int_takes_whole_numbers_however_they_are_spelt() -> None:
    found = dimension(DEPTH, min=4.0, max=24.0)
    assert [type(end) for end in (found.min, found.max)] == [int, int]


ANY = NUMBERS | st.booleans() | st.text(max_size=5) | st.none() | st.floats() | st.integers()


@given(dimensions(), ANY)
def test_a_value_that_is_let_in_is_one_of_the_dimension_s(found: Dimension, value: Any) -> None:
    with contextlib.suppress(Invalid):
        _is_its_own(found, value_of(found, value))


def _is_its_own(found: Dimension, has: object) -> None:
    if found.categories is not None:
        assert json.dumps(has) in {json.dumps(category) for category in found.categories}
    else:
        assert found.min is not None
        assert found.max is not None
        assert isinstance(has, int | float)
        assert type(has) is (int if found.dtype == "int" else float)
        assert found.min <= has <= found.max
        assert found.dtype == "int" or is_short(has)
    assert value_of(found, has) == has


@given(dimensions())
def test_what_is_let_in_stays_valid_in_the_state(found: Dimension) -> None:
    stored = Dimension.model_validate_json(found.model_dump_json())
    assert stored.model_dump_json() == found.model_dump_json()
    assert list(violations([stored])) == []


@given(dimensions())
def test_a_range_of_floats_has_short_numbers_in_it(found: Dimension) -> None:
    assume(found.dtype in ("float", "float_log"))
    assert found.min is not None
    assert found.max is not None
    lowest, highest = short_within(found.min, found.max)
    assert found.min <= lowest < highest <= found.max
    assert value_of(found, lowest) == lowest


@pytest.mark.parametrize(
    ("value", "nearest"),
    [(0.1, 0.1), (3e-4, 3e-4), (0.0012345, 0.00123), (0.99951, 1.0), (0.0, 0.0), (-2.345e6, -2.34e6)],
)
def test_short_numbers_are_those_that_a_person_would_write(value: float, nearest: float) -> None:
    assert short(value) == nearest


def test_a_dimension_is_frozen_at_a_value_of_its_own_with_the_evidence() -> None:
    found = frozen(dimension(DEPTH), 8.0, by="ann", at=5.0, reason="48 runs")
    assert found is not None
    assert (found.frozen, found.frozen_value, type(found.frozen_value)) == (True, 8, int)
    assert (found.frozen_by, found.frozen_at, found.frozen_reason) == ("ann", 5.0, "48 runs")
    for wrong in (3, 25, 8.5, "8", True):
        with pytest.raises(Invalid, match="'DEPTH'"):
            frozen(dimension(DEPTH), wrong, by="ann", at=5.0, reason="")


def test_unfreezing_leaves_the_dimension_as_it_was_before() -> None:
    before = dimension(LR)
    held = frozen(before, 0.001, by="ann", at=5.0, reason="x")
    assert held is not None
    assert unfrozen(held) == before
    assert unfrozen(before) is None


def test_defining_again_adds_and_changes_and_replacing_removes_the_rest() -> None:
    before, deeper = [dimension(LR), dimension(DEPTH)], [dimension(DEPTH, max=30), dimension(OPTIMIZER)]
    made, replaced = (defined(before, deeper, replace=r, by="ann", at=1.0) for r in (False, True))
    assert [d.name for d in made.dimensions] == ["LR", "DEPTH", "OPTIMIZER"]
    assert (made.added, made.changed, made.removed) == (["OPTIMIZER"], ["DEPTH"], [])
    assert [d.name for d in replaced.dimensions] == ["DEPTH", "OPTIMIZER"]
    assert (replaced.added, replaced.changed, replaced.removed) == (["OPTIMIZER"], ["DEPTH"], ["LR"])


def test_what_was_measured_stays_while_the_dtype_does() -> None:
    measured = dimension(LR).model_copy(update={"importance": 0.5, "n_samples": 30})
    wider = defined([measured], [dimension(LR, max=1)], replace=False, by="ann", at=1.0).dimensions[0]
    other = defined([measured], [dimension(LR, dtype="float")], replace=False, by="ann", at=1.0).dimensions[0]
    assert (wider.importance, wider.n_samples) == (0.5, 30)
    assert (other.importance, other.n_samples) == (None, 0)


def test_a_freeze_stands_while_its_value_is_in_the_range() -> None:
    held = frozen(dimension(DEPTH), 20, by="ann", at=5.0, reason="x")
    assert held is not None
    kept = defined([held], [dimension(DEPTH, max=22)], replace=True, by="bob", at=6.0)
    assert (kept.dimensions[0].frozen_value, kept.dimensions[0].frozen_by, kept.froze) == (20, "ann", [])
    with pytest.raises(Invalid, match="20 is outside its range, and it is frozen there"):
        defined([held], [dimension(DEPTH, max=16)], replace=True, by="bob", at=6.0)


def test_a_tag_has_so_many_dimensions_and_each_name_once() -> None:
    many = [dimension(DEPTH, name=f"D{n}") for n in range(MOST)]
    with pytest.raises(Invalid, match=f"a tag has at most {MOST}"):
        defined(many, [dimension(LR)], replace=False, by="ann", at=1.0)
    with pytest.raises(Invalid, match="two dimensions of this name"):
        defined([], [dimension(LR), dimension(LR)], replace=False, by="ann", at=1.0)


@pytest.mark.parametrize(
    "changes",
    [{"min": 30}, {"max": None}, {"frozen": True}, {"frozen": True, "frozen_value": 99}, {"name": "a b"}],
)
def test_a_stored_dimension_that_could_not_be_defined_is_a_violation(changes: dict[str, Any]) -> None:
    [told] = violations([dimension(DEPTH).model_copy(update=changes), dimension(LR)])
    assert "dimension" in told
