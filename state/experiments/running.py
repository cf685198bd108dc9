"""Experiments, run: an attempt begins, renews its lease, reports, and is asked to stop."""

from __future__ import annotations

from typing import Literal

from state.budgets import WARN_AT
from state.change import NOW, Change, Word, exists, hmget
from state.experiments.ranking import TICKS_KEPT
from state.experiments.reading import ExperimentReader, experiment_in
from state.experiments.writing import relist
from state.ids import named_by
from state.patches import packed
from state.policy import TickSource
from state.records import Experiment, Footprint
from state.reserving import PATCHES, Booking, PatchEntry, reading_books

BUDGET_USED_UP = "its tag's budget of GPU seconds is used up"
"""Why a run is stopped that reaches it."""
LOG_BYTES = 16 * 1024
Order = Literal["continue", "stop", "lost"]


class Running(ExperimentReader):
    """Part of `Experiments`."""

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
        """An experiment, and the GPU that this attempt at it was leased, also where the lease has ended.

        Raises:
            NotFound: no such experiment.
        """
        keys = self._keys
        stored, gpu_id = await self._lab.pipeline(
            [
                ("HGETALL", keys.experiment(experiment_id)),
                ("HGET", keys.attempts(experiment_id), f"{attempt}:gpu_id"),
            ]
        )
        e = experiment_in(stored, experiment_id)
        return e, gpu_id or e.gpu_id

    async def note_source(
        self,
        e: Experiment,
        *,
        attempt: int,
        fence: int,
        tree_id: str,
        patch: bytes | None,
        differs: bool,
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
    ) -> Order:
        """Prolong a running attempt's lease, keep a (metric, progress) tick, and answer the lab's order.

        `is_base`: the tick is of the run's own budget, not of an extension. `source` is where it comes from.

        The same move has a run that outlasts what is set aside for it take more of its tag's budget, or stop.
        """
        keys = self._keys
        metric, progress = tick or (None, None)
        _, tag = named_by(experiment_id)
        answer: Order = await self._lab.move(
            "renew_lease",
            keys={
                "experiment": keys.experiment(experiment_id),
                "gpu": keys.gpu(gpu_id),
                "ticks": keys("reports", experiment_id),
            },
            args={
                "id": experiment_id,
                "fence": fence,
                "lease_s": lease_s,
                "metric": metric,
                "progress": progress,
                "tick_source": source,
                "is_base": 1 if is_base else None,
                "most": TICKS_KEPT,
                "tag": tag,
                "warn_at": WARN_AT,
                "used_up": BUDGET_USED_UP,
            },
        )
        return answer

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
