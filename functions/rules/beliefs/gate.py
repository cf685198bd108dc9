"""The gate for proposed hypotheses: accepts claims that are new and can be tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from pydantic import ValidationError

from functions.rules.beliefs.constraints import checked_constraint, known_dimensions
from functions.rules.beliefs.declaring import (
    DeclaredHypothesis,
    checked_test,
    explained,
    new_hypothesis,
)
from functions.rules.beliefs.evidence import about
from functions.rules.beliefs.similarity import (
    THRESHOLD,
    ComparedClaim,
    names_of,
    normalised_statement,
    similarity,
)
from functions.rules.beliefs.testing import is_test
from state.errors import Invalid
from state.records import Dimension, Hypothesis, HypothesisSource, Value

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


@dataclass(frozen=True)
class GateAnswer:
    """The gate's answer to a proposal."""

    accepted: bool
    reason: GateReason
    registry_add: bool
    """The proposal becomes a hypothesis of the tag."""
    detail: str
    """The problem, with its field."""
    hint: str | None = None
    immediate_forced_pursuit: Literal[False] = False
    """An accepted hypothesis gets no workers before the next allocation."""
    duplicate_of: str | None = None
    """Id of the hypothesis that already makes this claim."""
    similarity: float | None = None
    """Similarity, 0 to 1, to the nearest hypothesis; None: there is none yet."""


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
    answer = GateAnswer(
        True,
        "schema_valid_and_novel",
        True,
        _when_tested(made),
        similarity=nearest.similarity if nearest else None,
    )
    return Gated(answer, made)


def _when_tested(made: Hypothesis) -> str:
    if is_test(made) or about(made):
        return "it has workers from the next allocation"
    return "it is about no dimension, so only experiments of agents that name it bear on it"


def _declared(proposal: Mapping[str, Any]) -> DeclaredHypothesis | GateAnswer:
    """The validated fields of a proposal, or a rejection."""
    statement, phase = proposal.get("statement"), proposal.get("phase", "exploration")
    if not isinstance(statement, str) or not statement.strip():
        return _rejected("missing_statement", "statement: it has none", "say the claim in one sentence")
    if phase not in get_args(Phase):
        return _rejected(
            "invalid_phase", f"phase: {phase!r:.80} is none", f"it is {' or '.join(get_args(Phase))}"
        )
    try:
        return DeclaredHypothesis.model_validate(dict(proposal))
    except ValidationError as problem:
        return _rejected("schema_invalid", *explained(problem))


@dataclass(frozen=True)
class _Nearest:
    hypothesis_id: str
    statement: str
    similarity: float


def _nearest(
    declared: DeclaredHypothesis, dimensions: Sequence[Dimension], known: Sequence[Hypothesis]
) -> _Nearest | None:
    """The hypothesis that is most similar to a proposal."""
    mine, names = _claim(declared, dimensions), names_of(dimensions)
    found = [
        _Nearest(
            h.hypothesis_id,
            h.statement,
            similarity(mine, ComparedClaim(h.statement, h.config_constraint, h.test_spec), names),
        )
        for h in known
    ]
    return max(found, key=lambda each: each.similarity, default=None)


def _claim(declared: DeclaredHypothesis, dimensions: Sequence[Dimension]) -> ComparedClaim:
    """The claim to compare; its constraint and test are normalised if they are valid."""
    try:
        constraint = checked_constraint(declared.config_constraint, dimensions)
        test = checked_test(declared, dimensions)
    except Invalid:
        constraint, test = declared.config_constraint, declared.test_spec
    return ComparedClaim(declared.statement, constraint, test)


def _duplicate(
    declared: DeclaredHypothesis, known: Sequence[Hypothesis], nearest: _Nearest | None
) -> GateAnswer | None:
    statement = normalised_statement(declared.statement)
    for h in known:
        if normalised_statement(h.statement) == statement:
            answer = _rejected(
                "duplicate_statement",
                f"statement: {h.hypothesis_id} says so already",
                "look at what is known of it, or claim something else",
            )
            return replace(answer, duplicate_of=h.hypothesis_id, similarity=1.0)
    if nearest is None or nearest.similarity < THRESHOLD:
        return None
    answer = _rejected(
        "duplicate_semantic",
        f"statement: {nearest.hypothesis_id} says the same: {nearest.statement}",
        "claim something else, or say what is different: a dimension, a number, a direction",
    )
    return replace(answer, duplicate_of=nearest.hypothesis_id, similarity=nearest.similarity)


def _unimportant(declared: DeclaredHypothesis) -> GateAnswer | None:
    if declared.importance >= LEAST_IMPORTANCE:
        return None
    return _rejected(
        "importance_too_low",
        f"importance: {declared.importance:g} is below {LEAST_IMPORTANCE:g}",
        "propose what matters more",
    )


def _wrong(
    declared: DeclaredHypothesis, dimensions: Sequence[Dimension], known: Sequence[Hypothesis]
) -> GateAnswer | None:
    """The first error in its constraint, dimensions, parent or test."""
    try:
        checked_constraint(declared.config_constraint, dimensions)
        known_dimensions(declared.dimensions or (), dimensions)
    except Invalid as problem:
        return _rejected("invalid_constraint", problem.detail, problem.hint)
    if declared.parent_id is not None and declared.parent_id not in {h.hypothesis_id for h in known}:
        return _rejected(
            "invalid_parent_id",
            f"parent_id: there is no hypothesis {declared.parent_id[:64]!r}",
            "name one that hypothesis::list shows, or leave it out",
        )
    try:
        checked_test(declared, dimensions)
    except Invalid as problem:
        missing = declared.test_spec is None
        return _rejected(
            "missing_test_spec" if missing else "invalid_test_spec", problem.detail, problem.hint
        )
    return None


def _rejected(reason: GateReason, detail: str, hint: str | None) -> GateAnswer:
    return GateAnswer(False, reason, False, detail, hint)
