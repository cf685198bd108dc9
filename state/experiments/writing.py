"""Writes that several changes of experiments share: indexes, the best, noise, traces, the status of a GPU."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from state.change import NOW, Change, Read, Word, hmget
from state.decisions import Growth, LeftNoise
from state.facts import Spread
from state.keys import Keys
from state.leases import Renewal
from state.noise import runs_at
from state.records import Best, Experiment, GpuStatus, Status, flatten


def put_best(
    change: Change, keys: Keys, e: Experiment, after: Best, other_key: str | None, *, is_new: bool
) -> None:
    """Make this the best under a comparability key, as `e` has it; where it `is_new`, tell of it."""
    best = keys.best(e.tag, other_key)
    values = after.model_dump(exclude={"updated_at", "version"})
    fields = flatten({name: "" if value is None else value for name, value in values.items()})
    change.hset(best, fields | ({"updated_at": NOW} if is_new else {}))
    change.hincrby(best, "version")
    if is_new:
        data = after.model_dump(include={"experiment_id", "val_bpb", "commit_sha"}) | {"key": other_key}
        change.emit("best.changed", e.tag, after.experiment_id, data, e.traceparent)


def relist(change: Change, keys: Keys, e: Experiment, before: Status, after: Status) -> None:
    """Move an experiment from the indexes of one status to those of another."""
    for index in keys.indexes(e, before):
        change.zrem(index, e.experiment_id)
    for index in keys.indexes(e, after):
        change.zadd(index, {e.experiment_id: e.number})


def versions_of(keys: Keys, growths: Iterable[Growth]) -> list[Read[dict[str, str | None]]]:
    """Reads of the versions of traces, for `are_as_read`."""
    return [hmget(keys.trace(growth.trace.trace_id), "version") for growth in growths]


def are_as_read(growths: Sequence[Growth], versions: Iterable[Mapping[str, str | None]]) -> bool:
    """Whether the traces still are what the decision used."""
    return [int(found["version"] or 0) for found in versions] == [g.trace.version for g in growths]


def grow(change: Change, keys: Keys, growths: Iterable[Growth]) -> None:
    """Give traces their fields."""
    for growth in growths:
        trace = keys.trace(growth.trace.trace_id)
        change.hset(trace, flatten(growth.fields))
        change.hincrby(trace, "version")


def leave_noise(
    change: Change,
    noise: str,
    code: str,
    left: LeftNoise,
    leaving: Sequence[str],
    sums: Mapping[str, str | None],
) -> None:
    """Take runs out of the noise; `sums` are its df and squares now."""
    change.zrem(runs_at(noise, code), *leaving)
    change.hset(noise, {name: after for name, (_, after) in left.entries.items() if after})
    change.hdel(noise, *(name for name, (_, after) in left.entries.items() if not after))
    now = Spread(int(sums["df"] or 0), float(sums["squares"] or 0))
    change.hset(noise, now.changed(left.change))


def renew(change: Change, gpu_id: str, end: Renewal) -> None:
    """Renew the lease of a GPU, whose fields the caller sets. The commit comes before the deadline."""
    if end.deadline < math.inf:
        change.before(end.deadline)
    change.zadd(change.lab.keys("leases"), {gpu_id: end.expires_at})


def told(e: Experiment, facts: Mapping[str, object]) -> dict[str, object]:
    """Data of an event about an experiment's result."""
    return e.model_dump(include={"experiment_id", "number", "val_bpb", "agent"}) | dict(facts)


FLAGS = (
    *("status", "idle_since", "offline", "holder", "sick", "tripped"),
    *("drained", "unproven", "leaving"),
)
"""Fields of a GPU that its status follows from, and those that follow from it."""
LEASED = ("holder", "leased_at", "lease_expires_at", "deadline", "runner")
"""Fields of a GPU that end with its lease."""


def keep_gpu(
    change: Change, gpu_id: str, before: Mapping[str, str], after: dict[str, Word], reason: str
) -> GpuStatus:
    """Keep a GPU with its status, and the index of idle GPUs equal to it. It may be its `FLAGS` alone."""
    status, index = _status_of(after), change.lab.keys("idle_gpus")
    is_other = status != before.get("status")
    if is_other:
        after["status"] = status
        after.pop("idle_since", None)
        after |= {"idle_since": NOW} if status == "idle" else {}
    change.replace(change.lab.keys.gpu(gpu_id), before, after)
    if is_other and status == "idle":
        change.zadd(index, {gpu_id: NOW})
    elif is_other:
        change.zrem(index, gpu_id)
    if is_other and status != "training":
        why = after.get("sick") or after.get("tripped") if status == "unhealthy" else reason
        change.emit(f"gpu.{status}", None, gpu_id, {"gpu_id": gpu_id, "reason": why})
    return status


def _status_of(flags: Collection[str]) -> GpuStatus:
    """The status of a GPU with these fields, the strongest flag first."""
    if "offline" in flags:
        return "offline"
    if "holder" in flags:
        return "training"
    if "sick" in flags or "tripped" in flags:
        return "unhealthy"
    return "draining" if not {"drained", "unproven", "leaving"}.isdisjoint(flags) else "idle"
