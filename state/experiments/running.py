"""Experiments, run: an attempt begins, renews its lease, reports, and is asked to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from state import reads
from state.archive import packed
from state.booking import PATCHES, SUMS, Booking, PatchEntry, due, reading_books, warn
from state.change import NOW, Change, Word, clock, exists, hgetall, hmget, loosely
from state.derived import Books, in_seconds, milliseconds
from state.experiments.ranking import REPORTED, Ranking
from state.experiments.writing import relist, renew
from state.ids import named_by
from state.leases import renewal
from state.policy import TickSource
from state.reads import experiment_in, tag_in
from state.records import Experiment, Footprint, Gpu, Tag

BUDGET_USED_UP = "its tag's budget of GPU seconds is used up"
"""Why a run is stopped that reaches it."""
LOG_BYTES = 16 * 1024
Order = Literal["continue", "stop", "lost"]


class Running(Ranking):
    async def start(
        self,
        e: Experiment,
        *,
        attempt: int,
        fence: int,
        runner: str,
        lease_s: float,
        footprint: Footprint | None = None,
    ) -> bool:
        """Begin an attempt on the GPU it was leased; False where it was begun before or the fence is old.

        `footprint` is the GPU's memory before it, by which the run is proven gone afterwards.
        """
        if (gpu_id := e.gpu_id) is None:
            return False
        keys, name = self._keys, e.experiment_id

        async def decide(change: Change) -> bool:
            now, lease = await change.read(
                hmget(keys.experiment(name), "status", "attempt", "fence"),
                hmget(keys.gpu(gpu_id), "holder", "fence"),
            )
            if [*now.values(), *lease.values()] != ["leased", str(attempt), str(fence), name, str(fence)]:
                return False
            change.hset(keys.experiment(name), {"status": "running", "started_at": NOW})
            change.hdel(keys.experiment(name), "extended_s", "base_metric", "base_progress")
            deadline, expiry = NOW + ((e.timeout_s or 0.0) + lease_s), NOW + lease_s
            change.hset(
                keys.gpu(gpu_id), {"runner": runner, "deadline": deadline, "lease_expires_at": expiry}
            )
            change.hdel(keys.gpu(gpu_id), "footprint")
            if footprint is not None:
                change.hset(keys.gpu(gpu_id), {"footprint": footprint.model_dump_json()})
            change.zadd(keys("leases"), {gpu_id: expiry})
            begun: dict[str, Word] = {"status": "running", "started_at": NOW, "runner": runner}
            change.hset(keys.attempts(name), {f"{attempt}:{what}": value for what, value in begun.items()})
            change.zrem(keys("starting"), name)
            relist(change, keys, e, "leased", "running")
            told = {"experiment_id": name, "attempt": attempt, "gpu_id": gpu_id, "fence": fence}
            change.emit("experiment.started", e.tag, name, told, e.traceparent)
            return True

        return await self._lab.change(decide)

    async def of_attempt(self, experiment_id: str, attempt: int) -> tuple[Experiment, str | None]:
        """An experiment and the GPU that this attempt has, or had. Raises NotFound: no such experiment."""
        keys = self._keys
        e, gpu_id = await self._lab.read(
            reads.experiment(keys, experiment_id),
            loosely("HGET", keys.attempts(experiment_id), f"{attempt}:gpu_id"),
        )
        return e, gpu_id or e.gpu_id

    async def note_source(
        self, e: Experiment, *, attempt: int, fence: int, tree_id: str, patch: bytes | None, differs: bool
    ) -> bool:
        """Store what code a running attempt trains; False where it is over, or another's. Its time limit begins now.

        `patch` takes the place of the one that was sent, if any. A retest has its code from its first run, unless
        that is a claim.
        """
        (patch_id, content), keys, gpu_id = await packed(patch), self._keys, e.gpu_id or ""
        record, attempts = keys.experiment(e.experiment_id), keys.attempts(e.experiment_id)
        first_id, tree, built = e.retest_of or e.experiment_id, f"tree:{tree_id}", f"{attempt}:built_at"

        async def decide(change: Change) -> bool:
            now, times, gpu, tried, claim, limits, taken, *is_there = await change.read(
                hmget(record, "status", "attempt", "fence", "diff_id", "duplicate_of", "started_at"),
                hmget(attempts, built),
                hmget(keys.gpu(gpu_id), "deadline"),
                hmget(keys("tried", e.tag), tree),
                hmget(keys.experiment(first_id), "claimed", "measured_by"),
                *reading_books(keys, e.tag, PATCHES),
                *([exists(keys("diffs", patch_id))] if patch_id else []),
            )
            if (now["status"], now["attempt"], now["fence"]) != ("running", str(attempt), str(fence)):
                return False
            is_known = e.retest_of is not None and (claim["claimed"], claim["measured_by"]) != ("true", None)
            entry: PatchEntry | None = None
            if content is not None and patch_id is not None and patch_id != now["diff_id"] and not is_known:
                entry = await PatchEntry.of(change, patch_id, content, is_there=all(is_there))
            booking = Booking(change, e.tag, entry.takes if entry else [], limits, taken, must_fit=False)
            await booking.check()
            if times[built] is None:
                change.hset(attempts, {built: NOW})
            if times[built] is None and gpu["deadline"] is not None:
                left_s = float(gpu["deadline"]) - float(now["started_at"] or 0)
                change.hset(keys.gpu(gpu_id), {"deadline": NOW + left_s})
            if is_known:
                return True
            change.hset(record, {"tree_id": tree_id})
            if (first := tried[tree]) is None:
                change.hset(keys("tried", e.tag), {tree: first_id})
            elif first != first_id and now["duplicate_of"] is None:
                change.hset(record, {"duplicate_of": first})
            if entry is None:
                return True
            entry.write()
            booking.write()
            if entry.is_new and e.owner:
                change.count_stored(e.owner, len(entry.content))
            sent = {"diff_differs": "true", "sent_diff_id": now["diff_id"] or ""} if differs else {}
            change.hset(record, {"diff_id": patch_id or "", **sent})
            return True

        return await self._lab.change(decide)

    async def renew(
        self,
        experiment_id: str,
        gpu_id: str,
        fence: int,
        lease_s: float,
        tick: tuple[float, float] | None = None,
        *,
        is_base: bool = False,
        source: TickSource = "report",
        check: Callable[[Gpu | None], None] | None = None,
    ) -> Order:
        """Prolong a running attempt's lease, keep a (metric, progress) tick, and answer the lab's order.

        `is_base`: the tick is of the run's own budget, not of an extension. `source` is where it comes from. `check`
        looks whether the caller may speak for the GPU.

        A run that outlasts what is set aside for it takes more of its tag's budget, or stops. At the deadline of its
        GPU the lease is lost.
        """
        keys, run = self._keys, self._keys.experiment(experiment_id)
        _, name = named_by(experiment_id)

        async def decide(change: Change) -> Order:
            found = await change.read(
                {
                    "run": hgetall(run, *REPORTED, "started_at", "reserved_gpu_seconds"),
                    "gpu": hgetall(keys.gpu(gpu_id), "holder", "fence", "deadline"),
                    "tag": hgetall(keys.tag(name), "budget_gpu_seconds", "warned_gpu_seconds"),
                    "now": clock(),
                }
            )
            gpu, now = Gpu.found(found["gpu"]), found["now"]
            if check is not None:
                check(gpu)
            e, tag = experiment_in(found["run"], experiment_id), tag_in(found["tag"], name)
            is_held = gpu is not None and (gpu.holder, gpu.fence) == (experiment_id, fence)
            if gpu is None or not is_held or (e.status, e.fence) != ("running", fence):
                return change.idle("lost")
            more, stops = 0, e.stopping
            if not stops:
                more, stops = _outlasting(tag, e, now)
            end = renewal(gpu, now, lease_s, e.extended_s, stops=stops)
            if end is None:
                return change.idle("lost")
            booked = Books(reserved_ms=more)
            warnings = await due(change, tag, booked)
            if more:
                change.room(keys.tag(name), SUMS["gpu_seconds"], _limit_ms(tag))
                reserved = milliseconds(e.reserved_gpu_seconds or 0.0) + more
                change.hset(run, {"reserved_gpu_seconds": in_seconds(reserved)})
                change.apply(booked.shift(name))
            for warning in warnings:
                warn(change, name, *warning)
            if stops and not e.stopping:
                change.hset(run, {"stopping": "true", "stop_reason": BUDGET_USED_UP})
            change.hset(keys.gpu(gpu_id), end.fields)
            renew(change, gpu_id, end)
            if tick is not None:
                self.keep_tick(change, e, tick, source, is_base=is_base)
            return "stop" if stops else "continue"

        return await self._lab.change(decide)

    async def keep_log(self, e: Experiment, text: str) -> None:
        """Keep the newest lines of a run's log (text, at most 16 KiB of it).

        Its first log counts as the most that it may have, on its owner's quota. Later ones are free.
        """
        tail = text.encode("utf-8", "replace")[-LOG_BYTES:].decode("utf-8", "ignore")
        log = self._keys("log", e.experiment_id)

        async def decide(change: Change) -> None:
            (is_there,) = await change.read(exists(log))
            change.set(log, tail)
            if e.owner and not is_there:
                change.count_stored(e.owner, LOG_BYTES)

        await self._lab.change(decide)

    def ask_to_stop(self, change: Change, e: Experiment, reason: str) -> None:
        """Tell the worker of a leased or running attempt to stop."""
        change.hset(self._keys.experiment(e.experiment_id), {"stopping": "true", "stop_reason": reason})


def _outlasting(tag: Tag, e: Experiment, now: float) -> tuple[int, bool]:
    """Milliseconds that a run takes beyond what is set aside for it, and whether it has reached its tag's budget."""
    if tag.budget_gpu_seconds is None:
        return 0, False
    limit, ran_ms = _limit_ms(tag), max(milliseconds(now - (e.started_at or now)), 0)
    more = ran_ms - milliseconds(e.reserved_gpu_seconds or 0.0)
    if more <= 0:
        return 0, tag.spent_gpu_ms + ran_ms >= limit
    is_full = tag.spent_gpu_ms + tag.reserved_gpu_ms + more > limit
    return (0, True) if is_full else (more, False)


def _limit_ms(tag: Tag) -> int:
    return milliseconds(tag.budget_gpu_seconds or 0.0)
