"""Forms that a language model fills in for a lab.

The model reads each form's JSON schema, so every field has a description. A form only checks that a reply is
well-formed: a hypothesis still has to pass its gate, and a dimension its trial.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from functions.beliefs.rules.declaring import LONGEST_RATIONALE, LONGEST_STATEMENT
from functions.beliefs.rules.specs import Spec
from functions.swarm.rules.dimensions import LONGEST_TEXT, MOST, MOST_CATEGORIES
from state.records import Dtype, HypothesisKind, Number, Value

LONGEST_LINE: Final = 300
"""Characters."""
LONGEST_PARAGRAPH: Final = 2000
LONGEST_TERMS: Final = 10_000
"""Characters of a constraint, and of a test, as JSON."""


def _on_one_line(text: object) -> object:
    """The text with one plain space wherever it has spaces or line ends of any kind."""
    return " ".join(text.split()) if isinstance(text, str) else text


def _with_plain_spaces(text: object) -> object:
    """The text with plain spaces and line feeds, whichever kinds it was written with."""
    if not isinstance(text, str):
        return text
    lines = (
        "".join(" " if unicodedata.category(c) == "Zs" else c for c in line) for line in text.splitlines()
    )
    return "\n".join(lines).strip()


def _printable(text: str) -> str:
    if not all(c.isprintable() or c in "\n\t" for c in text):
        raise ValueError("it has characters that are not printable")
    return text


def _short_text(value: Value) -> Value:
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise ValueError(f"a text has at most {LONGEST_TEXT} characters")
    return value


def _within(terms: Any) -> Any:
    """The terms, if they are JSON of a bearable length."""
    if len(json.dumps(terms, allow_nan=False, default=BaseModel.model_dump)) > LONGEST_TERMS:
        raise ValueError(f"it is longer than {LONGEST_TERMS} characters")
    return terms


_Word = BeforeValidator(_on_one_line), AfterValidator(_printable)
Name = Annotated[str, Field(min_length=1, max_length=64), *_Word]
Line = Annotated[str, Field(min_length=1, max_length=LONGEST_LINE), *_Word]
Paragraph = Annotated[
    str,
    Field(min_length=1, max_length=LONGEST_PARAGRAPH),
    BeforeValidator(_with_plain_spaces),
    AfterValidator(_printable),
]
Setting = Annotated[
    Value,
    AfterValidator(_short_text),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}, {"type": "boolean"}]}),
]
"""A value of a dimension."""


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class Range(_Form):
    """Numbers from one to another; one end may be left out."""

    min: Number | None = Field(None, description="lowest value; left out: no lower end")
    max: Number | None = Field(None, description="highest value; left out: no upper end")


class HypothesisProposal(_Form):
    """A claim about the dimensions that an experiment can decide."""

    statement: Annotated[str, Field(min_length=1, max_length=LONGEST_STATEMENT), *_Word] = Field(
        description="the claim in one sentence, naming the dimensions and the direction of the effect;"
        " not one that is among the known hypotheses in other words",
        examples=["deeper models reach a lower loss"],
    )
    type: HypothesisKind = Field(
        description="positive: some values are better; comparative: one value against others; interaction: the effect"
        " of one dimension depends on another; null: a dimension has no effect"
    )
    importance: float = Field(
        strict=True,
        ge=0,
        le=1,
        description="how much it matters for the search whether the claim is true, 0 to 1",
    )
    rationale: Annotated[
        str,
        Field(min_length=1, max_length=LONGEST_RATIONALE),
        BeforeValidator(_with_plain_spaces),
        AfterValidator(_printable),
    ] = Field(description="why the claim should be true, from the findings given")
    config_constraint: Annotated[dict[Name, Setting | list[Setting] | Range], AfterValidator(_within)] = (
        Field(
            default_factory=dict,
            max_length=MOST,
            description="values that its runs have: by name of a dimension a value, a list of values, or an object"
            " with min, max or both",
            examples=[{"DEPTH": {"min": 12}}],
        )
    )
    phase: Literal["exploration", "validation"] = Field(
        "exploration",
        description="exploration: runs of the search bear on it; validation: its test alone decides it",
    )
    test_spec: Annotated[Spec, Field(discriminator="type"), AfterValidator(_within)] = Field(
        description="the test that decides the claim: which values of which dimensions it compares, and how large"
        " an effect counts"
    )
    parent_id: Name | None = Field(
        None, description="id of the known hypothesis that this one is a part of; left out: none"
    )


class HypothesisProposals(_Form):
    """One to three new hypotheses."""

    proposals: list[HypothesisProposal] = Field(
        min_length=1, max_length=3, description="claims worth testing next, the most important first"
    )


class DimensionProposal(_Form):
    """A further constant of train.py that the swarm could vary."""

    name: Name = Field(
        pattern="^[A-Za-z_][A-Za-z0-9_]*$",
        description="a new name, spelt as a constant of train.py",
        examples=["WARMUP_RATIO"],
    )
    dtype: Dtype = Field(
        description="float_log: a float that is varied by factors; float; int; categorical: one of `categories`"
    )
    min: Number | None = Field(None, description="lowest value; not of a categorical")
    max: Number | None = Field(None, description="highest value, greater than min; not of a categorical")
    categories: list[Setting] | None = Field(
        None, min_length=1, max_length=MOST_CATEGORIES, description="all values of a categorical, 2 to 8"
    )
    default_value: Setting = Field(
        description="the value that changes nothing: what train.py does today; inside the range"
    )
    rationale: Paragraph = Field(
        description="why varying it should lower the metric, from the findings given"
    )
    train_py_line: Line = Field(
        description="the line of train.py that sets the constant to its default",
        examples=["WARMUP_RATIO = 0.0"],
    )


class DimensionProposals(_Form):
    """At most three further dimensions."""

    proposals: list[DimensionProposal] = Field(
        max_length=3, description="dimensions worth trying, the best first; empty where none is"
    )


class FrozenDimensionProposal(_Form):
    """A dimension that the swarm should leave as it is."""

    name: Name = Field(description="one of the dimensions given")
    why: Line = Field(description="the finding for which it need not be varied now")


class ProgramUpdate(_Form):
    """The part of program.md that follows the evidence; plain text, no Markdown headings, no HTML."""

    phase_summary: Paragraph = Field(
        description="where the search stands and what the evidence says, in two to five sentences"
    )
    frozen: list[FrozenDimensionProposal] = Field(
        default_factory=list,
        max_length=MOST,
        description="dimensions to leave alone, with the reason of each",
    )
    active_guidance: list[Line] = Field(
        default_factory=list,
        max_length=12,
        description="what the evidence recommends now: ranges, combinations, what to avoid; one sentence each",
    )
    hypotheses: list[Line] = Field(
        default_factory=list,
        max_length=12,
        description="the hypotheses under test, each in one sentence of plain words",
    )
    instructions: list[Line] = Field(
        min_length=2,
        max_length=12,
        description="what a worker does next, at least two; each concrete: names a dimension and a value or range",
    )
    warning: Line | None = Field(
        None, description="what a worker must not do, or must watch for; left out: nothing"
    )


class GraphSummary(_Form):
    """What the graph of hypotheses shows, in words."""

    summary: Paragraph = Field(
        description="what is known, what is open and why, what was given up; three to eight sentences"
    )
