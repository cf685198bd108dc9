"""The GPU pool: slots with leases, fences and health; each change is one guarded script."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from state import reads
from state.change import NOW, Asked, Change, Word, clock, hgetall, hmget, loosely
from state.experiments.writing import LEASED, keep_gpu, renew
from state.ids import named_by
from state.leases import GpuLease, GpuRequest, Holding, Line, renewal
from state.reads import Store
from state.records import Experiment, Gpu, GpuStatus, flatten
from state.refusals import no_gpu

OWNED = ("owner", "of_agent")
DESCRIBED = {
    *("gpu_id", "gpu_index", "gpu_name", "vram_mb", "uuid", "host", "boot_id", "labels", "scripts"),
    *("transport", "keeper"),
}
"""Fields of a GPU that its keeper reports."""


MEASURED = ("utilization_percent", "memory_used_mb", "temperature_c")
"""Fields of a sample that a GPU's history keeps."""
HISTORY_EVERY_S = 120
"""Seconds between two samples of a GPU's history."""
HISTORY_S = 86_400
"""Seconds that it reaches back."""


class Pool(Store):
    """All GPUs and CPU slots of the lab."""

    async def find(self, gpu_id: str) -> Gpu | None:
        stored = await self._lab.hash(self._keys.gpu(gpu_id))
        return Gpu.found(stored)

    async def get(self, gpu_id: str) -> Gpu:
        """The GPU. Raises NotFound: it is not registered."""
        found = await self.find(gpu_id)
        if found is None:
            raise no_gpu(gpu_id)
        return found

    async def history(self, gpu_id: str, last_s: float) -> tuple[Gpu, list[str], list[list[float | None]]]:
        """A GPU, its environment, and its samples (time, `MEASURED`), oldest first.

        Raises:
            NotFound: it is not registered.
        """
        most = math.ceil(last_s / HISTORY_EVERY_S)
        now, gpu, environment, rows = await self._lab.read(
            clock(),
            loosely("HGETALL", self._keys.gpu(gpu_id), to=Gpu.found),
            loosely("HGET", self._keys("environments"), gpu_id),
            loosely("LRANGE", self._keys.gpu_history(gpu_id), -most, -1),
        )
        if gpu is None:
            raise no_gpu(gpu_id)
        samples = [row for text in rows if (row := json.loads(text))[0] >= now - last_s]
        return gpu, json.loads(environment or "[]"), samples

    async def roster(self) -> tuple[float, list[Gpu]]:
        """Redis' clock, and every GPU, oldest first."""
        return await self._lab.read(clock(), reads.gpus(self._lab))

    async def ids(self) -> list[str]:
        ids: list[str] = await self._lab.command("ZRANGE", self._keys("gpus"), 0, -1)
        return ids

    async def holding(self, gpu_id: str, change: Change | None = None) -> Holding:
        """The GPU and the experiment that holds it; a `change` holds the GPU. Raises NotFound."""
        keys, source = self._keys, change or self._lab
        found = await source.read(
            {
                "now": clock(),
                "gpu": hgetall(keys.gpu(gpu_id)),
                "newest": ("LRANGE", keys.gpu_history(gpu_id), -1, -1) if change else None,
            }
        )
        if not found["gpu"]:
            raise no_gpu(gpu_id)
        gpu = Gpu.parse(found["gpu"])
        holding = Holding(found["now"], gpu, stored=found["gpu"], newest=found["newest"] or ())
        if gpu.holder is None:
            return holding
        _, tag = named_by(gpu.holder)
        held: dict[str, Asked] = {
            "experiment": loosely("HGETALL", keys.experiment(gpu.holder), to=Experiment.found),
            "policy": reads.policy(keys, tag),
            "stop_fence": reads.number("HGET", keys.tag(tag), "stop_fence"),
        }
        return replace(holding, **await source.read(held))

    async def wanted(self, experiment_id: str) -> GpuRequest:
        """An experiment that needs a GPU, and the idle GPUs. Raises NotFound: no such experiment."""
        keys, (_, tag) = self._keys, named_by(experiment_id)
        found = await self._lab.read(
            {
                "now": clock(),
                "experiment": reads.experiment(keys, experiment_id),
                "tag": reads.tag(keys, tag),
                "policy": reads.policy(keys, tag),
                "idle": reads.gpus(self._lab, "idle_gpus"),
                "registered": reads.number("ZCARD", keys("gpus")),
            }
        )
        e: Experiment = found["experiment"]
        last = await self.find(e.gpu_id) if e.gpu_id else None
        holds = last is not None and (last.holder, last.fence) == (experiment_id, e.fence)
        return GpuRequest(**found, held=last if holds else None)

    async def line(self, *, start_grace_s: float, passed: int = 0) -> Line:
        """Experiments that wait for idle GPUs, and overdue starts; two round trips.

        From the common queue, as many entries are read as there are idle GPUs, and `passed` more. GPUs are read after
        the queues, because an experiment that was served in between must not let a later one overtake.
        """
        keys, lab = self._keys, self._lab
        now, ids, leased, baselines = await lab.read(
            clock(),
            loosely("ZRANGE", keys("idle_gpus"), 0, -1),
            loosely("ZRANGE", keys("starting"), 0, -1, "WITHSCORES"),
            loosely("ZRANGE", keys("baselines"), 0, -1),
        )
        late = [
            i for i, at in zip(leased[::2], leased[1::2], strict=True) if float(at) <= now - start_grace_s
        ]
        heads = [(keys.queue(), len(ids) + passed), *((keys.queue(i), 1) for i in ids)] if ids else []
        found = await lab.read(
            {
                **{f"at {queue}": ("ZRANGE", queue, 0, most - 1, "WITHSCORES") for queue, most in heads},
                **{queue: reads.records(lab, Experiment, queue, limit=most) for queue, most in heads},
                **{i: loosely("HGETALL", keys.experiment(i), to=Experiment.found) for i in late},
                "idle": reads.gpus(lab, "idle_gpus"),
            }
        )
        places: dict[str, float] = {}
        for queue, _ in heads:
            row = found[f"at {queue}"]
            places |= {i: float(at) for i, at in zip(row[::2], row[1::2], strict=True)}
        waiting = [
            e
            for queue, _ in heads
            for e in found[queue]
            if e.status == "queued" and e.experiment_id in places
        ]
        return Line(
            now=now,
            idle=found["idle"],
            waiting=sorted(waiting, key=lambda e: places[e.experiment_id]),
            starting=[found[i] for i in late if found[i]],
            baselines=baselines,
        )

    async def register(
        self,
        gpu: Gpu,
        environment: Sequence[str] = (),
        *,
        of_any: bool = True,
        most_of_owner: int | None = None,
        replaced: str | None = None,
    ) -> tuple[Gpu, float] | Literal["other", "full", "served"]:
        """Add a GPU, or bring it back. A lease on it stays. Answers the GPU and Redis' clock.

        A new GPU belongs to `gpu.owner`. "other": another owner has it, and `of_any` is false. "full": the owner
        already has `most_of_owner` GPUs. "served": it is online, and its keeper is neither `gpu.keeper` nor
        `replaced`.
        """
        keys, key = self._keys, self._keys.gpu(gpu.gpu_id)
        described = flatten(gpu.model_dump(include=DESCRIBED, exclude_none=True))

        async def decide(change: Change) -> Literal["other", "full", "served"] | None:
            (before,) = await change.read(hgetall(key))
            known = Gpu.found(before)
            owners = await self._owned(change, known or gpu)
            if known and not of_any and (known.owner, known.of_agent) != (gpu.owner, gpu.of_agent):
                return "other"
            if known is None and most_of_owner and owners >= most_of_owner:
                return "full"
            if (
                known
                and gpu.keeper
                and not known.offline
                and known.keeper not in (None, gpu.keeper, replaced)
            ):
                return "served"
            after: dict[str, Word] = {**before, "heartbeat_at": NOW, **described}
            if known is None:
                after |= {"registered_at": NOW, "fence": 0}
                after |= {"owner": gpu.owner} if gpu.owner else {}
                after |= {"of_agent": "true"} if gpu.of_agent else {}
                self._own(change, gpu, owners + 1)
                change.zadd(keys("gpus"), {gpu.gpu_id: NOW})
            elif not gpu.owner:
                self._own(change, known, owners - 1)
            for name in ("offline", "leaving", "health", "sampled_at", *(() if gpu.owner else OWNED)):
                after.pop(name, None)
            change.hset(keys("environments"), {gpu.gpu_id: json.dumps(environment)})
            if known is None or known.status == "offline":
                change.emit("gpu.registered", None, gpu.gpu_id, {"gpu_id": gpu.gpu_id})
            keep_gpu(change, gpu.gpu_id, before, after, "registered")
            return None

        if refused := await self._lab.change(decide):
            return refused
        return await self._lab.read(loosely("HGETALL", key, to=Gpu.parse), clock())

    def heartbeat(
        self,
        change: Change,
        held: Holding,
        health: Mapping[str, Any] | None,
        *,
        renewed: Experiment | None,
        stops: bool = False,
        lease_s: float,
    ) -> GpuStatus:
        """Record that a GPU is alive and prolong `renewed`'s lease; its status. `stops`: the holder must."""
        gpu, history, after = held.gpu, self._keys.gpu_history(held.gpu.gpu_id), dict[str, Word](held.stored)
        after["heartbeat_at"] = NOW
        after.pop("offline", None)
        if health is not None:
            after |= {"health": json.dumps(dict(health), allow_nan=False), "sampled_at": NOW}
            if not held.newest or held.now - json.loads(held.newest[0])[0] >= HISTORY_EVERY_S:
                measured = ",".join(_number(health.get(name)) for name in MEASURED)
                change.rpush(history, f"[{int(held.now)},{measured}]")
                change.ltrim(history, HISTORY_S // HISTORY_EVERY_S)
        if renewed is not None:
            least = gpu.lease_expires_at or 0.0
            end = renewal(gpu, held.now, lease_s, renewed.extended_s, stops=stops, least=least)
            if end is not None:
                after |= end.fields
                renew(change, gpu.gpu_id, end)
            change.zadd(self._keys("open"), {renewed.experiment_id: NOW + renewed.patience_s}, known=True)
        return keep_gpu(change, gpu.gpu_id, held.stored, after, "heard of again")

    async def lend(
        self,
        e: Experiment,
        candidates: Sequence[str],
        *,
        lease_s: float,
        stale_s: float,
        chosen_from: Sequence[str] | None = None,
        agent: str | None = None,
    ) -> GpuLease | Literal["none", "paused", "stale"]:
        """Lend the first candidate that is still idle, healthy and fresh to an experiment's attempt.

        The experiment is `queued` (a worker will run it) or `registered` (its agent holds the lease itself).
        A GPU that an agent registered for itself is lent to this `agent` only.

        "none": every candidate is taken; "paused": its tag is; "stale": it is no longer as it was read, or, where
        none is left, other GPUs are idle than those that the candidates were `chosen_from`.
        """
        keys = self._keys
        answer = await self._lab.move(
            "lease_gpu",
            keys={
                "experiment": keys.experiment(e.experiment_id),
                "attempts": keys.attempts(e.experiment_id),
                **keys.relisted(e, "queued", "leased"),
                "queue": keys.queue(e.pinned_gpu),
                "held_gpu": keys.gpu(e.gpu_id) if e.gpu_id else None,
                "candidates": [keys.gpu(gpu_id) for gpu_id in candidates],
            },
            args={
                "id": e.experiment_id,
                "number": e.number,
                "tag": e.tag,
                "status_before": e.status,
                "attempt": e.attempt,
                "held_before": e.gpu_id,
                "lease_s": lease_s,
                "stale_s": stale_s,
                "chosen_from": None if chosen_from is None else ",".join(chosen_from),
                "agent": agent,
                "experiment_traceparent": e.traceparent,
            },
        )
        match answer:
            case ["leased" | "held", gpu_id, index, fence, expiry]:
                return GpuLease(gpu_id, int(index), int(fence), float(expiry))
            case ["none" | "paused" | "stale" as why]:
                refused: Literal["none", "paused", "stale"] = why
                return refused
            case _:
                raise AssertionError(answer)

    async def release(
        self, gpu_id: str, experiment_id: str, fence: int | None, *, proven: bool
    ) -> Literal["ok", "free", "other", "busy"]:
        """Take a GPU back from its holder; its keeper has to look where a worker ran and it is not `proven` empty.

        `free`: nobody held it; `other`: another experiment does; `busy`: a worker has the experiment on it.
        """
        keys = self._keys

        async def decide(change: Change) -> Literal["ok", "free", "other", "busy"]:
            before, e = await change.read(
                hgetall(keys.gpu(gpu_id)), hmget(keys.experiment(experiment_id), "status", "fence")
            )
            known = Gpu.found(before)
            if known is None or known.holder is None:
                return "free"
            if known.holder != experiment_id or fence not in (None, known.fence):
                return "other"
            if e["status"] in ("leased", "running") and e["fence"] == before["fence"]:
                return "busy"
            after: dict[str, Word] = {name: value for name, value in before.items() if name not in LEASED}
            if proven:
                after.pop("footprint", None)
            elif known.runner is not None:
                after["unproven"] = "true"  # a worker ran on it: its keeper has to look
            change.zrem(keys("leases"), gpu_id)
            keep_gpu(change, gpu_id, before, after, "released")
            return "ok"

        return await self._lab.change(decide)

    async def flag(
        self,
        gpu_id: str,
        *,
        set_: Mapping[str, Any] | None = None,
        clear: Sequence[str] = (),
        reason: str,
        fence: int | None = None,
        heartbeat_at: float | None = None,
        tripped_until: float | None = None,
        keeper: str | None = None,
        unset: str | None = None,
    ) -> Gpu | None:
        """Set or clear flags (offline, sick, drained, unproven, leaving, ...); the GPU with the status that follows.

        None where the GPU is unknown, or is not as the caller read it: one of `fence`, `heartbeat_at`,
        `tripped_until` and `keeper` was given and is another, or the flag `unset` is set already.
        """
        expected = {"fence": fence, "heartbeat_at": heartbeat_at, "tripped_until": tripped_until}

        async def decide(change: Change) -> Gpu | None:
            (before,) = await change.read(hgetall(self._keys.gpu(gpu_id)))
            known = Gpu.found(before)
            if known is None or unset in before or (keeper and known.keeper not in (None, keeper)):
                return None
            if any(value is not None and getattr(known, name) != value for name, value in expected.items()):
                return None
            after: dict[str, Word] = {**before, **flatten(set_ or {})}
            for name in clear:
                after.pop(name, None)
            status = keep_gpu(change, gpu_id, before, after, reason)
            return known.model_copy(update={"status": status})

        return await self._lab.change(decide)

    async def begin_sweep(self, longest_gap_s: float, grace_s: float) -> bool:
        """Note that a sweep begins; True during a grace, because sweeps themselves were missing."""
        sweep = self._keys("sweep")

        async def decide(change: Change) -> bool:
            last, now = await change.read(hmget(sweep, "at", "grace_until"), clock())
            has_gap = last["at"] is not None and now - float(last["at"]) > longest_gap_s
            # A clock that was set back must not prolong the grace by hours.
            grace = now + grace_s if has_gap else min(float(last["grace_until"] or 0), now + grace_s)
            change.before(now + longest_gap_s)
            change.hset(sweep, {"at": NOW, "grace_until": f"{grace:.6f}"})
            return now < grace

        return await self._lab.change(decide)

    async def deregister(
        self,
        gpu_id: str,
        *,
        reason: str = "deregistered",
        agent: str | None = None,
        owner: str | None = None,
        heartbeat_at: float | None = None,
        keeper: str | None = None,
    ) -> Literal["ok", "unknown", "held", "other"]:
        """Forget a GPU that no experiment holds.

        Only one that `agent` registered for itself, that `owner` registered, that was not heard of since
        `heartbeat_at`, or that no other than `keeper` serves, where that is given; "other": it is not.
        """
        keys = self._keys

        async def decide(change: Change) -> Literal["ok", "unknown", "held", "other"]:
            (before,) = await change.read(hgetall(keys.gpu(gpu_id)))
            known = Gpu.found(before)
            if known is None:
                return "unknown"
            is_other = (
                (agent and (known.owner != agent or not known.of_agent))
                or (owner and known.owner != owner)
                or heartbeat_at not in (None, known.heartbeat_at)
                or (keeper and known.keeper not in (None, keeper))
            )
            if is_other or known.holder:
                return "other" if is_other else "held"
            self._own(change, known, await self._owned(change, known) - 1)
            change.delete(keys.gpu(gpu_id), keys.gpu_history(gpu_id))
            change.hdel(keys("environments"), gpu_id)
            change.zrem(keys("gpus"), gpu_id)
            change.zrem(keys("idle_gpus"), gpu_id)
            change.emit("gpu.offline", None, gpu_id, {"gpu_id": gpu_id, "reason": reason})
            return "ok"

        return await self._lab.change(decide)

    async def _owned(self, change: Change, gpu: Gpu) -> int:
        """How many GPUs the owner of this one has registered."""
        if gpu.owner is None:
            return 0
        (counts,) = await change.read(hmget(self._keys(_counted(gpu)), gpu.owner))
        return int(counts[gpu.owner] or 0)

    def _own(self, change: Change, gpu: Gpu, count: int) -> None:
        """The owner of this GPU has so many now."""
        if gpu.owner is not None and count > 0:
            change.hset(self._keys(_counted(gpu)), {gpu.owner: count})
        elif gpu.owner is not None:
            change.hdel(self._keys(_counted(gpu)), gpu.owner)


def _counted(gpu: Gpu) -> str:
    return "agent_gpus" if gpu.of_agent else "worker_gpus"


def _number(value: object) -> str:
    """A measured number as JSON, with six digits."""
    return f"{value:.6g}" if isinstance(value, int | float) else "null"
