"""Walking up the graph of experiments, as commands of a pipeline: one bounded script reads a whole line of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from state.client import Lab
from state.indexes import fields_of
from state.moves import Arg
from state.records import Experiment

STEPS = 1000
"""Experiments that one call looks at for a base, at most; it answers where to go on."""


def base_above(lab: Lab, key: str) -> Sequence[Arg]:
    """The kept experiment nearest to the one of this key; `base_found` reads the answer."""
    return lab.reading(
        "walk_up",
        keys={"starts": [key]},
        args={"experiments": lab.keys.experiment(""), "most": STEPS, "base": "yes"},
    )


async def base_found(lab: Lab, answer: Sequence[Any]) -> Experiment | None:
    """The experiment that `base_above` led to, from its answer on; None: there is none."""
    while answer[0] == "on":
        [answer] = await lab.pipeline([base_above(lab, answer[1])])
    return Experiment.parse(fields_of(answer[1])) if answer[0] == "found" else None


def ancestors(lab: Lab, parent_ids: Sequence[str], most: int) -> Sequence[Arg]:
    """Ancestors, `most` levels up, without constants and metrics; `ancestry` reads the answer."""
    return lab.reading(
        "walk_up",
        keys={"starts": [lab.keys.experiment(parent) for parent in parent_ids]},
        args={"experiments": lab.keys.experiment(""), "most": most},
    )


def by_id(answer: Sequence[Any]) -> dict[str, dict[str, str]]:
    """The hashes from an answer of `ancestors`, by experiment id; with `most` 1 they are the parents."""
    hashes = (fields_of(each) for each in answer[1:])
    return {fields["experiment_id"]: fields for fields in hashes}


def ancestry(answer: Sequence[Any]) -> tuple[dict[str, Experiment], bool]:
    """Experiments by id, and whether that is all. A cut-off or missing experiment is nobody's parent."""
    known = {name: Experiment.parse(fields) for name, fields in by_id(answer).items()}
    for name, e in known.items():
        if any(parent not in known for parent in e.parent_ids):
            above = [parent for parent in e.parent_ids if parent in known]
            known[name] = e.model_copy(update={"parent_ids": above})
    return known, answer[0] == "whole"
