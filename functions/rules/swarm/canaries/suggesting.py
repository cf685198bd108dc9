"""Which dimensions a train.py suggests by itself, where no language model proposes any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from functions.rules.swarm.canaries.proposing import spelling
from functions.rules.swarm.scanning import scanned
from state.records import Dimension

MOST: Final = 3


def suggested(constants: Mapping[str, object], dimensions: Sequence[Dimension]) -> list[dict[str, Any]]:
    """The first constants of a script that a search may vary and does not, each with a range around its value.

    Ints and categories come first: they are mostly sizes and choices of the architecture, not details.
    """
    known = {spelling(d.name) for d in dimensions}
    found = [(d, value) for d, value in scanned(constants).found if spelling(d.name) not in known]
    found = [(d, value) for d, value in found if d.dtype != "categorical" or len(d.categories or ()) > 1]
    found.sort(key=lambda each: each[0].dtype not in ("int", "categorical"))
    return [
        {
            **d.model_dump(include={"name", "dtype", "min", "max", "categories"}),
            "default_value": value,
            "rationale": "train.py has it as a constant, and nothing varies it yet",
            "train_py_line": f"{d.name} = {value!r}",
        }
        for d, value in found[:MOST]
    ]
