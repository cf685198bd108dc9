"""Proposed dimensions: which say the same, and what is wrong with one."""

from __future__ import annotations

from typing import Any

import pytest

from functions.swarm.rules.trial_proposals import id_of, line_of, on_trial, problems
from tests.functions.swarm.rules.searches import DEPTH, LR, proposed


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        *(({"name": name}, True) for name in ("warmup", " WARM_UP ")),
        ({"min": 0, "max": 5e-1}, True),
        ({"max": 0.50004}, True),
        ({"default_value": 0.1, "rationale": "another", "train_py_line": "WARMUP = 0.1"}, True),
        ({"source": "operator", "proposed_by": "bo", "proposed_at": 2.0}, True),
        *((other, False) for other in ({"name": "WARMDOWN"}, {"max": 0.6}, {"min": 0.1})),
        ({"dtype": "float_log", "min": 0.01}, False),
    ],
)
def test_what_says_the_same_in_other_words_is_one_signal(changes: dict[str, Any], is_same: bool) -> None:
    assert (id_of(proposed(**changes)) == id_of(proposed())) is is_same


def test_categories_in_another_order_are_the_same_and_true_is_not_one() -> None:
    one, same, numbers, spelt, other = (
        id_of(proposed(name="GATE", dtype="categorical", categories=categories))
        for categories in (["none", "silu"], ["silu", "none"], [1, 2], [1.0, 2], [True, 2])
    )
    assert (one, numbers) == (same, spelt)
    assert other != numbers


def wrong(**fields: Any) -> list[str]:
    return [*problems(proposed(**fields), [LR, DEPTH])]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"dtype": "int", "min": 0, "max": 1024, "default_value": 0},
        {"dtype": "int", "min": 0, "max": 64, "default_value": 0.0, "train_py_line": "WARMUP: int = 0"},
        {"dtype": "float_log", "min": 1e-5, "max": 0.1, "default_value": 0.001},
        {"max": 1e6},
        {
            "dtype": "categorical",
            "categories": ["none", "silu"],
            "train_py_line": "WARMUP = 'none'  # a gate",
        },
        {"dtype": "categorical", "categories": [*range(1, 9)], "default_value": 4},
    ],
)
def test_a_bounded_dimension_with_a_default_inside_may_be_tried(fields: dict[str, Any]) -> None:
    assert wrong(**fields) == []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": "depth"}, "the tag has DEPTH already"),
        ({"name": "SEED"}, "no dimension may be this constant"),
        ({"name": "a b"}, "this is no name of a constant"),
        ({"min": 0.5, "max": 0.5}, "min 0.5 is not below max 0.5"),
        ({"dtype": "int", "min": 0, "max": 1025, "default_value": 0}, "spans 1025: at most 1024"),
        ({"dtype": "float_log", "min": 1e-5, "max": 0.11, "default_value": 0.001}, "1.1e+04 times min"),
        ({"min": -1.0, "max": 1e6}, "spans 1e+06: at most 1e+06"),
        ({"dtype": "categorical", "categories": [*range(9)], "default_value": 1}, "it has 9 categories"),
        ({"default_value": 0.6}, "its default 0.6 is none of its values"),
        ({"train_py_line": "WARMUP = 0.1"}, "does not set WARMUP to its default 0.0"),
        ({"train_py_line": "import os; WARMUP = 0.0"}, "does not set WARMUP"),
        ({"train_py_line": "WARMUP = f(0.0)"}, "does not set WARMUP"),
        ({"name": "DATA_SEED"}, "repeats of a config differ by their seed"),
        ({"name": "CHECKPOINT_PATH"}, "by its name a place"),
        ({"name": "API_KEY"}, "a secret"),
        ({"name": "_HIDDEN"}, "a private name"),
        ({"name": "TIME_LIMIT_S"}, "a time limit"),
        ({"dtype": "categorical", "categories": ["none", "/etc/passwd"]}, "a path or a file's name"),
        ({"dtype": "categorical", "categories": ["none", "../data.bin"]}, "a path or a file's name"),
        ({"dtype": "categorical", "categories": ["none", "https://x.example/"]}, "a path or a file's name"),
        (
            {"dtype": "categorical", "categories": ["~/a", "b"], "default_value": "b"},
            "a path or a file's name",
        ),
    ],
)
def test_what_is_wrong_with_a_proposal_is_said(fields: dict[str, Any], told: str) -> None:
    assert any(told in problem for problem in wrong(**fields)), wrong(**fields)


def test_a_trial_begins_with_its_share_its_importance_and_its_default() -> None:
    dimension = on_trial(proposed(default_value=0))
    assert (dimension.is_canary, dimension.canary_prob, dimension.importance) == (True, 0.12, 0.08)
    assert dimension.default_value == 0.0
    assert dimension.on_trial


def test_the_line_that_a_script_lacks_follows_from_the_default_where_none_was_given() -> None:
    assert line_of(proposed()) == "WARMUP = 0.0"
    assert line_of(proposed(train_py_line="WARMUP: float = 0.0")) == "WARMUP: float = 0.0"
