"""What a claim in plain words says: its dimensions and numbers, which way it goes, and its other words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from threading import Lock

from functions.rules.beliefs.vocabulary import (
    ABBREVIATIONS,
    BAD,
    CLAUSE,
    COMPARING,
    CONCEPTS,
    DOWN,
    EFFECT,
    EMPTY,
    ENOUGH,
    GOOD,
    LOW_IS_GOOD,
    METRICS,
    NEED,
    NOT,
    NUMBER_WORDS,
    OF_CONCEPTS,
    SPEED,
    UP,
)

SAID = " ".join((UP, DOWN, GOOD, BAD, NOT, METRICS, EMPTY, CLAUSE))
"""Words that are no others: a reading says otherwise what they say."""

_TOKEN = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?(?:\s?%)?|\.\d+(?:e[+-]?\d+)?|[^\W\d_]+", re.IGNORECASE)


@dataclass(frozen=True)
class Reading:
    """What a statement says."""

    about: frozenset[str]
    """Hyperparameters."""
    numbers: frozenset[float]
    sign: int
    """1 and -1: which way it goes; 0: no direction is claimed."""
    negated: bool
    words: tuple[str, ...]
    """The other words' stems, sorted, each once."""


@lru_cache(maxsize=8192)
def reading(statement: str, names: tuple[str, ...] = ()) -> Reading:
    """What a statement says, given the names of the tag's dimensions and of their values.

    Synonyms of a direction are one word, and so are two that cancel out: to lower the loss is to improve, and what
    is worse than another is what the other is better than.
    """
    tokens = _joined(_tokens(statement), _phrases(names))
    numbers = frozenset(found for token in tokens if (found := _number(token)) is not None)
    about = frozenset(token[1:] for token in tokens if token.startswith("#"))
    negations = sum(token in _stems(NOT) for token in tokens)
    interacts = len(about) > 1
    words = {_word(token, interacts) for token in tokens} - {""}
    if "interact" in words:
        words.discard("effect")
    return Reading(about, numbers, _sign(tokens), negations % 2 == 1, tuple(sorted(words)))


# -- tokens


def _tokens(statement: str) -> list[str]:
    """Stems, numbers, and `#concept` for adjectives that name one, behind the direction that they give it."""
    found: list[str] = []
    plain = unicodedata.normalize("NFKC", statement).casefold().replace("n't", " not")
    for text in (match.group() for match in _TOKEN.finditer(plain)):
        if text[0].isdecimal() or text[0] == ".":
            found.append(text)
        elif text in OF_CONCEPTS:
            concept, direction = OF_CONCEPTS[text]
            found += [_stem("higher") if direction > 0 else _stem("lower"), f"#{concept}"]
        else:
            found += [_stem(part) for part in ABBREVIATIONS.get(text, text).split()]
    return found


def _joined(tokens: Sequence[str], phrases: dict[tuple[str, ...], str]) -> list[str]:
    """The tokens with each phrase as one `#concept`, the longest phrase first."""
    longest, found, at = max(map(len, phrases)), list[str](), 0
    while at < len(tokens):
        for length in range(min(longest, len(tokens) - at), 0, -1):
            if concept := phrases.get(tuple(tokens[at : at + length])):
                found.append(f"#{concept}")
                at += length
                break
        else:
            found.append(tokens[at])
            at += 1
    return found


@lru_cache(maxsize=64)
def _phrases(names: tuple[str, ...]) -> dict[tuple[str, ...], str]:
    """Concepts by the stems of what they are called; what else the tag has is called by its own name."""
    known = {tuple(_tokens(phrase)): concept for phrase, concept in CONCEPTS.items()}
    own = {tuple(_tokens(name)): " ".join(_tokens(name)) for name in names}
    # a scheduler may be "none", which says something else in a sentence
    own = {spelt: name for spelt, name in own.items() if not _stems(SAID).issuperset(spelt)}
    return own | known


@cache
def _stems(words: str) -> frozenset[str]:
    return frozenset(map(_stem, words.split()))


_stemming = Lock()
"""The stemmer holds the word that it works on, and proposals are looked at in threads."""


@lru_cache(maxsize=8192)
def _stem(word: str) -> str:
    with _stemming:
        return _stemmer()(word)


@cache
def _stemmer() -> Callable[[str], str]:
    """Porter's second stemmer of English (snowballstem.org)."""
    import snowballstemmer

    found: Callable[[str], str] = snowballstemmer.stemmer("english").stemWord
    return found


def _number(token: str) -> float | None:
    if token[0].isdecimal() or token[0] == ".":
        return float(token.rstrip("%")) / (100 if token.endswith("%") else 1)
    return _number_words().get(token)


@cache
def _number_words() -> dict[str, float]:
    return {_stem(word): number for word, number in NUMBER_WORDS.items()}


def _word(token: str, interacts: bool) -> str:
    """The token as one of the other words; empty where something else of the reading says it."""
    if token.startswith("#") or _number(token) is not None:
        return ""
    if token in _stems(SPEED):
        return "fast"
    if token in _stems(ENOUGH):
        return "enough"
    if token in _stems(NEED):
        return "need"
    if token == _stem("depend") and interacts:
        return "interact"
    if token in _stems(EFFECT):
        return "effect"
    if token in _stems("interact interaction"):
        return "interact"
    return "" if token in _stems(SAID) or len(token) == 1 else token


# -- which way a claim goes


def _sign(tokens: Sequence[str]) -> int:
    """The product of its directions; a low loss is good, and of two things compared the order counts."""
    kept = [t for t in tokens if t.startswith("#") or t in _stems(CLAUSE) or t not in _stems(EMPTY)]
    signs = [*_directions(kept), *(_of_quality(token) for token in kept if _of_quality(token))]
    if (order := _order(tokens)) is not None:
        signs.append(order)
    found = 1 if signs else 0
    for each in signs:
        found *= each
    return found


def _of_quality(token: str) -> int:
    return (token in _stems(GOOD)) - (token in _stems(BAD))


def _directions(kept: Sequence[str]) -> Iterator[int]:
    """Of each thing that has one; "decreasing it below" is one direction."""
    told = set[tuple[str, int]]()
    for at, token in enumerate(kept):
        direction = (token in _stems(UP)) - (token in _stems(DOWN))
        if not direction:
            continue
        nearest = _nearest(kept, at)
        if (nearest, direction) not in told:
            yield -direction if nearest in _stems(LOW_IS_GOOD) else direction
        told.add((nearest, direction))


def _nearest(kept: Sequence[str], at: int) -> str:
    """The hyperparameter or metric next to a place: of two as near the one behind it, if no clause begins there."""

    def far(other: int) -> float:
        between = kept[min(at, other) + 1 : max(at, other)]
        return abs(at - other) + 10 * sum(token in _stems(CLAUSE) for token in between) - 0.5 * (other > at)

    places = [n for n, t in enumerate(kept) if t.startswith("#") or t in _stems(METRICS)]
    return kept[min(places, key=far)] if places else ""


def _order(tokens: Sequence[str]) -> int | None:
    """1 or -1: which of two things that are compared comes first by the alphabet; None: none are compared."""
    place = next((n for n, token in enumerate(tokens) if n and _compares(tokens, n)), None)
    if place is None:
        return None
    left, right = (_things(part) for part in (tokens[:place], tokens[place + 1 :]))
    one, other = sorted(left - right), sorted(right - left)
    return None if not one or not other else 1 if one < other else -1


def _compares(tokens: Sequence[str], at: int) -> bool:
    token, before, after = tokens[at], tokens[at - 1], tokens[at + 1 : at + 2]
    if token == _stem("over"):
        return before == _stem("win")
    if token == _stem("to"):
        return before in _stems("superior inferior prefer")
    if before in _stems(f"{UP} {DOWN}") and after and _number(after[0]) is not None:
        return False  # "higher than 3" is above 3
    return token in _stems(COMPARING)


def _things(tokens: Collection[str]) -> set[str]:
    """What is compared: numbers, concepts and words, no directions."""
    found: set[str] = set()
    for token in tokens:
        number = _number(token)
        if number is not None:
            found.add(repr(number))
        elif token.startswith("#"):
            found.add(token[1:])
        elif word := _word(token, interacts=False):
            found.add(word)
    return found
