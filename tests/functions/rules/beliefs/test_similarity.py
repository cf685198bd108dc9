"""Claims of the same meaning are recognised in other words, and claims that differ in little are told apart."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import snowballstemmer
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.fuzz import ratio

from functions.rules.beliefs import readings
from functions.rules.beliefs.readings import reading
from functions.rules.beliefs.similarity import (
    THRESHOLD,
    Claim,
    names_of,
    normalised_statement,
    similarity,
)
from tests.functions.rules.swarm.sample import OPTIMIZER, SOME, dimension

NAMES = (
    "LEARNING_RATE",
    "LR",
    "DEPTH",
    "N_LAYERS",
    "TOTAL_BATCH_SIZE",
    "DEVICE_BATCH_SIZE",
    "BATCH_SIZE",
    "WINDOW_PATTERN",
    "head_dim",
    "HIDDEN_SIZE",
    "WEIGHT_DECAY",
    "muon_lr",
    "OPTIMIZER",
    "DROPOUT",
    "adam",
    "sgd",
    "lion",
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
    right = [(similarity(Claim(one), Claim(other), NAMES) >= THRESHOLD) == same for one, other, same in some]
    return sum(right) / len(right)


# -- the labelled list


def test_the_list_has_enough_pairs_of_every_kind_and_none_twice() -> None:
    everything = pairs(0) + pairs(1) + pairs(0, unseen=True)

    assert len({(one, other) for one, other, _ in everything}) == len(everything) >= 180
    assert 0.35 < sum(same for *_, same in everything) / len(everything) < 0.65


def test_pairs_that_did_not_set_the_threshold_are_told_right() -> None:
    assert accuracy(pairs(0)) >= 0.96
    assert accuracy(pairs(1)) >= 0.94
    assert accuracy(pairs(0, unseen=True)) >= 0.85


def test_another_threshold_nearby_would_tell_them_as_well() -> None:
    scores = [(similarity(Claim(one), Claim(other), NAMES), same) for one, other, same in pairs(0)]

    for threshold in (0.68, THRESHOLD, 0.88):
        assert sum((score >= threshold) == same for score, same in scores) / len(scores) >= 0.95


def test_edit_distance_would_have_it_the_wrong_way_round() -> None:
    one = "A higher learning rate lowers the validation loss"
    paraphrase, variant = (
        "Validation loss drops when the learning rate is raised",
        one.replace("er l", "er m", 1),
    )

    assert ratio(one, paraphrase) < ratio(one, variant)
    assert similarity(Claim(one), Claim(paraphrase), NAMES) >= THRESHOLD


# -- what similarity is


@given(st.text(max_size=80), st.text(max_size=80))
def test_similarity_is_symmetric_and_from_0_to_1(one: str, other: str) -> None:
    found = similarity(Claim(one), Claim(other), NAMES)

    assert 0 <= found <= 1
    assert found == pytest.approx(similarity(Claim(other), Claim(one), NAMES))


@given(st.text(max_size=80))
def test_a_claim_is_like_itself(statement: str) -> None:
    assert similarity(Claim(statement), Claim(statement), NAMES) == 1


@pytest.mark.parametrize(
    "statement", ["", " ", "£", "!?", "1", "#", "not", "١٢", "1" * 400, "2²", "0\x1f", "5 %", "9e999 deeper"]
)
def test_texts_that_say_little_can_be_read(statement: str) -> None:
    assert similarity(Claim(statement), Claim("DEPTH matters"), NAMES) < THRESHOLD


def test_claims_about_other_constraints_or_tests_differ() -> None:
    deep, deeper = ({"DEPTH": {"min": least}} for least in (12, 16))
    said = "deeper is better"

    def alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
        return similarity(Claim(said, one), Claim("more depth helps", other), NAMES)

    assert alike(deep, {"DEPTH": {"min": 12.0}}) >= THRESHOLD
    assert alike(deep, {}) >= THRESHOLD
    assert alike(deep, deeper) < THRESHOLD
    assert similarity(Claim(said, {}, {"values": [4]}), Claim(said, {}, {"values": [8]}), NAMES) < THRESHOLD


# -- what a reading is


def test_a_reading_says_what_a_claim_is_about_and_which_way_it_goes() -> None:
    found = reading("A lower LR raises the loss of 12 deep networks", NAMES)

    assert found.about == {"learning rate", "depth"}
    assert found.numbers == {12.0}
    assert (found.sign, found.negated) == (1, False)
    assert "network" in found.words


@pytest.mark.parametrize(
    ("statement", "sign"),
    [
        ("DEPTH matters", 0),
        ("more depth helps", 1),
        ("more depth hurts", -1),
        ("less depth hurts", 1),
        ("more depth lowers the loss", 1),
        ("more depth lowers the accuracy", -1),
        ("the loss falls when depth rises", 1),
    ],
)
def test_directions_cancel_out(statement: str, sign: int) -> None:
    assert reading(statement, NAMES).sign == sign


def test_a_dimension_is_known_by_its_name_and_what_people_call_it() -> None:
    for spelling in ("LEARNING_RATE", "learning rates", "LR", "step size"):
        assert reading(f"{spelling} matters", NAMES).about == {"learning rate"}
    assert reading("muon_lr matters", NAMES).about == {"muon learn rate"}


def test_texts_that_a_dimension_may_be_are_names_too_but_letters_are_not() -> None:
    pattern = dimension("WINDOW_PATTERN", "categorical", categories=["L", "SSSL", 3])

    assert names_of([OPTIMIZER, pattern]) == (
        "OPTIMIZER",
        "WINDOW_PATTERN",
        "adam",
        "sgd",
        "lion",
        "adafactor",
        "SSSL",
    )
    assert len(names_of(SOME)) == 9


def test_a_word_that_says_something_else_is_no_name() -> None:
    assert reading("no decay is best", ("SCHEDULE", "no", "low", "--")) == reading("no decay is best")


def test_a_statement_is_the_same_in_other_letters_and_spaces() -> None:
    assert normalised_statement("  Depth  matters. ") == normalised_statement("depth matters")


def test_words_that_are_read_in_several_threads_have_the_stems_of_one() -> None:
    stems = snowballstemmer.stemmer("english")
    endings = ("ation", "ational", "ing", "edly", "ness", "fulness", "ization", "ies")
    roots = ("generaliz", "relat", "optimiz", "regulariz", "hope", "excess")
    words = [f"{a}{b}{c}" for a in ("", "re", "un", "over") for b in roots for c in endings]
    expected = {word: stems.stemWord(word) for word in words}
    readings._stem.cache_clear()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            turned = [[*words[at:], *words[:at]] for at in range(0, len(words), len(words) // 4)]
            list(threads.map(lambda some: [readings._stem(word) for word in some], turned))
    finally:
        sys.setswitchinterval(before)

    assert {word: readings._stem(word) for word in words} == expected
