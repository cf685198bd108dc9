"""The GPU pool: slots with leases, fences and health; each move is one guarded script."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from state.client import Lab
from state.errors import NotFound
from state.records import Experiment, Gpu, GpuStatus, flatten


@dataclass(frozen=True)
class Lease:
    """A GPU lent to one attempt."""

    gpu_id: str
    gpu_index: int
    fence: int
    expires_at: float
    held_before: bool
    """The experiment had it already."""


@dataclass(frozen=True)
class Pulse:
    """What the pool knows of a GPU that has just sent a heartbeat."""

    status: GpuStatus
    holder: str | None
    fence: int
    fence_right: bool


class Pool:
    """All GPUs and CPU slots of the lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._keys = lab.keys

    async def now(self) -> float:
        """Redis' clock, by which heartbeats and leases are judged."""
        return await self._lab.now()

    async def find(self, gpu_id: str) -> Gpu | None:
        """The GPU, or None."""
        stored = await self._lab.hash(self._keys.gpu(gpu_id))
        return Gpu.parse(stored) if stored else None

    async def get(self, gpu_id: str) -> Gpu:
        """The GPU.

        Raises:
            NotFound: it is not registered.
        """
        found = await self.find(gpu_id)
        if found is None:
            raise unknown(gpu_id)
        return found

    async def all(self) -> list[Gpu]:
        """Every GPU, oldest first."""
        ids = await self._lab.command("ZRANGE", self._keys("gpus"), 0, -1)
        stored = await self._lab.hashes([self._keys.gpu(i) for i in ids])
        return [Gpu.parse(fields) for fields in stored if fields]

    async def ids(self) -> list[str]:
        """Ids of every GPU."""
        ids: list[str] = await self._lab.command("ZRANGE", self._keys("gpus"), 0, -1)
        return ids

    async def idle(self) -> list[Gpu]:
        """Idle GPUs, longest idle first."""
        ids = await self._lab.command("ZRANGE", self._keys("idle_gpus"), 0, -1)
        stored = await self._lab.hashes([self._keys.gpu(i) for i in ids])
        return [Gpu.parse(fields) for fields in stored if fields]

    async def register(self, gpu: Gpu, *, of_any: bool = True) -> GpuStatus | Literal["other"]:
        """Add a GPU, or bring it back; a lease on it stays. Answers its status.

        A new one is `gpu.owner`'s. "other": it is somebody else's, and was to be brought back only if it is not
        (`of_any=False`).
        """
        keys = self._keys
        fields = gpu.model_dump(
            include={
                "gpu_id",
                "gpu_index",
                "gpu_name",
                "vram_mb",
                "uuid",
                "host",
                "boot_id",
                "labels",
            },
            exclude_none=True,
        )
        status: GpuStatus | Literal["other"] = await self._lab.run(
            "register_gpu",
            [keys.gpu(gpu.gpu_id), keys("gpus"), keys("idle_gpus"), keys("events")],
            [gpu.gpu_id, json.dumps(flatten(fields)), gpu.owner, "any" if of_any else "own"],
        )
        return status

    async def heartbeat(
        self, gpu_id: str, *, fence: int | None, lease_s: float, health: Mapping[str, Any] | None
    ) -> Pulse:
        """Note that a GPU is alive; the right fence prolongs the lease too.

        Raises:
            NotFound: it is not registered.
        """
        keys = self._keys
        answer = await self._lab.run(
            "heartbeat_gpu",
            [keys.gpu(gpu_id), keys("idle_gpus"), keys("leases"), keys("events")],
            [
                gpu_id,
                fence,
                lease_s,
                json.dumps(dict(health), allow_nan=False) if health is not None else "",
            ],
        )
        if answer[0] == "unknown":
            raise unknown(gpu_id)
        _, status, holder, found_fence, right = answer
        return Pulse(status, holder or None, int(found_fence), right == "1")

    async def lend(
        self,
        e: Experiment,
        candidates: Sequence[str],
        *,
        lease_s: float,
        stale_s: float,
        chosen_from: Sequence[str] | None = None,
    ) -> Lease | Literal["none", "paused", "stale"]:
        """Lend the first candidate that is still idle, healthy and fresh to an experiment's attempt.

        The experiment is `queued` (a worker will run it) or `registered` (its agent holds the lease itself).
        "none": every candidate is taken; "paused": its tag is; "stale": it is no longer as it was read, or, where
        none is left, other GPUs are idle than those that the candidates were `chosen_from`.
        """
        keys = self._keys
        answer = await self._lab.run(
            "lease_gpu",
            [
                keys.experiment(e.experiment_id),
                keys.attempts(e.experiment_id),
                *keys.indexes(e, "queued"),
                *keys.indexes(e, "leased"),
                keys.queue(e.pinned_gpu),
                keys("queue_clock"),
                keys("starting"),
                keys("leases"),
                keys("idle_gpus"),
                keys("fence"),
                keys("events"),
                keys.gpu(e.gpu_id) if e.gpu_id else keys.experiment(e.experiment_id),
                keys.tag(e.tag),
                keys("paused"),
                *(keys.gpu(c) for c in candidates),
            ],
            [
                e.experiment_id,
                e.number,
                e.tag,
                e.status,
                e.attempt,
                lease_s,
                stale_s,
                e.traceparent,
                e.gpu_id,
                "-" if chosen_from is None else ",".join(chosen_from),
            ],
        )
        match answer[0]:
            case "leased" | "held":
                _, gpu_id, index, fence, expiry = answer
                return Lease(gpu_id, int(index), int(fence), float(expiry), answer[0] == "held")
            case "none":
                return "none"
            case "paused":
                return "paused"
            case _:
                return "stale"

    async def release(
        self, gpu_id: str, experiment_id: str, fence: int | None, *, proven: bool
    ) -> Literal["ok", "free", "other", "busy"]:
        """Take a GPU back from its holder; its keeper has to look where a worker ran and it is not `proven` empty.

        `free` where nobody held it, `other` where somebody else does, `busy` while a worker has the experiment on it.
        """
        keys = self._keys
        answer: Literal["ok", "free", "other", "busy"] = await self._lab.run(
            "release_gpu",
            [
                keys.gpu(gpu_id),
                keys.experiment(experiment_id),
                keys("idle_gpus"),
                keys("leases"),
                keys("events"),
            ],
            [gpu_id, experiment_id, fence, proven],
        )
        return answer

    async def flag(
        self,
        gpu_id: str,
        *,
        set_: Mapping[str, Any] | None = None,
        clear: Sequence[str] = (),
        reason: str,
        fence: int | None = None,
        silent_for_s: float | None = None,
    ) -> GpuStatus | None:
        """Set or clear flags (offline, sick, drained, unproven, leaving, ...); answers the status that follows.

        None where the GPU is unknown, its fence is another, or, with `silent_for_s`, it was heard of since then or is
        offline already.
        """
        keys = self._keys
        answer = await self._lab.run(
            "flag_gpu",
            [keys.gpu(gpu_id), keys("idle_gpus"), keys("events")],
            [gpu_id, json.dumps(flatten(set_ or {})), ",".join(clear), reason, fence, silent_for_s],
        )
        status: GpuStatus | None = answer[1] if answer[0] == "ok" else None
        return status

    async def allow_trial(self, gpu_id: str) -> bool:
        """Let a GPU that was taken out for its crashes try one run; False before its cool-down is over."""
        keys = self._keys
        answer = await self._lab.run(
            "try_gpu", [keys.gpu(gpu_id), keys("idle_gpus"), keys("events")], [gpu_id]
        )
        return bool(answer == "ok")

    async def begin_sweep(self, longest_gap_s: float, grace_s: float) -> bool:
        """Note that a sweep begins; True while nobody is to be given up because sweeps themselves were missing."""
        answer = await self._lab.run("note_sweep", [self._keys("sweep")], [longest_gap_s, grace_s])
        return int(answer) == 1

    async def deregister(self, gpu_id: str) -> Literal["ok", "unknown", "held"]:
        """Forget a GPU that nobody holds."""
        keys = self._keys
        answer: Literal["ok", "unknown", "held"] = await self._lab.run(
            "deregister_gpu",
            [keys.gpu(gpu_id), keys("gpus"), keys("idle_gpus"), keys("events")],
            [gpu_id],
        )
        return answer

    async def expired(self) -> list[str]:
        """GPUs whose lease is over."""
        now = await self._lab.now()
        ids: list[str] = await self._lab.command("ZRANGEBYSCORE", self._keys("leases"), "-inf", repr(now))
        return ids


def unknown(gpu_id: str) -> NotFound:
    """The GPU is not registered."""
    return NotFound(f"there is no GPU {gpu_id!r}", hint="register it with POST /api/pool/register")
