"""A tag begins with one hypothesis for each dimension, and takes others from its dimensions.toml."""

from __future__ import annotations

from typing import Any

import pytest

from functions.beliefs.rules.declaring import (
    DeclaredHypothesis,
    bootstrapped,
    declared_hypotheses,
    new_hypothesis,
)
from functions.beliefs.rules.specs import named_dimensions, with_rival
from state.errors import Invalid
from state.records import Dimension, Hypothesis
from tests.functions.beliefs.rules.sample import REFERENCE, claim
from tests.functions.swarm.rules.sample import DEPTH, LR, OPTIMIZER, SOME, at, dimension

DEEPER: dict[str, Any] = {"statement": "deeper is better", "config_constraint": {"DEPTH": {"min": 12}}}


def known(hypotheses: list[Hypothesis]) -> dict[str, str]:
    return {h.hypothesis_id: h.statement for h in hypotheses}


def register(table: dict[str, Any], statements: dict[str, str] | None = None) -> Hypothesis:
    (declared,) = declared_hypotheses([table])
    return new_hypothesis(declared, "swarm", SOME, statements or {}, {"LR": 0.01}, source="operator", now=5.0)


def test_every_dimension_that_may_vary_has_a_hypothesis_at_even_odds() -> None:
    found = bootstrapped("swarm", [LR, at(DEPTH, 8), OPTIMIZER], {}, {"LR": 0.01}, 5.0)

    assert [(h.statement, h.dimensions) for h in found] == [
        ("LR matters", ["LR"]),
        ("OPTIMIZER matters", ["OPTIMIZER"]),
    ]
    assert {(h.alpha, h.beta, h.source, h.status, h.created_at) for h in found} == {
        (2.0, 2.0, "default", "active", 5.0)
    }
    assert all(h.reference_config == {"LR": 0.01} for h in found)


def test_only_a_dimension_that_is_new_gets_one_later() -> None:
    first = bootstrapped("swarm", [LR, OPTIMIZER], {}, {}, 5.0)
    later = bootstrapped("swarm", [LR, DEPTH, OPTIMIZER], known(first), {}, 9.0)
    assert [h.dimensions for h in later] == [["DEPTH"]]
    assert bootstrapped("swarm", [LR, DEPTH, OPTIMIZER], known(first + later), {}, 10.0) == []


def test_ids_are_the_same_whenever_they_are_made_and_others_in_another_tag() -> None:
    one, again = (bootstrapped("swarm", SOME, {}, {}, now) for now in (1.0, 2.0))
    other = bootstrapped("else", SOME, {}, {}, 1.0)
    assert known(one) == known(again)
    assert known(one).keys().isdisjoint(known(other))
    assert all(len(name) == 10 and name.startswith("hyp_") for name in known(one))


def test_a_table_becomes_a_hypothesis_about_what_it_constrains_and_names() -> None:
    found = register({**DEEPER, "statement": "deeper is better with less dropout", "type": "interaction"})
    assert (found.dimensions, found.config_constraint) == (["DEPTH", "DROPOUT"], {"DEPTH": {"min": 12}})
    assert (found.kind, found.importance, found.source) == ("interaction", 0.5, "operator")
    assert found.reference_config == {"LR": 0.01}


def test_a_constraint_has_its_values_as_the_dimensions_do() -> None:
    constraint = {"DEPTH": [8.0, 12], "LR": 0.0012345, "OPTIMIZER": "sgd", "DROPOUT": {"max": 0.2}}
    found = register({"statement": "s", "config_constraint": constraint}).config_constraint
    assert repr(found["DEPTH"]) == "[8, 12]"
    assert found == {"DEPTH": [8, 12], "LR": 0.00123, "OPTIMIZER": "sgd", "DROPOUT": {"max": 0.2}}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"statement": None}, "statement"),
        ({"statement": "two\nlines"}, "statement"),
        ({"importance": 1.5}, "importance"),
        ({"type": "perhaps"}, "type"),
        ({"belief": 0.9}, "there is no field 'belief'"),
        ({"dimensions": ["WIDTH"]}, "dimensions: 'WIDTH' is no dimension"),
        ({"config_constraint": {"WIDTH": 3}}, "config_constraint: 'WIDTH' is no dimension"),
        ({"config_constraint": {"DEPTH": 3}}, "config_constraint.DEPTH"),
        ({"config_constraint": {"DEPTH": [8, 99]}}, "config_constraint.DEPTH[1]"),
        ({"config_constraint": {"DEPTH": {"max": 99}}}, "config_constraint.DEPTH.max"),
        ({"config_constraint": {"DEPTH": {"min": 12, "max": 8}}}, "config_constraint.DEPTH"),
        ({"config_constraint": {"OPTIMIZER": {"min": 1}}}, "config_constraint.OPTIMIZER"),
    ],
)
def test_a_wrong_table_is_told_with_its_field_and_a_remedy(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(Invalid) as refusal:
        register({**DEEPER, **wrong})
    assert told in refusal.value.detail
    assert refusal.value.hint


def test_a_constraint_that_a_frozen_dimension_does_not_meet_is_refused() -> None:
    with pytest.raises(Invalid, match="frozen at 8"):
        new_hypothesis(
            DeclaredHypothesis(**DEEPER), "swarm", [at(DEPTH, 8)], {}, {}, source="operator", now=1.0
        )


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("a higher Learning Rate helps", ["LEARNING_RATE"]),
        ("learning-rate and depth interact", ["LEARNING_RATE", "DEPTH"]),
        ("depths beyond 12 hurt", []),
        ("a model of a kind", []),
        ("LR decides", ["LR"]),
        ("lr decides", []),
    ],
)
def test_a_statement_names_dimensions_as_people_spell_them(statement: str, named: list[str]) -> None:
    assert named_dimensions(statement, ["LEARNING_RATE", "DEPTH", "LR", "A"]) == named


TWO = dimension("OPTIMIZER", "categorical", categories=["adam", "sgd"])
ALL = [LR, DEPTH, TWO]


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
    assert moved({"DEPTH": 8, "OPTIMIZER": "adam"}, [LR, at(DEPTH, 8), TWO]) == {"OPTIMIZER": "sgd"}
