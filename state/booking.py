"""The books of a tag's budget as changes write them: what is set aside and spent, and the warnings of its limits."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from state.change import Change, Key, Read, hmget
from state.derived import WARN_AT, Books, in_seconds, milliseconds
from state.errors import BudgetExhausted
from state.keys import Keys
from state.records import Tag

Resource = Literal["gpu_seconds", "runs", "patch_bytes"]
RESOURCES: tuple[Resource, ...] = get_args(Resource)
"""Resources that a budget limits."""
_OF_RUNS = "wait until reserved runs end; a run of your own can still be registered and reported"
_WORDS = {
    "gpu_seconds": ("GPU seconds", _OF_RUNS),
    "runs": ("runs", _OF_RUNS),
    "patch_bytes": ("bytes of patches", "send commits that the worker has, without diff"),
}
"""Resources, and what an agent can do where one is used up, in words."""
RUNS: tuple[Resource, ...] = ("runs", "gpu_seconds")
"""What a run takes of."""
PATCHES: tuple[Resource, ...] = ("patch_bytes",)
SUMS: Mapping[str, tuple[str, str]] = {
    "gpu_seconds": ("reserved_gpu_ms", "spent_gpu_ms"),
    "runs": ("reserved_runs", "spent_runs"),
    "patch_bytes": ("reserved_patch_bytes", "spent_patch_bytes"),
}
"""Counters of a tag by resource; nothing is reserved of patches."""
Stored = Mapping[str, str | None]

Due = tuple[str, float, int, int]
"""A warning that is due: the resource, its limit, and what is reserved and spent."""


async def due(change: Change, tag: Tag, more: Books) -> list[Due]:
    """The warnings that are due with a change of the books, where they were not given since their limits were set.

    Where nothing is due, other changes of the books may come before this one.
    """
    found: list[Due] = []
    if not tag.has_budget:
        return found
    key, seconds = change.lab.keys.tag(tag.name), (more.reserved_ms, more.spent_ms)
    for resource, limit, was_given, added in (
        ("gpu_seconds", tag.budget_gpu_seconds, tag.warned_gpu_seconds, seconds),
        ("runs", tag.budget_runs, tag.warned_runs, (more.reserved_runs, more.spent_runs)),
    ):
        if limit is None or was_given or added == (0, 0):
            continue
        fields = SUMS[resource]
        if not is_due(resource, limit, *(getattr(tag, f) + by for f, by in zip(fields, added, strict=True))):
            change.room(key, fields, math.ceil(WARN_AT * limit * unit_of(resource)) - 1)
            continue
        (sums,) = await change.read(hmget(key, *fields))
        reserved, spent = (int(sums[f] or 0) + by for f, by in zip(fields, added, strict=True))
        found += [(resource, limit, reserved, spent)] if is_due(resource, limit, reserved, spent) else []
    return found


def is_due(resource: str, limit: float, reserved: int, spent: int) -> bool:
    """Whether the share `WARN_AT` of a limit is reserved or spent."""
    return reserved + spent >= WARN_AT * limit * unit_of(resource)


def warn(change: Change, tag: str, resource: str, limit: float, reserved: int, spent: int) -> None:
    """Tell once that much of a limit is reserved or spent; again only after the limit was changed."""
    unit = unit_of(resource)
    change.hset(change.lab.keys.tag(tag), {f"warned_{resource}": "true"})
    books = (
        {"spent": spent / unit, "reserved": reserved / unit}
        if unit > 1
        else {"spent": spent, "reserved": reserved}
    )
    change.emit("tag.budget_warning", tag, tag, {"tag": tag, "resource": resource, "limit": limit, **books})


def unit_of(resource: str) -> int:
    """Of one in a limit, in the counters."""
    return 1000 if resource == "gpu_seconds" else 1


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
        """The reserved and the spent amount after this."""
        reserved, spent = (int(self.taken[name] or 0) for name in SUMS[take.resource])
        return (reserved + take.more, spent) if take.part == "reserved" else (reserved, spent + take.more)

    def _exhausted(self, take: Taken, limit: str) -> BudgetExhausted:
        unit, (what, remedy) = unit_of(take.resource), _WORDS[take.resource]
        most = json.loads(limit)
        sums = (*(int(self.taken[name] or 0) for name in SUMS[take.resource]), take.more)
        reserved, spent, needed = (n / unit if unit > 1 else n for n in sums)
        return BudgetExhausted(
            f"the budget of {self.tag!r} is {most:g} {what}: {spent:g} are spent, {reserved:g} reserved,"
            f" {needed:g} needed",
            hint=f"{remedy}; or have an operator raise it with POST /api/tag/budget",
            fields={
                "code": "budget_exhausted",
                "resource": take.resource,
                "limit": most,
                "spent": spent,
                "reserved": reserved,
            },
        )


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
