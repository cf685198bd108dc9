"""Transfers of keeps to a longer budget, by the tag that their runs are in."""

from __future__ import annotations

from state.apart import Apart
from state.change import Change
from state.records import Transfer


class Transfers(Apart[Transfer]):
    """All transfers of the lab."""

    record, family = Transfer, "transfers"

    def _tell(self, change: Change, one: Transfer, *, is_new: bool) -> None:
        data = one.model_dump(
            include={"into", "against", "budget_s", "state", "reason", "gain", "longer_gain", "pairs"}
        )
        if is_new:
            change.emit("transfer.begun", one.tag, one.experiment_id, data)
        else:
            change.emit("transfer.decided", one.tag, one.experiment_id, data)
