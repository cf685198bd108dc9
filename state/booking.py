"""Writes of a tag's books: what its runs have reserved and spent, and the warnings of its limits."""

from __future__ import annotations

import math
from collections.abc import Mapping

from state.budgets import WARN_AT, Books
from state.change import Change, hmget
from state.records import Tag

SUMS: Mapping[str, tuple[str, str]] = {
    "gpu_seconds": ("reserved_gpu_ms", "spent_gpu_ms"),
    "runs": ("reserved_runs", "spent_runs"),
    "patch_bytes": ("reserved_patch_bytes", "spent_patch_bytes"),
}
"""Counters of a tag by resource; nothing is reserved of patches."""
Due = tuple[str, float, int, int]
"""A warning that is due: the resource, its limit, and what is reserved and spent."""


def write_books(change: Change, tag: str, more: Books) -> None:
    """Add to what a tag has reserved and spent."""
    key = change.lab.keys.tag(tag)
    for field, by in zip(
        (*SUMS["gpu_seconds"], *SUMS["runs"]),
        (more.reserved_ms, more.spent_ms, more.reserved_runs, more.spent_runs),
        strict=True,
    ):
        if by:
            change.hincrby(key, field, by)


async def due(change: Change, tag: Tag, more: Books) -> list[Due]:
    """The warnings that are due with a change of the books, where they were not given since their limits were set.

    Where nothing is due, other changes of the books may come before this one.
    """
    found = list[Due]()
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
