"""Claims of the same meaning are recognised in other words, and claims that differ in little are told apart."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.beliefs.rules.gate import THRESHOLD, ComparedClaim, names_of, similarity
from tests.functions.swarm.rules.sample import OPTIMIZER, SOME, dimension

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
