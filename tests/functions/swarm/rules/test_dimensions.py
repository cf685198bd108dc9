"""A dimension that contradicts itself is refused by its name; a value that it has is always one of its own."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from functions.swarm.rules.dimensions import (
    MOST,
    DeclaredDimension,
    Definition,
    checked,
    defined,
    ends_of,
    frozen,
    is_short,
    short,
    short_within,
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


@pytest.mark.parametrize(
    "bad", [float("nan"), float("inf"), -float("inf"), 1e-300, 1e300, 2**53 + 1, 10**400]
)
@pytest.mark.parametrize("at", ["min", "max", "categories"])
def test_numbers_that_no_client_can_handle_are_refused(at: str, bad: float) -> None:
    fields: dict[str, Any] = OPTIMIZER | {at: [bad]} if at == "categories" else LR | {at: bad}
    with pytest.raises((Invalid, ValidationError)):
        dimension(fields)


ANY = NUMBERS | st.booleans() | st.text(max_size=5) | st.none() | st.floats() | st.integers()


@given(dimensions(), ANY)
def test_what_is_let_in_stays_valid_and_its_values_are_its_own(found: Dimension, value: Any) -> None:
    stored = Dimension.model_validate_json(found.model_dump_json())
    assert stored.model_dump_json() == found.model_dump_json()
    assert list(violations([stored])) == []
    if found.dtype in ("float", "float_log"):
        lowest, highest = short_within(*ends_of(found))
        assert ends_of(found)[0] <= lowest < highest <= ends_of(found)[1]
    with contextlib.suppress(Invalid):
        has = value_of(found, value)
        assert value_of(found, has) == has
        if found.categories is not None:
            assert json.dumps(has) in {json.dumps(category) for category in found.categories}
        else:
            assert isinstance(has, int | float)
            assert type(has) is (int if found.dtype == "int" else float)
            assert ends_of(found)[0] <= has <= ends_of(found)[1]
            assert found.dtype == "int" or is_short(has)


@pytest.mark.parametrize(
    ("value", "nearest"),
    [(0.1, 0.1), (3e-4, 3e-4), (0.0012345, 0.00123), (0.99951, 1.0), (0.0, 0.0), (-2.345e6, -2.34e6)],
)
def test_short_numbers_are_those_that_a_person_would_write(value: float, nearest: float) -> None:
    assert short(value) == nearest


def test_defining_again_adds_and_changes_and_replacing_removes_the_rest() -> None:
    before, deeper = [dimension(LR), dimension(DEPTH)], [dimension(DEPTH, max=30), dimension(OPTIMIZER)]
    made, replaced = (defined(before, deeper, replace=r, by="ann", at=1.0) for r in (False, True))
    assert [d.name for d in made.dimensions] == ["LR", "DEPTH", "OPTIMIZER"]
    assert (made.added, made.changed, made.removed) == (["OPTIMIZER"], ["DEPTH"], [])
    assert [d.name for d in replaced.dimensions] == ["DEPTH", "OPTIMIZER"]
    assert (replaced.added, replaced.changed, replaced.removed) == (["OPTIMIZER"], ["DEPTH"], ["LR"])


def test_what_was_measured_stays_while_the_dtype_does_and_a_freeze_while_its_value_is_in_the_range() -> None:
    measured = dimension(LR).model_copy(update={"importance": 0.5, "n_samples": 30})
    held = frozen(dimension(DEPTH, min=4.0), 20, by="ann", at=5.0, reason="x")
    assert held is not None

    def anew(before: Dimension, fields: dict[str, Any], **changes: Any) -> Definition:
        return defined([before], [dimension(fields, **changes)], replace=True, by="bob", at=6.0)

    wider, other = (anew(measured, LR, **change).dimensions[0] for change in ({"max": 1}, {"dtype": "float"}))
    assert (wider.importance, wider.n_samples) == (0.5, 30)
    assert (other.importance, other.n_samples) == (None, 0)
    kept = anew(held, DEPTH, max=22)
    assert (kept.dimensions[0].frozen_value, kept.dimensions[0].frozen_by, kept.froze) == (20, "ann", [])
    with pytest.raises(Invalid, match="20 is outside its range, and it is frozen there"):
        anew(held, DEPTH, max=16)


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
