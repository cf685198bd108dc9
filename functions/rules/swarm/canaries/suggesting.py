"""Which dimensions a train.py suggests by itself, where no language model proposes any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from functions.rules.swarm.canaries.proposing import problems, spelling
from functions.rules.swarm.dimensions import DeclaredDimension
from functions.rules.swarm.scanning import scanned
from state.records import Dimension, ProposedDimension

MOST: Final = 3
BY: Final = "templates"
"""Who proposes them."""


def suggested(
    constants: Mapping[str, object],
    dimensions: Sequence[Dimension],
    proposals: Sequence[ProposedDimension] = (),
) -> list[dict[str, Any]]:
    """The first constants of a script that a search may try and has not, each with a range around its value.

    Ints and categories come first: they are mostly sizes and choices of the architecture, not details. Constants
    whose trial has begun or ended among the `proposals` make room for the next ones, as do those that may not be
    tried, because their range is too large, for example.
    """
    known = {spelling(d.name) for d in dimensions}
    known |= {spelling(p.name) for p in proposals if p.state != "listed"}
    found = [(d, value) for d, value in scanned(constants).found if spelling(d.name) not in known]
    found.sort(key=lambda each: each[0].dtype not in ("int", "categorical"))
    fields = [_fields(d, value) for d, value in found]
    return [each for each in fields if not any(problems(_proposed(each), dimensions))][:MOST]


def _fields(d: DeclaredDimension, value: object) -> dict[str, Any]:
    return {
        **d.model_dump(include={"name", "dtype", "min", "max", "categories"}),
        "default_value": value,
        "rationale": "train.py has it as a constant, and nothing varies it yet",
        "train_py_line": f"{d.name} = {value!r}",
    }


def _proposed(fields: Mapping[str, Any]) -> ProposedDimension:
    who = {"proposal_id": "", "source": "default", "proposed_by": BY, "proposed_at": 0.0}
    return ProposedDimension.model_validate({**fields, **who})
