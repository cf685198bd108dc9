"""The gate for proposed hypotheses: claims that can be tested, and are not there in other words."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from functions.beliefs.rules.declaring import DeclaredHypothesis, checked_test, explained, new_hypothesis
from functions.beliefs.rules.evidence import about
from functions.beliefs.rules.protocols import is_test
from functions.beliefs.rules.specs import checked_constraint, known_dimensions
from state.errors import Invalid
from state.records import Dimension, Hypothesis, HypothesisSource, Value

# -- How alike two claims are, to refuse a hypothesis that is proposed again in other words.
#
# rapidfuzz compares the words. It takes "DEPTH above 8" and "DEPTH above 16", or "deeper is better" and "deeper is
# worse", for nearly the same. So names, numbers, direction and negation are read from the statements and compared
# exactly.

THRESHOLD: Final = 0.75
"""Similarity of a near-duplicate, calibrated on half of a list of labelled pairs."""
CONFLICT: Final = 0.5
"""Factor on the similarity of statements that differ in names, numbers, direction or negation."""
DIFFERENT_TERMS: Final = 0.6
"""Factor on the similarity of claims whose constraints, or tests, differ."""
ONE_SIDED_TERMS: Final = 0.9
"""The same factor where only one of the claims has a constraint, or a test."""
SHORTEST_NAME: Final = 3
"""Letters that a category needs to count as a name: "L" is only a letter."""

_TOKEN = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?(?:\s?%)?|\.\d+(?:e[+-]?\d+)?|[^\W\d_]+")
_UP = re.compile(
    r"high|larg|big|great|more|most|increas|rais|rise|rose|grow|long|above|over$|beyond|past$|exceed|excess|much|many"
    r"|add|doubl|twice"
)
_DOWN = re.compile(
    r"low|small|less|few|decreas|reduc|drop(?!out)|fall|fell|shrink|declin|short|below|under$|cut|halv|half|little"
)
_GOOD = re.compile(
    r"better|best|improv|help|wins?$|won$|beat|outperform|useful|benef|good|superior|fast|quick|speed|gain|optim(al|um)"
)
_BAD = re.compile(
    r"worse|worst|hurt|harm|bad|degrad|deteriorat|inferior|suffer|lose|detriment|damag|slow|insufficient"
)
_NOT = re.compile(
    r"(not?|never|nothing|none|cannot|hardly|without|useless|irrelevant|unnecessary|unaffected|independent)$"
)
_LOW_IS_GOOD = re.compile(r"(loss|losses|errors?|bpb|perplexity|bits)$")
_EFFECT = re.compile(
    r"matter|effect|affect|influenc|depend|differen|relevan|irrelevan|impact|useless|importan|independ|unaffect"
)
_COMPARES = re.compile(r" (?:than|beats?|outperforms?|superior to|inferior to|wins over) ")
_ABOVE_NUMBER = re.compile(r"((?:high|larg|great|more|long|low|small|less|few|short)\w*) than (?=[\d.])")
""" "higher than 3" is a direction; "better than 3" is a comparison."""
_IGNORED = re.compile(
    r"(a|an|the|is|are|be|of|to|on|and|or|one|ones|there|that|this|it|its|from|after|so|too|very|than|does|do|did"
    r"|has|have|makes|make|made|gives|give|yields|yield|leads|lead|reach|reaches|reached|gets|get|becomes|become"
    r"|brings|bring|value|values|setting|dimension|choice|choose|use|uses|using|used|here|all|among|both|at"
    r"|should|would|will|can|may|in|with|for|when|if|as|by|per|up|down|val|validation|byte|metric|result|results"
    r"|score|accuracy|performance|outcome)$"
)
_SAME: Final[dict[str, str]] = (
    {"lr": "learning rate", "wd": "weight decay", "batches": "batch size", "dimension": "dim"}
    | {"layer": "depth", "layers": "depth", "least": "above"}
    | dict.fromkeys(("deep", "deeper", "deepest"), "high depth")
    | dict.fromkeys(("shallow", "shallower"), "low depth")
    | dict.fromkeys(("wide", "wider"), "high width")
    | dict.fromkeys(("narrow", "narrower"), "low width")
    | {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "eight": "8", "ten": "10"}
)
_COMMON_NAMES: Final = (
    *("learning rate", "weight decay", "batch size", "depth", "width", "dropout", "momentum", "warmup"),
)
"""Hyperparameters that are known without a tag's dimensions."""


@dataclass(frozen=True)
class ComparedClaim:
    """The parts of a hypothesis that are compared."""

    statement: str
    constraint: Mapping[str, Any] = field(default_factory=dict)
    test_spec: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class _Meaning:
    """The parts of a statement that are compared exactly."""

    names: frozenset[str]
    numbers: frozenset[float]
    sign: int
    """1 or -1, the product of its directions; 0: it claims no direction."""
    is_negated: bool


def similarity(one: ComparedClaim, other: ComparedClaim, names: tuple[str, ...] = ()) -> float:
    """The similarity of two claims, 0 to 1; `names` are the `names_of` the tag's dimensions."""
    from rapidfuzz.fuzz import token_set_ratio, token_sort_ratio

    mine, my_words = _read(one.statement, names)
    theirs, their_words = _read(other.statement, names)
    alike = (token_set_ratio(my_words, their_words) + token_sort_ratio(my_words, their_words)) / 200
    if mine != theirs:
        alike *= CONFLICT
    tests = (one.test_spec or {}, other.test_spec or {})
    for my_terms, their_terms in ((one.constraint, other.constraint), tests):
        if _canonical(my_terms) != _canonical(their_terms):
            alike *= DIFFERENT_TERMS if my_terms and their_terms else ONE_SIDED_TERMS
    return alike


def names_of(dimensions: Sequence[Dimension]) -> tuple[str, ...]:
    """The names of the dimensions, and of their categories, such as "adam"."""
    texts = [c for d in dimensions for c in d.categories or () if isinstance(c, str)]
    return (*(d.name for d in dimensions), *(text for text in texts if len(text) >= SHORTEST_NAME))


def normalised_statement(statement: str) -> str:
    """A statement without regard to case, spaces and the full stop at its end."""
    return " ".join(statement.casefold().split()).rstrip(" .!")


# -- reading a statement


@lru_cache(maxsize=8192)
def _read(statement: str, names: tuple[str, ...]) -> tuple[_Meaning, str]:
    """What a statement claims, and its words for rapidfuzz."""
    text, named = _tokens(statement), set[str]()
    for name in _phrases(names):
        text, found = re.subn(rf"(?<!\S){re.escape(name)}s?(?!\S)", name.replace(" ", ""), text)
        if found:
            named.add(name)
    tokens = text.split()
    numbers = frozenset(_number(t) for t in tokens if _is_number(t))
    plain = [t for t in tokens if not _is_number(t)]
    words = {"effect" if _EFFECT.match(t) else t for t in plain if not _says(t) or _EFFECT.match(t)}
    meaning = _Meaning(
        frozenset(named), numbers, _sign(text), sum(bool(_NOT.match(t)) for t in plain) % 2 == 1
    )
    return meaning, " ".join(sorted(words)) or "nothing"


def _tokens(text: str) -> str:
    """The words and numbers of a text, with one spelling for each."""
    plain = unicodedata.normalize("NFKC", text).casefold().replace("n't", " not").replace("at most", "below")
    found = (match.group().replace(" ", "") for match in _TOKEN.finditer(plain))
    spelt = " ".join(_SAME.get(token, token) for token in found)
    return _ABOVE_NUMBER.sub(r"\1 ", spelt)


@lru_cache(maxsize=64)
def _phrases(names: tuple[str, ...]) -> list[str]:
    """Names in the spelling of `_tokens`, the longest first; "none" or "low" as a category is no name."""
    spelt = {_tokens(name) for name in (*names, *_COMMON_NAMES)}
    return sorted((s for s in spelt if not all(map(_says, s.split()))), key=lambda s: (-len(s), s))


def _says(token: str) -> bool:
    """Whether a word is compared as a direction or a negation, or not at all."""
    return any(p.match(token) for p in (_IGNORED, _UP, _DOWN, _GOOD, _BAD, _NOT, _LOW_IS_GOOD))


def _number(token: str) -> float:
    return float(token.rstrip("%")) / (100 if token.endswith("%") else 1)


def _is_number(token: str) -> bool:
    return token[0].isdecimal() or token[0] == "."


def _sign(text: str) -> int:
    """The product of the directions: to lower a loss is good, and to swap two compared things reverses a claim."""
    tokens = text.split()
    count = {p: sum(bool(p.match(t)) for t in tokens) for p in (_UP, _DOWN, _GOOD, _BAD, _LOW_IS_GOOD)}
    if not any(count[p] for p in (_UP, _DOWN, _GOOD, _BAD)):
        return 0
    flips = count[_DOWN] + count[_BAD]
    if not count[_GOOD] + count[_BAD]:  # an improved loss is a lower one
        flips += count[_LOW_IS_GOOD]
    sides = _COMPARES.split(text, maxsplit=1)
    if len(sides) == 2:
        left, right = ({t for t in side.split() if not _says(t)} for side in sides)
        flips += min(left - right, default="") > min(right - left, default="")
    return -1 if flips % 2 else 1


# -- constraints and tests


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


# -- The gate for proposed hypotheses: accepts claims that are new and can be tested.

LEAST_IMPORTANCE: Final = 0.15
Phase = Literal["exploration", "validation"]
GateReason = Literal[
    "schema_valid_and_novel",
    "schema_invalid",
    "missing_statement",
    "invalid_phase",
    "duplicate_statement",
    "duplicate_semantic",
    "importance_too_low",
    "invalid_constraint",
    "invalid_parent_id",
    "missing_test_spec",
    "invalid_test_spec",
]
"""`schema_invalid`: an unknown field, or one of another type."""


class GateAnswer(BaseModel):
    """The gate's decision on a proposal."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    accepted: bool
    reason: GateReason
    registry_add: bool
    """The proposal becomes a hypothesis of the tag."""
    immediate_forced_pursuit: Literal[False]
    """An accepted hypothesis gets no workers before the next allocation."""
    detail: str
    """The problem, with its field."""
    hint: str | None = Field(description="what to do about it")
    duplicate_of: str | None
    """Id of the hypothesis that already makes this claim."""
    similarity: float | None
    """Similarity, 0 to 1, to the nearest hypothesis; null: there is none yet."""


@dataclass(frozen=True)
class Gated:
    """The gate's answer, with the new hypothesis."""

    answer: GateAnswer
    hypothesis: Hypothesis | None = None
    """At Beta(2, 2); None: the proposal was rejected."""


def gated(
    proposal: Mapping[str, Any],
    tag: str,
    dimensions: Sequence[Dimension],
    known: Sequence[Hypothesis],
    reference_config: Mapping[str, Value],
    *,
    source: HypothesisSource,
    now: float,
) -> Gated:
    """The gate's decision on a proposal; the first reason against it counts.

    `known` are all hypotheses that the tag ever had, settled ones too. `now` in seconds since the epoch.
    """
    declared = _declared(proposal)
    if isinstance(declared, GateAnswer):
        return Gated(declared)
    nearest = _nearest(declared, dimensions, known)
    refused = (
        _duplicate(declared, known, nearest) or _unimportant(declared) or _wrong(declared, dimensions, known)
    )
    if refused is not None:
        return Gated(refused)
    statements = {h.hypothesis_id: h.statement for h in known}
    made = new_hypothesis(declared, tag, dimensions, statements, reference_config, source=source, now=now)
    detail = "it has workers from the next allocation"
    if not is_test(made) and not about(made):
        detail = "it is about no dimension, so only experiments of agents that name it bear on it"
    return Gated(_answer("schema_valid_and_novel", detail, similarity=nearest[0] if nearest else None), made)


def _declared(proposal: Mapping[str, Any]) -> DeclaredHypothesis | GateAnswer:
    """The validated fields of a proposal, or a rejection."""
    statement, phase = proposal.get("statement"), proposal.get("phase", "exploration")
    if not isinstance(statement, str) or not statement.strip():
        return _answer("missing_statement", "statement: it has none", "say the claim in one sentence")
    if phase not in get_args(Phase):
        return _answer(
            "invalid_phase", f"phase: {phase!r:.80} is none", f"it is {' or '.join(get_args(Phase))}"
        )
    try:
        return DeclaredHypothesis.model_validate(dict(proposal))
    except ValidationError as problem:
        return _answer("schema_invalid", *explained(problem))


def _nearest(
    declared: DeclaredHypothesis, dimensions: Sequence[Dimension], known: Sequence[Hypothesis]
) -> tuple[float, Hypothesis] | None:
    """The hypothesis that is most like a proposal, behind its similarity."""
    mine, names = _claim(declared, dimensions), names_of(dimensions)
    claims = [(ComparedClaim(h.statement, h.config_constraint, h.test_spec), h) for h in known]
    found = [(similarity(mine, claim, names), h) for claim, h in claims]
    return max(found, key=lambda each: each[0], default=None)


def _claim(declared: DeclaredHypothesis, dimensions: Sequence[Dimension]) -> ComparedClaim:
    """The claim to compare; its constraint and test are normalised if they are valid."""
    try:
        constraint = checked_constraint(declared.config_constraint, dimensions)
        test = checked_test(declared, dimensions)
    except Invalid:
        constraint, test = declared.config_constraint, declared.test_spec
    return ComparedClaim(declared.statement, constraint, test)


def _duplicate(
    declared: DeclaredHypothesis, known: Sequence[Hypothesis], nearest: tuple[float, Hypothesis] | None
) -> GateAnswer | None:
    statement = normalised_statement(declared.statement)
    for h in known:
        if normalised_statement(h.statement) == statement:
            return _answer(
                "duplicate_statement",
                f"statement: {h.hypothesis_id} says so already",
                "look at what is known of it, or claim something else",
                *(h.hypothesis_id, 1.0),
            )
    if nearest is None or nearest[0] < THRESHOLD:
        return None
    alike, other = nearest
    return _answer(
        "duplicate_semantic",
        f"statement: {other.hypothesis_id} says the same: {other.statement}",
        "claim something else, or say what is different: a dimension, a number, a direction",
        *(other.hypothesis_id, alike),
    )


def _unimportant(declared: DeclaredHypothesis) -> GateAnswer | None:
    if declared.importance >= LEAST_IMPORTANCE:
        return None
    why = f"importance: {declared.importance:g} is below {LEAST_IMPORTANCE:g}"
    return _answer("importance_too_low", why, "propose what matters more")


def _wrong(
    declared: DeclaredHypothesis, dimensions: Sequence[Dimension], known: Sequence[Hypothesis]
) -> GateAnswer | None:
    """The first error in its constraint, dimensions, parent or test."""
    try:
        checked_constraint(declared.config_constraint, dimensions)
        known_dimensions(declared.dimensions or (), dimensions)
    except Invalid as problem:
        return _answer("invalid_constraint", problem.detail, problem.hint)
    if declared.parent_id is not None and declared.parent_id not in {h.hypothesis_id for h in known}:
        return _answer(
            "invalid_parent_id",
            f"parent_id: there is no hypothesis {declared.parent_id[:64]!r}",
            "name one that hypothesis::list shows, or leave it out",
        )
    try:
        checked_test(declared, dimensions)
    except Invalid as problem:
        missing = declared.test_spec is None
        return _answer("missing_test_spec" if missing else "invalid_test_spec", problem.detail, problem.hint)
    return None


def _answer(
    reason: GateReason,
    detail: str,
    hint: str | None = None,
    duplicate_of: str | None = None,
    similarity: float | None = None,
) -> GateAnswer:
    is_accepted = reason == "schema_valid_and_novel"
    return GateAnswer(
        accepted=is_accepted,
        reason=reason,
        registry_add=is_accepted,
        immediate_forced_pursuit=False,
        detail=detail,
        hint=hint,
        duplicate_of=duplicate_of,
        similarity=similarity,
    )
