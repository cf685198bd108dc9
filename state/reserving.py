"""A tag's budget within a change: what runs and patches take of it, and the warning near a limit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from state.budgets import WARN_AT, in_seconds, milliseconds
from state.change import Change, Key, Read, hmget
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


def reading_books(keys: Keys, tag: str, resources: Sequence[Resource]) -> list[Read[dict[str, str | None]]]:
    """Reads of limits, and of what is taken. Others may take more meanwhile: `Booking` watches that there is room."""
    limits = [f"{what}_{name}" for name in resources for what in ("budget", "warned")]
    return [hmget(keys.tag(tag), *limits), hmget(keys.tag(tag), *_sums(resources)).loose()]


@dataclass
class Booking:
    """What a change takes of a tag's budget."""

    change: Change
    tag: str
    takes: Sequence[Taken]
    limits: Stored
    taken: Stored
    must_fit: bool = True
    """False: it is counted, and never refused."""
    _warned: list[Taken] = field(default_factory=list)

    async def check(self) -> None:
        """Refuse what the budget has no room for, now or by the commit.

        Raises:
            BudgetExhausted: there is no room.
        """
        key = self.change.lab.keys.tag(self.tag)
        if warned := [take.resource for take in self.takes if self._warns(take)]:
            (exact,) = await self.change.read(hmget(key, *_sums(warned)))  # the event says it
            self.taken = {**self.taken, **exact}
        for take in self.takes:
            limit = self.limits[f"budget_{take.resource}"]
            if limit is None:
                continue
            most = _units(take.resource, limit)
            if self.must_fit and take.more > 0 and self._total(take) > most:
                raise self._exhausted(take, limit)
            if self._warns(take):
                self._warned.append(take)
                continue
            if self.limits[f"warned_{take.resource}"] is None:
                most = _least_warned(take.resource, limit) - 1
            elif not self.must_fit:
                continue
            if take.more > 0:
                is_time = take.resource == "gpu_seconds"
                self.change.room(key, _sums([take.resource]), (most + 0.5) / 1000 if is_time else most)

    def write(self) -> None:
        """Take it, and warn once where it is near a limit."""
        key = self.change.lab.keys.tag(self.tag)
        for take in self.takes:
            for name in _sums([take.resource]):
                more = take.more if name.startswith(take.part) else 0
                if not more and self.taken[name] not in (
                    None,
                    "0.0",
                ):  # with three decimals from the first run on
                    continue
                if take.resource == "gpu_seconds":
                    self.change.add_seconds(key, name, more)
                elif take.resource == "runs" or more:
                    self.change.hincrby(key, name, more)
        for take in self._warned:
            self.change.hset(key, {f"warned_{take.resource}": "true"})
            told = {name: self._after(take, name) for name in ("spent", "reserved")}
            limit = json.loads(self.limits[f"budget_{take.resource}"] or "null")
            data = {"tag": self.tag, "resource": take.resource, "limit": limit, **told}
            self.change.emit("tag.budget_warning", self.tag, self.tag, data)

    def _warns(self, take: Taken) -> bool:
        """Whether the share `WARN_AT` of the limit is taken then, and nobody was warned."""
        limit = self.limits[f"budget_{take.resource}"]
        if limit is None or self.limits[f"warned_{take.resource}"] is not None:
            return False
        return self._total(take) >= _least_warned(take.resource, limit)

    def _total(self, take: Taken) -> int:
        return take.more + sum(
            _units(take.resource, self.taken[name] or "0") for name in _sums([take.resource])
        )

    def _after(self, take: Taken, part: str) -> float | int:
        before = _units(take.resource, self.taken[f"{part}_{take.resource}"] or "0")
        after = before + (take.more if part == take.part else 0)
        return after / 1000 if take.resource == "gpu_seconds" else after

    def _exhausted(self, take: Taken, limit: str) -> Exception:
        spent, reserved = (self.taken[name] or "0" for name in _sums([take.resource]))
        needed = in_seconds(take.more) if take.resource == "gpu_seconds" else str(take.more)
        return exhausted(self.tag, ["exhausted", take.resource, limit, spent, reserved, needed])


@dataclass
class PatchEntry:
    """A patch that a change stores, once by its content. What is new counts against its tag's budget."""

    change: Change
    key: str
    content: bytes
    is_new: bool
    is_written: bool
    """What is there already is written where it is something else: its content is not what it is named by."""

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
        """Store it."""
        self.change.incrby(self.change.lab.keys("patch_uses"))
        if self.is_written:
            self.change.set(self.key, self.content)


def _sums(resources: Sequence[Resource]) -> list[str]:
    return [f"{part}_{name}" for name in resources for part in ("spent", "reserved")]


def _units(resource: Resource, amount: str) -> int:
    """An amount in whole milliseconds, runs or bytes."""
    return milliseconds(float(amount)) if resource == "gpu_seconds" else int(float(amount))


def _least_warned(resource: Resource, limit: str) -> int:
    scale = 1000 if resource == "gpu_seconds" else 1
    return math.ceil(WARN_AT * float(limit) * scale - 1e-6)


def set_aside(change: Change, experiment: Key, run_s: float) -> None:
    """Keep with an experiment what its booking has set aside for it."""
    change.hset(experiment, {"reserved_gpu_seconds": in_seconds(milliseconds(run_s))})
