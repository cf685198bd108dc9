"""Every proposal gets one answer with its reason; only what is new and can be tested becomes a hypothesis."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.beliefs.rules.gate import (
    LEAST_IMPORTANCE,
    THRESHOLD,
    ComparedClaim,
    Gated,
    GateReason,
    gated,
    names_of,
    similarity,
)
from state.records import Hypothesis
from tests.functions.beliefs.rules.sample import claim
from tests.functions.swarm.rules.sample import OPTIMIZER, SOME, dimension

PROPOSAL: dict[str, Any] = {
    "statement": "Models with a DEPTH of 16 or more reach a lower loss",
    "type": "positive",
    "importance": 0.7,
    "config_constraint": {"DEPTH": {"min": 16}},
    "rationale": "the best five are deep",
}
TEST: dict[str, Any] = {"type": "single_factor_effect", "variable": "DEPTH", "values": [6, 12.0]}
TEST["decision_rule"] = {"threshold": 0.01}
KNOWN = [
    claim("hyp_00000a", statement="LR matters", dimensions=["LR"]),
    claim("hyp_00000b", statement="Less dropout improves the loss", settled="refuted"),
]
REASONS: dict[GateReason, dict[str, Any]] = {
    "schema_valid_and_novel": {"importance": LEAST_IMPORTANCE},
    "schema_invalid": {"type": "perhaps"},
    "missing_statement": {"statement": " "},
    "invalid_phase": {"phase": "done"},
    "duplicate_statement": {"statement": "lr  matters."},
    "duplicate_semantic": {"statement": "The loss gets lower with smaller dropout", "config_constraint": {}},
    "importance_too_low": {"importance": 0.149},
    "invalid_constraint": {"config_constraint": {"DEPTH": 99}},
    "invalid_parent_id": {"parent_id": "hyp_00000c"},
    "missing_test_spec": {"phase": "validation"},
    "invalid_test_spec": {"phase": "validation", "test_spec": {**TEST, "values": [6, 99]}},
}


def answer_to(known: list[Hypothesis] = KNOWN, **fields: Any) -> Gated:
    return gated({**PROPOSAL, **fields}, "swarm", SOME, known, {"LR": 0.01}, source="llm_proposed", now=7.0)


@pytest.mark.parametrize("reason", get_args(GateReason))
def test_every_reason_is_reached(reason: GateReason) -> None:
    found = answer_to(**REASONS[reason])
    assert found.answer.reason == reason
    assert found.answer.accepted == found.answer.registry_add == (reason == "schema_valid_and_novel")
    assert (found.hypothesis is not None) == found.answer.accepted
    assert found.answer.immediate_forced_pursuit is False
    assert found.answer.detail
    assert found.answer.accepted or found.answer.hint


def test_what_is_accepted_begins_at_even_odds_with_what_was_proposed() -> None:
    found = answer_to(parent_id="hyp_00000a").hypothesis
    assert found is not None
    assert (found.alpha, found.beta, found.status, found.n_experiments) == (2, 2, "active", 0)
    assert (found.statement, found.dimensions) == (PROPOSAL["statement"], ["DEPTH"])
    assert found.source == "llm_proposed"
    assert (found.parent_id, found.rationale, found.created_at) == ("hyp_00000a", PROPOSAL["rationale"], 7.0)
    assert found.reference_config == {"LR": 0.01}


def test_a_test_is_kept_with_values_as_the_dimensions_have_them() -> None:
    found = answer_to(phase="validation", test_spec=TEST).hypothesis
    assert found is not None
    assert found.test_spec is not None
    assert repr(found.test_spec["values"]) == "[6, 12]"
    assert found.test_spec["min_runs_per_cell"] == 3
    again = answer_to([found], statement="LR matters", phase="validation", test_spec=found.test_spec)
    assert again.hypothesis is not None
    assert again.hypothesis.test_spec == found.test_spec


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"statement": 3}, "statement"),
        ({"statement": "x" * 501}, "statement"),
        ({"phase": ["validation"]}, "phase"),
        ({"phase": None}, "phase"),
        ({"importance": "high"}, "importance"),
        ({"importance": float("nan")}, "importance"),
        ({"config_constraint": [1]}, "config_constraint"),
        ({"config_constraint": {"DEPTH": {"max": 10**400}}}, "config_constraint.DEPTH.max"),
        ({"test_spec": {**TEST, "variable": "WIDTH"}}, "test_spec.variable"),
        ({"test_spec": {**TEST, "decision_rule": {}}}, "test_spec.decision_rule.threshold"),
        ({"alpha": 90}, "alpha"),
    ],
)
def test_a_rejection_names_the_field(wrong: dict[str, Any], field: str) -> None:
    found = answer_to(**wrong).answer
    assert not found.accepted
    assert field in found.detail


def test_a_claim_that_names_no_dimension_is_about_what_its_test_varies() -> None:
    bigger: dict[str, Any] = {"statement": "bigger models reach a lower loss", "config_constraint": {}}
    tested, vague = answer_to(**bigger, test_spec=TEST), answer_to(**bigger)
    assert [found.hypothesis and found.hypothesis.dimensions for found in (tested, vague)] == [["DEPTH"], []]
    assert tested.answer.detail == "it has workers from the next allocation"
    assert "about no dimension" in vague.answer.detail


def test_a_duplicate_is_told_with_what_it_repeats_and_another_number_is_none() -> None:
    first = answer_to([]).hypothesis
    assert first is not None
    deep, deeper = {"DEPTH": {"min": 20}}, "Models with a DEPTH of 20 or more reach a lower loss"

    exact, other_words = (
        answer_to(**REASONS[why]).answer for why in ("duplicate_statement", "duplicate_semantic")
    )
    again = answer_to([first], statement="Loss is lower for networks at least 16 layers deep").answer
    other = answer_to([first], statement=deeper, config_constraint=deep).answer

    assert (exact.duplicate_of, exact.similarity) == ("hyp_00000a", 1.0)
    assert other_words.duplicate_of == "hyp_00000b"  # which was refuted
    assert other_words.similarity is not None
    assert other.accepted
    assert (other.similarity or 1.0) < (again.similarity or 0.0)
    assert answer_to([first], config_constraint=deep).answer.reason == "duplicate_statement"
    assert answer_to([]).answer.similarity is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from([*PROPOSAL, "phase", "test_spec", "parent_id", "dimensions", "other"])


@given(st.dictionaries(FIELDS, JSON), st.booleans())
def test_anything_at_all_gets_an_answer(fields: dict[str, Any], alone: bool) -> None:
    proposal = fields if alone else {**PROPOSAL, **fields}
    found = gated(proposal, "swarm", SOME, KNOWN, {}, source="llm_proposed", now=1.0)
    assert found.answer.reason in get_args(GateReason)


@given(st.dictionaries(st.sampled_from([*TEST, "fixed", "grid", "variables", "cut", "stop_condition"]), JSON))
def test_any_test_spec_at_all_gets_an_answer(fields: dict[str, Any]) -> None:
    found = answer_to(phase="validation", test_spec={**TEST, **fields})
    assert found.answer.reason in ("invalid_test_spec", "schema_valid_and_novel")


NAMES = (
    *("LEARNING_RATE", "LR", "DEPTH", "N_LAYERS", "TOTAL_BATCH_SIZE", "DEVICE_BATCH_SIZE", "BATCH_SIZE"),
    *("WINDOW_PATTERN", "head_dim", "HIDDEN_SIZE", "WEIGHT_DECAY", "muon_lr", "OPTIMIZER", "DROPOUT"),
    *("adam", "sgd", "lion"),
)
LISTED = tomllib.loads((Path(__file__).parent / "paraphrases.toml").read_text())
Pair = tuple[str, str, bool]


def pairs(half: int, *, unseen: bool = False) -> list[Pair]:
    """Of each group every second pair; of those that changed nothing of the rule, all."""
    return [
        (one, other, group["same"])
        for name, group in LISTED.items()
        if name.startswith("unseen") == unseen
        for n, (one, other) in enumerate(group["pairs"])
        if unseen or n % 2 == half
    ]


def accuracy(some: list[Pair]) -> float:
    right = [
        (similarity(ComparedClaim(one), ComparedClaim(other), NAMES) >= THRESHOLD) == same
        for one, other, same in some
    ]
    return sum(right) / len(right)


def test_pairs_that_did_not_set_the_threshold_are_told_right() -> None:
    assert accuracy(pairs(0)) >= 0.96
    assert accuracy(pairs(1)) >= 0.92
    assert accuracy(pairs(0, unseen=True)) >= 0.82


@given(st.text(max_size=80), st.text(max_size=80))
def test_similarity_is_symmetric_and_from_0_to_1(one: str, other: str) -> None:
    found = similarity(ComparedClaim(one), ComparedClaim(other), NAMES)
    assert 0 <= found <= 1
    assert found == pytest.approx(similarity(ComparedClaim(other), ComparedClaim(one), NAMES))


@given(st.text(max_size=80))
def test_a_claim_is_like_itself(statement: str) -> None:
    assert similarity(ComparedClaim(statement), ComparedClaim(statement), NAMES) == 1


@pytest.mark.parametrize(
    "statement", ["", " ", "£", "!?", "1", "#", "not", "١٢", "1" * 400, "2²", "0\x1f", "5 %", "9e999 deeper"]
)
def test_texts_that_say_little_can_be_read(statement: str) -> None:
    assert similarity(ComparedClaim(statement), ComparedClaim("DEPTH matters"), NAMES) < THRESHOLD


def test_claims_about_other_constraints_or_tests_differ() -> None:
    deep, deeper = ({"DEPTH": {"min": least}} for least in (12, 16))
    said = "deeper is better"

    def alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
        return similarity(ComparedClaim(said, one), ComparedClaim("more depth helps", other), NAMES)

    assert alike(deep, {"DEPTH": {"min": 12.0}}) >= THRESHOLD
    assert alike(deep, {}) >= THRESHOLD
    assert alike(deep, deeper) < THRESHOLD
    assert (
        similarity(ComparedClaim(said, {}, {"values": [4]}), ComparedClaim(said, {}, {"values": [8]}), NAMES)
        < THRESHOLD
    )


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("more depth helps", "less depth hurts", True),
        ("more depth helps", "the loss falls when depth rises", True),
        ("more depth lowers the loss", "more depth raises the loss", False),
        ("more depth lowers the accuracy", "more depth lowers the loss", False),
        ("a depth higher than 8 helps", "depth over 8 helps", True),
        ("DEPTH 16 is better than 8", "DEPTH 8 is better than 16", False),
        ("DEPTH matters", "DEPTH does not matter", False),
        ("dropout of 10 % is best", "dropout of 0.1 is best", True),
        ("LEARNING_RATE matters", "learning rates matter", True),
        ("LR matters", "LEARNING_RATE matters", True),
        ("LR matters", "muon_lr matters", False),
    ],
)
def test_direction_order_negation_and_names_are_compared_exactly(one: str, other: str, same: bool) -> None:
    assert (similarity(ComparedClaim(one), ComparedClaim(other), NAMES) >= THRESHOLD) == same


def test_texts_that_a_dimension_may_be_are_names_too_but_letters_are_not() -> None:
    pattern = dimension("WINDOW_PATTERN", "categorical", categories=["L", "SSSL", 3])
    names = ("OPTIMIZER", "WINDOW_PATTERN", "adam", "sgd", "lion", "adafactor", "SSSL")
    assert names_of([OPTIMIZER, pattern]) == names
    assert len(names_of(SOME)) == 9
