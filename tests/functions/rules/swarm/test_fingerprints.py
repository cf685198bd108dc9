"""Two configs have one fingerprint where they set a train.py to the same values, and only there."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from functions.rules.swarm.dimensions import same
from functions.rules.swarm.duplicates import canonical, fingerprint, normalised
from state.records import Dimension, Value
from tests.functions.rules.swarm.sample import (
    DEPTH,
    DROPOUT,
    LR,
    OPTIMIZER,
    SOME,
    VALUES,
    dimension,
    dimensions,
)

CONFIGS = st.dictionaries(st.text(max_size=4), VALUES, max_size=5)


def fp(**config: Value) -> str:
    return fingerprint(config, SOME)


def test_a_fingerprint_is_the_digest_of_a_text_that_never_changes() -> None:
    text = canonical({"LR": 0.001, "DEPTH": 8, "NAME": "é"})

    assert text == r'{"DEPTH":8,"LR":0.001,"NAME":"\u00e9"}'
    assert fp(LR=0.001, DEPTH=8) == hashlib.sha256(b'{"DEPTH":8,"LR":0.001}').hexdigest()


@given(CONFIGS, st.randoms())
def test_the_order_of_names_does_not_matter(config: dict[str, Value], rng: object) -> None:
    assert canonical(dict(reversed(config.items()))) == canonical(config)


@given(CONFIGS)
def test_a_canonical_config_reads_back_as_the_config(config: dict[str, Value]) -> None:
    read = json.loads(canonical(config))

    assert read == config
    assert {name: type(value) for name, value in read.items()} == {n: type(v) for n, v in config.items()}
    assert canonical(read) == canonical(config)


@given(CONFIGS, CONFIGS)
def test_configs_that_differ_have_other_texts(one: dict[str, Value], other: dict[str, Value]) -> None:
    assume(one.keys() != other.keys() or any(not same(one[name], other[name]) for name in one))

    assert canonical(one) != canonical(other)


@pytest.mark.parametrize("text", ["1e-3", "0.001", "1.0E-3", "0.00100"])
def test_a_float_has_one_fingerprint_however_it_was_spelt(text: str) -> None:
    assert fingerprint(json.loads(f'{{"LR": {text}}}'), [LR]) == fp(LR=0.001)


def test_a_number_has_the_type_of_its_dimension() -> None:
    assert fp(DROPOUT=0) == fp(DROPOUT=0.0) == fp(DROPOUT=-0.0)
    assert fp(DEPTH=8.0) == fp(DEPTH=8)
    assert fp(DEPTH=8) != fp(DEPTH=9)
    assert normalised({"DEPTH": 8.0, "DROPOUT": 0}, [DEPTH, DROPOUT]) == {"DEPTH": 8, "DROPOUT": 0.0}


def test_true_is_not_one_nor_a_text_a_number() -> None:
    flag = [dimension("FLAG", "categorical", categories=[1, True, "1", 0, False])]

    assert len({fingerprint({"FLAG": value}, flag) for value in (1, True, "1", 0, False)}) == 5
    assert fingerprint({"FLAG": 1.0}, flag) == fingerprint({"FLAG": 1}, flag)
    assert fp(DROPOUT=True) != fp(DROPOUT=1)


def test_values_that_no_dimension_has_any_more_keep_their_fingerprint() -> None:
    beyond: dict[str, Value] = {"LR": 5.0, "OPTIMIZER": "adagrad", "GONE": 3, "DEPTH": 10**400}

    assert fingerprint(beyond, SOME) == fingerprint(dict(reversed(beyond.items())), SOME)
    assert fingerprint(beyond, SOME) != fingerprint(beyond | {"GONE": 4}, SOME)
    assert normalised(beyond, [LR, OPTIMIZER]) == beyond


@given(dimensions(), VALUES)
def test_a_normalised_config_stays_as_it_is(found: Dimension, value: Value) -> None:
    once = normalised({"A": value}, [found])

    assert canonical(normalised(once, [found])) == canonical(once)
    assert same(once["A"], value)
