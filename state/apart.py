"""Transfers and distillations: records of runs that are in a tag of their own, one for each such tag."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from state.change import Change, clock, hmget
from state.errors import NotFound
from state.reads import Store
from state.records import Distillation, Transfer

T = TypeVar("T", Distillation, Transfer)


class Apart(Store, Generic[T]):
    """All records of one kind in the lab."""

    record: ClassVar[Any]
    family: ClassVar[str]

    @abstractmethod
    def _tell(self, change: Change, one: T, *, is_new: bool) -> None:
        """Write the event of its begin or of its new state."""

    async def all(self, tag: str | None = None) -> list[T]:
        """Those of a tag, or of all, oldest first."""
        texts = await self._lab.command("HVALS", self._keys(self.family))
        found: list[T] = [self.record.model_validate_json(text) for text in texts]
        return sorted((one for one in found if tag in (None, one.tag)), key=lambda one: one.begun_at)

    async def get(self, into: str) -> T:
        """The one whose runs are in a tag. Raises NotFound: there is none."""
        text = await self._lab.command("HGET", self._keys(self.family), into)
        if text is None:
            raise NotFound(f"{into!r} is not in the lab's {self.family}")
        found: T = self.record.model_validate_json(text)
        return found

    async def put(self, before: T | None, after: T) -> bool:
        """Store the next state; False: another process has stored one meanwhile. Begin and end write events."""
        key, found_before = self._keys(self.family), before and before.model_dump_json()

        async def decide(change: Change) -> bool:
            found, now = await change.read(hmget(key, after.into), clock())
            if found[after.into] != found_before:
                return change.idle(False)
            stored = after
            if before is None:
                stored = after.model_copy(update={"begun_at": now})
            elif after.state != "running":
                stored = after.model_copy(update={"decided_at": now})
            change.hset(key, {after.into: stored.model_dump_json()})
            if before is None or after.state != before.state:
                self._tell(change, stored, is_new=before is None)
            return True

        return await self.change(decide)


class Transfers(Apart[Transfer]):
    """Transfers of keeps to a longer budget."""

    record, family = Transfer, "transfers"

    def _tell(self, change: Change, one: Transfer, *, is_new: bool) -> None:
        data = one.model_dump(
            include={"into", "against", "budget_s", "state", "reason", "gain", "longer_gain", "pairs"}
        )
        if is_new:
            change.emit("transfer.begun", one.tag, one.experiment_id, data)
        else:
            change.emit("transfer.decided", one.tag, one.experiment_id, data)


class Distillations(Apart[Distillation]):
    """Distillations of chains of keeps."""

    record, family = Distillation, "distillations"

    def _tell(self, change: Change, one: Distillation, *, is_new: bool) -> None:
        told = one.model_dump(include={"into", "best", "state", "reason", "smallest", "most_runs", "loss"})
        kept = sum(change.stays for change in one.changes)
        data = told | {"changes": len(one.changes), "kept": kept, "runs": one.runs}
        if is_new:
            change.emit("distil.begun", one.tag, one.into, data)
        else:
            change.emit("distil.decided", one.tag, one.into, data)
