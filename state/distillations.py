"""Distillations of chains of keeps, by the tag that their runs are in."""

from __future__ import annotations

from state.change import Change, clock, hmget
from state.errors import NotFound
from state.records import Distillation
from state.store import Store


class Distillations(Store):
    """All distillations of the lab."""

    async def all(self, tag: str | None = None) -> list[Distillation]:
        """Those of a tag, or of all, oldest first."""
        texts = await self._lab.command("HVALS", self._keys("distillations"))
        found = [Distillation.model_validate_json(text) for text in texts]
        return sorted((one for one in found if tag in (None, one.tag)), key=lambda one: one.begun_at)

    async def get(self, into: str) -> Distillation:
        """The one whose runs are in a tag. Raises NotFound: there is none."""
        text = await self._lab.command("HGET", self._keys("distillations"), into)
        if text is None:
            raise NotFound(f"no distillation runs in {into!r}")
        return Distillation.model_validate_json(text)

    async def put(self, before: Distillation | None, after: Distillation) -> bool:
        """Store the next state; False: another process has stored one meanwhile. Begin and end write events."""
        key, found_before = self._keys("distillations"), before and before.model_dump_json()

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
                told = stored.model_dump(
                    include={"into", "best", "state", "reason", "smallest", "most_runs", "loss"}
                )
                kept = sum(change.stays for change in stored.changes)
                data = told | {"changes": len(stored.changes), "kept": kept, "runs": stored.runs}
                if before is None:
                    change.emit("distil.begun", after.tag, after.into, data)
                else:
                    change.emit("distil.decided", after.tag, after.into, data)
            return True

        return await self.change(decide)
