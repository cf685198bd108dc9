"""Hypotheses as people and models declare them, and claims that follow from a tag's dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictStr, ValidationError, field_validator

from functions.beliefs.rules.evidence import about
from functions.beliefs.rules.sharing import reference_config
from functions.beliefs.rules.specs import (
    check_spec,
    checked_constraint,
    known_dimensions,
    named_dimensions,
    with_rival,
)
from functions.swarm.rules.rooms import own_value, room_of
from state.belief_facts import ProposalFacts
from state.errors import Conflict, Invalid
from state.records import Dimension, Hypothesis, HypothesisClaim, HypothesisKind, HypothesisSource, Value

LONGEST_STATEMENT: Final = 500
"""Characters."""
LONGEST_RATIONALE: Final = 2000
ID_DIGITS: Final = 6
EXAMPLE: Final = """\
[[hypothesis]]
statement = "deeper models reach a lower loss"
dimensions = ["DEPTH"]
config_constraint = { DEPTH = { min = 12 } }"""


class DeclaredHypothesis(BaseModel):
    """A claim as a request or a dimensions.toml declares it."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, str_strip_whitespace=True, defer_build=True
    )

    statement: StrictStr = Field(
        min_length=1,
        max_length=LONGEST_STATEMENT,
        description="the claim, in one sentence",
        examples=["deeper models reach a lower loss"],
    )
    type: HypothesisKind = Field(
        "positive", description="positive, comparative (one against others), interaction, or null (no effect)"
    )
    importance: float = Field(
        0.5,
        strict=True,
        ge=0,
        le=1,
        description="how much it matters whether it is true, 0 to 1",
        examples=[0.5],
    )
    config_constraint: dict[str, Any] = Field(
        default_factory=dict,
        description='values that its runs have: per dimension a value, a list, or {"min": ..., "max": ...}',
        examples=[{"DEPTH": {"min": 12}}],
    )
    dimensions: list[StrictStr] | None = Field(
        None,
        description="what the claim is about; default: what config_constraint and the statement name, else what"
        " test_spec varies",
        examples=[["DEPTH"]],
    )
    phase: Literal["exploration", "validation"] = Field(
        "exploration", description="validation: one test decides it, which test_spec describes"
    )
    test_spec: dict[str, Any] | None = Field(None, description="the test of the validation phase")
    parent_id: StrictStr | None = Field(
        None, description="the hypothesis that it is a part of", examples=["hyp_0a1b2c"]
    )
    rationale: StrictStr | None = Field(
        None, max_length=LONGEST_RATIONALE, description="why it should be true"
    )

    @field_validator("statement")
    @classmethod
    def _printable(cls, statement: str) -> str:
        if not statement.isprintable():
            raise ValueError("it has characters that are not printable")
        return statement


def declared_hypotheses(tables: Sequence[Mapping[str, Any]]) -> list[DeclaredHypothesis]:
    """The hypotheses of a dimensions.toml, in its order. Raises Invalid, naming the table and the field."""
    found: list[DeclaredHypothesis] = []
    for nth, table in enumerate(tables, 1):
        try:
            found.append(DeclaredHypothesis.model_validate(table))
        except ValidationError as problem:
            detail, hint = explained(problem)
            raise Invalid(f"hypothesis {nth}: {detail}", hint=hint) from problem
    return found


def new_hypothesis(
    declared: DeclaredHypothesis,
    tag: str,
    dimensions: Sequence[Dimension],
    known: Mapping[str, str],
    reference_config: Mapping[str, Value],
    *,
    source: HypothesisSource,
    now: float,
) -> Hypothesis:
    """A new hypothesis at Beta(2, 2). `known`: statements by id; `now`: seconds since 1970. Raises Invalid."""
    constraint = checked_constraint(declared.config_constraint, dimensions)
    test_spec = checked_test(declared, dimensions)
    made = Hypothesis(
        hypothesis_id=hypothesis_id(tag, declared.statement, known),
        tag=tag,
        statement=declared.statement,
        kind=declared.type,
        importance=declared.importance,
        config_constraint=constraint,
        dimensions=_dimensions_of(declared, dimensions),
        test_spec=test_spec,
        parent_id=declared.parent_id,
        source=source,
        rationale=declared.rationale,
        created_at=now,
        phase=declared.phase,
    )
    return made.model_copy(update={"reference_config": with_rival(made, reference_config, dimensions)})


def checked_test(declared: DeclaredHypothesis, dimensions: Sequence[Dimension]) -> dict[str, Any] | None:
    """The test with defaults and typed values. Raises Invalid: wrong, or missing in the validation phase."""
    if declared.test_spec is not None:
        return check_spec(declared.test_spec, dimensions).model_dump(mode="json", exclude_none=True)
    if declared.phase == "validation":
        raise Invalid(
            "test_spec: the validation phase needs a test, and none is given",
            hint="describe it, or begin with the phase exploration",
        )
    return None


def _dimensions_of(declared: DeclaredHypothesis, dimensions: Sequence[Dimension]) -> list[str]:
    """The dimensions of a claim: the given ones, else those of its constraint and statement, else those of its test.

    Raises Invalid: a dimension does not exist, or the test is wrong.
    """
    if declared.dimensions is not None:
        return known_dimensions(declared.dimensions, dimensions)
    names = [d.name for d in dimensions]
    named = {*declared.config_constraint, *named_dimensions(declared.statement, names)}
    if not named and declared.test_spec is not None:
        named = {name for name, _ in check_spec(declared.test_spec, dimensions).axes}
    return [name for name in names if name in named]


def hypothesis_id(tag: str, statement: str, known: Mapping[str, str]) -> str:
    """`hyp_` and the first 6 hexadecimal digits of the SHA-256 of tag and statement that no other statement uses.

    `known` are statements by id. Raises Conflict: other statements use all of them.
    """
    digest = sha256(f"{tag}\n{statement}".encode()).hexdigest()
    for start in range(0, len(digest) - ID_DIGITS, ID_DIGITS):
        name = f"hyp_{digest[start : start + ID_DIGITS]}"
        if known.get(name, statement) == statement:
            return name
    raise Conflict(f"no id is free for {statement[:64]!r}", hint="put the claim in other words")


def explained(problem: ValidationError) -> tuple[str, str]:
    """The first wrong field with its problem, and a hint."""
    first = problem.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(str(part)[:64] for part in first["loc"])
    if first["type"] == "missing":
        return f"it has no {field}", f"a hypothesis looks like:\n{EXAMPLE}"
    if first["type"] == "extra_forbidden":
        return f"there is no field {field!r}", f"the fields are {', '.join(DeclaredHypothesis.model_fields)}"
    info = DeclaredHypothesis.model_fields.get(str(first["loc"][0])) if first["loc"] else None
    meaning = info.description if info is not None else None
    return f"{field}: {first['msg']}", f"{field} is {meaning}" if meaning else "give the fields as one object"


# -- Claims that follow from a tag's dimensions: the first ones, and changes after a dimension has changed.


def begun(facts: ProposalFacts) -> list[Hypothesis]:
    """New claims, for dimensions that may vary and have none."""
    known = {h.hypothesis_id: h.statement for h in (*facts.open, *facts.archived)}
    reference = reference_config(facts.dimensions, facts.best_config)
    return bootstrapped(facts.tag.name, facts.dimensions, known, reference, facts.now)


def bootstrapped(
    tag: str,
    dimensions: Sequence[Dimension],
    known: Mapping[str, str],
    reference: Mapping[str, Value],
    now: float,
) -> list[Hypothesis]:
    """ "<DIM> matters" at Beta(2, 2), for each dimension that may vary and has no such claim.

    Dimensions with one value cannot matter, and those on trial have to prove themselves first. `known` are the
    statements by id of all hypotheses that the tag ever had, settled ones too. `now` in seconds since the epoch.
    """
    statements, made = dict(known), list[Hypothesis]()
    for dimension in dimensions:
        statement = f"{dimension.name} matters"
        varies = not (dimension.frozen or dimension.on_trial or _has_one_value(dimension))
        if not varies or statement in statements.values():
            continue
        name = hypothesis_id(tag, statement, statements)
        statements[name] = statement
        made.append(
            Hypothesis(
                hypothesis_id=name,
                tag=tag,
                statement=statement,
                dimensions=[dimension.name],
                created_at=now,
                reference_config=dict(reference),
            )
        )
    return made


def _has_one_value(dimension: Dimension) -> bool:
    room = room_of(dimension)
    return room is not None and room.single


def adapted(facts: ProposalFacts) -> list[Hypothesis]:
    """Open hypotheses whose reference config has become invalid, with a valid one.

    In a valid config each dimension has one of its values, and a frozen one its frozen value.
    """
    reference = reference_config(facts.dimensions, facts.best_config)
    valid = [(h, _valid(h.reference_config or reference, facts.dimensions, reference)) for h in facts.open]
    found = [(h, with_rival(h, config, facts.dimensions)) for h, config in valid]
    return [h.model_copy(update={"reference_config": new}) for h, new in found if new != h.reference_config]


def reopened(facts: ProposalFacts, dimension: str) -> list[Hypothesis]:
    """Irrelevant claims about a dimension, begun anew because it varies again."""
    reference = reference_config(facts.dimensions, facts.best_config)
    kept = set(HypothesisClaim.model_fields)
    return [
        Hypothesis(
            **h.model_dump(include=kept)
            | {"created_at": facts.now, "reference_config": with_rival(h, reference, facts.dimensions)}
        )
        for h in facts.archived
        if h.settled == "irrelevant" and about(h) == {dimension}
    ]


def irrelevant_dimension(h: Hypothesis) -> str | None:
    """The dimension to freeze because this claim is irrelevant; None: there is none."""
    is_whole = h.settled == "irrelevant" and not h.config_constraint and len(h.dimensions) == 1
    return h.dimensions[0] if is_whole else None


def _valid(
    config: Mapping[str, Value], dimensions: Sequence[Dimension], fallback: Mapping[str, Value]
) -> dict[str, Value]:
    by_name = {d.name: d for d in dimensions}
    return {name: _valid_value(by_name[name], config.get(name), value) for name, value in fallback.items()}


def _valid_value(dimension: Dimension, before: Value | None, fallback: Value) -> Value:
    if dimension.frozen and dimension.frozen_value is not None:
        return dimension.frozen_value
    # the dimension may have been defined anew since
    own = None if before is None else own_value(dimension, before)
    return fallback if own is None else own
