"""Distillations of chains of keeps, by the tag that their runs are in."""

from __future__ import annotations

from state.apart import Apart
from state.change import Change
from state.records import Distillation


class Distillations(Apart[Distillation]):
    """All distillations of the lab."""

    record, family = Distillation, "distillations"

    def _tell(self, change: Change, one: Distillation, *, is_new: bool) -> None:
        told = one.model_dump(include={"into", "best", "state", "reason", "smallest", "most_runs", "loss"})
        kept = sum(change.stays for change in one.changes)
        data = told | {"changes": len(one.changes), "kept": kept, "runs": one.runs}
        if is_new:
            change.emit("distil.begun", one.tag, one.into, data)
        else:
            change.emit("distil.decided", one.tag, one.into, data)
