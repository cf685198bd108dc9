"""A GPU's status, which follows from its flags."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from state.change import NOW, Change, Word
from state.records import GpuStatus

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
