"""How alike two claims are: of near-duplicates one is enough."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from functions.rules.beliefs.readings import Reading, reading
from state.records import Dimension

THRESHOLD: Final = 0.75
"""Similarity from which a claim says the same as another, set on half of a list of labelled pairs."""
CONFLICT: Final = 0.5
"""What is left of the similarity of claims about different things, or with other numbers, or the other way round."""
DIFFERENT_TERMS: Final = 0.6
"""The same for two constraints, or two tests, that differ."""
ONE_SIDED_TERMS: Final = 0.9
"""The same where only one of the claims has a constraint, or a test."""
SHORTEST_NAME: Final = 3
"""Letters from which a text that a dimension may be is a name: "L" is a letter."""


@dataclass(frozen=True)
class Claim:
    """What is compared of a hypothesis."""

    statement: str
    constraint: Mapping[str, Any] = field(default_factory=dict)
    test_spec: Mapping[str, Any] | None = None


def similarity(one: Claim, other: Claim, names: tuple[str, ...] = ()) -> float:
    """0 to 1, given the `names_of` the tag's dimensions.

    The statements are compared by their words (see `reading`), without regard to order. Which hyperparameters and
    numbers they name, which way they go and whether they deny it are compared as such, because these make another
    claim of nearly the same words. So are constraints and tests.
    """
    alike = _of_readings(reading(one.statement, names), reading(other.statement, names))
    for mine, theirs in ((one.constraint, other.constraint), (one.test_spec or {}, other.test_spec or {})):
        if _canonical(mine) != _canonical(theirs):
            alike *= DIFFERENT_TERMS if mine and theirs else ONE_SIDED_TERMS
    return alike


def names_of(dimensions: Sequence[Dimension]) -> tuple[str, ...]:
    """The dimensions, and the texts that they may be, such as "adam"."""
    texts = [c for d in dimensions for c in d.categories or () if isinstance(c, str)]
    return (*(d.name for d in dimensions), *(text for text in texts if len(text) >= SHORTEST_NAME))


def normalised_statement(statement: str) -> str:
    """A statement without regard to case, spaces and the full stop at its end."""
    return " ".join(statement.casefold().split()).rstrip(" .!")


def _of_readings(one: Reading, other: Reading) -> float:
    from rapidfuzz.fuzz import token_set_ratio, token_sort_ratio

    mine, theirs = _text(one), _text(other)
    alike = (token_set_ratio(mine, theirs) + token_sort_ratio(mine, theirs)) / 200
    conflicts = (
        one.about != other.about,
        one.numbers != other.numbers,
        one.sign != other.sign,
        one.negated != other.negated,
    )
    return alike * CONFLICT if any(conflicts) else alike


def _text(of: Reading) -> str:
    """What it is about and its words, for a comparison of words."""
    return " ".join([*sorted(name.replace(" ", "") for name in of.about), *of.words]) or "nothing"


def _canonical(terms: object) -> str:
    """Terms in one spelling: names sorted, 8.0 as 8."""
    return json.dumps(_plain(terms), sort_keys=True)


def _plain(terms: object) -> object:
    if isinstance(terms, Mapping):
        return {str(name): _plain(value) for name, value in terms.items()}
    if isinstance(terms, list | tuple):
        return [_plain(value) for value in terms]
    # not the other way round: an int may be larger than any float
    return int(terms) if isinstance(terms, float) and terms.is_integer() else terms
