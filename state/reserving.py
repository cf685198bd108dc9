"""What a change takes of a tag's budget: runs that are set aside, and patches."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from state.booking import SUMS, is_due, unit_of, warn
from state.budgets import WARN_AT, in_seconds, milliseconds
from state.change import Change, Key, Read, hmget
from state.errors import BudgetExhausted
from state.keys import Keys
from state.tags import Resource, exhausted

RUNS: tuple[Resource, ...] = ("runs", "gpu_seconds")
"""What a run takes of."""
PATCHES: tuple[Resource, ...] = ("patch_bytes",)
Stored = Mapping[str, str | None]


@dataclass(frozen=True)
class Taken:
    """What is taken of one resource: runs, milliseconds of GPU time or bytes of patches."""

    resource: Resource
    part: Literal["reserved", "spent"]
    more: int


def a_run(run_s: float, held: str | None = None) -> list[Taken]:
    """A run that is set aside; `held` are the seconds that its experiment has set aside already."""
    more_ms = milliseconds(run_s) - milliseconds(float(held or 0))
    return [Taken("runs", "reserved", int(held is None)), Taken("gpu_seconds", "reserved", more_ms)]


def set_aside(change: Change, experiment: Key, run_s: float) -> None:
    """Keep with an experiment what is set aside for it."""
    change.hset(experiment, {"reserved_gpu_seconds": in_seconds(milliseconds(run_s))})


def reading_books(keys: Keys, tag: str, resources: Sequence[Resource]) -> list[Read[dict[str, str | None]]]:
    """Reads of limits, and of what is taken. Others may take more meanwhile: `Booking` watches that there is room."""
    taken = [field for name in resources for field in SUMS[name]]
    return [hmget(keys.tag(tag), *limits_of(resources)), hmget(keys.tag(tag), *taken).loose()]


def limits_of(resources: Sequence[Resource]) -> list[str]:
    """Fields of a tag that limit these resources."""
    return [f"{what}_{name}" for name in resources for what in ("budget", "warned")]


@dataclass
class Booking:
    """Amounts that a change takes of a tag's budget, with the limits and sums that were read."""

    change: Change
    tag: str
    takes: Sequence[Taken]
    limits: Stored
    taken: Stored
    must_fit: bool = True
    """False: it is counted, and never refused."""
    _warned: list[Taken] = field(default_factory=list)

    async def check(self) -> None:
        """Refuse what the budget has no room for, now or by the commit. Raises BudgetExhausted."""
        key = self.change.lab.keys.tag(self.tag)
        for take in self.takes:
            limit = self.limits[f"budget_{take.resource}"]
            if limit is None or take.more <= 0:
                continue
            sums, most = SUMS[take.resource], float(limit) * unit_of(take.resource)
            warns = self.limits[f"warned_{take.resource}"] is None
            if warns and is_due(
                take.resource, float(limit), *self._after(take)
            ):  # the event says what is taken
                (exact,) = await self.change.read(hmget(key, *sums))
                self.taken = {**self.taken, **exact}
            reserved, spent = self._after(take)
            if self.must_fit and reserved + spent > most:
                raise self._exhausted(take, limit)
            if warns and is_due(take.resource, float(limit), reserved, spent):
                self._warned.append(take)
            elif warns:
                self.change.room(key, sums, math.ceil(WARN_AT * most) - 1)
            elif self.must_fit:
                self.change.room(key, sums, math.floor(most))

    def write(self) -> None:
        """Take it, and warn once where it is near a limit."""
        for take in self.takes:
            reserved, spent = SUMS[take.resource]
            if take.more:
                counter = reserved if take.part == "reserved" else spent
                self.change.hincrby(self.change.lab.keys.tag(self.tag), counter, take.more)
        for take in self._warned:
            limit = json.loads(self.limits[f"budget_{take.resource}"] or "0")
            warn(self.change, self.tag, take.resource, limit, *self._after(take))

    def _after(self, take: Taken) -> tuple[int, int]:
        """What is reserved then, and what is spent."""
        reserved, spent = (int(self.taken[name] or 0) for name in SUMS[take.resource])
        return (reserved + take.more, spent) if take.part == "reserved" else (reserved, spent + take.more)

    def _exhausted(self, take: Taken, limit: str) -> BudgetExhausted:
        unit = unit_of(take.resource)
        reserved, spent = (int(self.taken[name] or 0) for name in SUMS[take.resource])
        numbers = [in_seconds(n) if unit > 1 else str(n) for n in (spent, reserved, take.more)]
        return exhausted(self.tag, ["exhausted", take.resource, limit, *numbers])


@dataclass
class PatchEntry:
    """A patch that a change stores, once by its content. What is new counts against its tag's budget."""

    change: Change
    key: str
    content: bytes
    is_new: bool
    is_written: bool
    """Whether to write it: it is missing, or other content stands under its name."""

    @classmethod
    async def of(cls, change: Change, patch_id: str, content: bytes, *, is_there: bool) -> PatchEntry:
        """The entry of a patch, which is there or not."""
        lab, key = change.lab, change.lab.keys("diffs", patch_id)
        is_same = is_there and await lab.binary("GET", key) == content
        return cls(change, key, content, not is_there, not is_same)

    @property
    def takes(self) -> list[Taken]:
        """What it takes of its tag's budget."""
        return [Taken("patch_bytes", "spent", len(self.content))] if self.is_new else []

    def write(self) -> None:
        self.change.incrby(self.change.lab.keys("patch_uses"))
        if self.is_written:
            self.change.set(self.key, self.content)
