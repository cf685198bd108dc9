"""Forms for language models: their schemas, and accepted and refused replies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from functions.beliefs.rules.gate import gated
from functions.formats.authored import (
    DimensionProposals,
    GraphSummary,
    HypothesisProposal,
    HypothesisProposals,
    ProgramUpdate,
)
from tests.functions.swarm.rules.sample import SOME

FORMS: list[type[BaseModel]] = [HypothesisProposals, DimensionProposals, ProgramUpdate, GraphSummary]
TEST: dict[str, Any] = {
    "type": "single_factor_effect",
    "variable": "DEPTH",
    "values": [6, 12],
    "decision_rule": {"threshold": 0.01},
}
HYPOTHESIS: dict[str, Any] = {
    "statement": "Models with a DEPTH of 16 or more reach a lower loss",
    "type": "positive",
    "importance": 0.7,
    "rationale": "the best five are deep",
    "config_constraint": {"DEPTH": {"min": 16}, "LR": [0.01, 0.02]},
    "test_spec": TEST,
}
DIMENSION: dict[str, Any] = {
    "name": "WARMUP_RATIO",
    "dtype": "float",
    "min": 0,
    "max": 0.5,
    "default_value": 0.0,
    "rationale": "the first steps are noisy",
    "train_py_line": "WARMUP_RATIO = 0.0",
}
PROGRAM: dict[str, Any] = {
    "phase_summary": "Depth decides.\nThe rest is noise.",
    "instructions": ["Try DEPTH 16 to 20.", "Leave LR at 0.01."],
}
FILLED: dict[type[BaseModel], dict[str, Any]] = {
    HypothesisProposals: {"proposals": [HYPOTHESIS]},
    DimensionProposals: {"proposals": [DIMENSION]},
    ProgramUpdate: PROGRAM,
    GraphSummary: {"summary": "Two branches."},
}


def fields(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each field of a schema and of what it refers to."""
    for part in (schema, *schema.get("$defs", {}).values()):
        yield from part.get("properties", {}).items()


@pytest.mark.parametrize("form", FORMS)
def test_a_form_describes_its_fields_reads_back_stays_so_and_takes_no_other(form: type[BaseModel]) -> None:
    told, filled = dict(fields(form.model_json_schema())), form.model_validate(FILLED[form])

    assert told
    assert [name for name, field in told.items() if not field.get("description")] == []
    assert form.model_validate_json(filled.model_dump_json()) == filled
    with pytest.raises(ValidationError, match="frozen"):
        setattr(filled, next(iter(form.model_fields)), None)
    with pytest.raises(ValidationError, match="extra"):
        form.model_validate({**FILLED[form], "verdict": "supported"})


def test_what_a_hypothesis_form_accepts_is_what_the_gate_reads() -> None:
    proposal = HypothesisProposal.model_validate(HYPOTHESIS).model_dump(mode="json", exclude_none=True)
    found = gated(proposal, "swarm", SOME, [], {"LR": 0.01}, source="llm_proposed", now=7.0)
    assert found.answer.reason == "schema_valid_and_novel"
    assert found.hypothesis is not None
    assert found.hypothesis.config_constraint == {"DEPTH": {"min": 16}, "LR": [0.01, 0.02]}
    assert found.hypothesis.test_spec is not None


@pytest.mark.parametrize(
    "changed",
    [
        *(
            {"statement": None},
            {"type": None},
            {"importance": None},
            {"rationale": None},
            {"test_spec": None},
        ),
        *({"importance": float("nan")}, {"importance": 1.5}, {"importance": True}, {"statement": " \n "}),
        *({"statement": "x" * 501}, {"statement": "a \x1b[31mred\x1b[0m claim"}, {"rationale": "x" * 2001}),
        {"statement": "half a \ud800 character"},
        *({"config_constraint": {"LR": float("inf")}}, {"config_constraint": {"LR": "x" * 201}}),
        {"config_constraint": {f"D{n}": [0.123456789] * 20 for n in range(64)}},
        {"config_constraint": {"LR": {"min": 1, "least": 0}}},
        {"test_spec": {**TEST, "type": "a hunch"}},
        {"test_spec": {**TEST, "values": ["x" * 6000, "y" * 6000]}},
        {"test_spec": {**TEST, "fixed": {"A": [[[[{"b": float("inf")}]]]]}}},
    ],
    ids=str,
)
def test_a_hypothesis_that_lacks_a_field_or_is_out_of_bounds_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        HypothesisProposal.model_validate(
            {name: value for name, value in {**HYPOTHESIS, **changed}.items() if value is not None}
        )


def test_forms_have_few_proposals_and_a_program_at_least_two_instructions() -> None:
    refused: list[tuple[type[BaseModel], dict[str, Any]]] = [
        *((HypothesisProposals, {"proposals": [HYPOTHESIS] * count}) for count in (0, 4)),
        (DimensionProposals, {"proposals": [DIMENSION] * 4}),
        (ProgramUpdate, {**PROGRAM, "instructions": ["Try DEPTH 16."]}),
        (ProgramUpdate, {**PROGRAM, "phase_summary": "x" * 2**20}),
    ]
    for form, changed in refused:
        with pytest.raises(ValidationError):
            form.model_validate(changed)
    assert DimensionProposals.model_validate({"proposals": []}).proposals == []
