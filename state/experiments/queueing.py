"""Experiments, queued: the wait queue, places in it, and counts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from state.experiments.reading import Reading
from state.records import STATUSES, Experiment, Status, flatten
from state.tags import exhausted


@dataclass(frozen=True)
class Census:
    """How many experiments have each status, and since when (Redis' clock) the oldest of each tag's queue waits."""

    counts: Mapping[Status, int]
    queued_since: float | None


class Queueing(Reading):
    """Part of `Experiments`."""

    async def waiting(self, gpu_ids: Sequence[str] = (), limit: int = 256) -> list[Experiment]:
        """The head of the common queue and the first that is pinned to each of these GPUs, in one order."""
        heads = [(self._keys.queue(), limit), *((self._keys.queue(gpu_id), 1) for gpu_id in gpu_ids)]
        rows = await self._lab.pipeline(
            [("ZRANGE", queue, 0, most - 1, "WITHSCORES") for queue, most in heads if most > 0]
        )
        placed = [(float(score), i) for row in rows for i, score in zip(row[::2], row[1::2], strict=True)]
        return [e for e in await self.many([i for _, i in sorted(placed)]) if e.status == "queued"]

    async def position(self, e: Experiment, gpu_ids: Sequence[str]) -> int | None:
        """Its place among those that wait for one of the GPUs `gpu_ids`, counted from 1.

        A pinned one stands behind whoever may get its GPU first, the others behind whoever may get any. One whose
        tag is paused stands in nobody's way; its place is the one that it would come back to. None where it does
        not wait.
        """
        keys = self._keys
        queue, parked = keys.queue(e.pinned_gpu), keys.parked(e.tag, e.pinned_gpu)
        found = await self._lab.pipeline(
            [(ask, key, e.experiment_id) for key in (queue, parked) for ask in ("ZSCORE", "ZRANK")]
        )
        own, (score, rank) = (queue, found[:2]) if found[0] is not None else (parked, found[2:])
        if score is None or rank is None:
            return None
        others = [None] if e.pinned_gpu else gpu_ids
        before = [keys.queue(other) for other in others]
        if own == parked:
            before += [queue, *(keys.parked(e.tag, other) for other in others)]
        counts = await self._lab.pipeline([("ZCOUNT", key, "-inf", f"({float(score)!r}") for key in before])
        return 1 + int(rank) + sum(int(count) for count in counts)

    async def queue_length(self) -> int:
        """How many experiments wait for a GPU, pinned to one or not."""
        tags = await self._lab.command("ZRANGE", self._keys("tags"), 0, -1)
        cards = await self._lab.pipeline([("ZCARD", self._keys.status(tag, "queued", "")[0]) for tag in tags])
        return sum(int(card) for card in cards)

    async def waiting_count(self, gpu_ids: Sequence[str]) -> int:
        """How many wait for any GPU or for one of these; by the queues themselves, whatever the number of tags."""
        queues = [None, *gpu_ids]
        cards = await self._lab.pipeline([("ZCARD", self._keys.queue(gpu_id)) for gpu_id in queues])
        return sum(int(card) for card in cards)

    async def census(self, tags: int) -> Census:
        """A count of the newest `tags` tags' experiments, by index."""
        names = await self._lab.command("ZREVRANGE", self._keys("tags"), 0, tags - 1)
        places: list[tuple[str, Status]] = [(tag, status) for tag in names for status in STATUSES]
        cards = await self._lab.pipeline([("ZCARD", self._keys.status(t, s, "")[0]) for t, s in places])
        counts: Counter[Status] = Counter()
        for (_, status), card in zip(places, cards, strict=True):
            counts[status] += int(card)
        queued = [tag for (tag, s), card in zip(places, cards, strict=True) if s == "queued" and int(card)]
        firsts = await self._lab.pipeline(
            [("ZRANGE", self._keys.status(tag, "queued", "")[0], 0, 0) for tag in queued]
        )
        since = await self._lab.pipeline(
            [("HGET", self._keys.experiment(first[0]), "queued_at") for first in firsts if first]
        )
        return Census(counts, min((float(at) for at in since if at), default=None))

    async def starting(self, older_than_s: float) -> list[Experiment]:
        """Leased experiments that no worker has begun for so long."""
        now = await self._lab.now()
        ids = await self._lab.command(
            "ZRANGEBYSCORE", self._keys("starting"), "-inf", repr(now - older_than_s)
        )
        return await self.many(ids)

    async def enqueue(
        self,
        e: Experiment,
        *,
        priority: int,
        pinned_gpu: str | None,
        budget_s: float,
        timeout_s: float,
        config_delta: Mapping[str, Any] | None = None,
    ) -> Literal["queued", "leased", "stale"]:
        """Put a registered experiment into the wait queue, or onto the GPU that it already holds.

        Its run is set aside from the tag's budget; while the tag is paused it waits aside, with its place,
        and holds no GPU.
        "stale": it is no longer registered, or the GPU it holds is no longer the one that was read.

        Raises:
            BudgetExhausted: the tag's budget has no room for the run.
        """
        keys = self._keys
        fields = {
            "priority": priority,
            "pinned_gpu": pinned_gpu,
            "budget_s": budget_s,
            "timeout_s": timeout_s,
            "config_delta": dict(config_delta) if config_delta else None,
        }
        answer = await self._lab.run(
            "queue_experiment",
            [
                keys.experiment(e.experiment_id),
                *keys.indexes(e, "registered"),
                *keys.indexes(e, "queued"),
                *keys.indexes(e, "leased"),
                keys.queue(pinned_gpu),
                keys("queue_clock"),
                keys.attempts(e.experiment_id),
                keys("open"),
                keys("starting"),
                keys.gpu(e.gpu_id) if e.gpu_id else keys.experiment(e.experiment_id),
                keys("events"),
                keys.tag(e.tag),
                keys.parked(e.tag, pinned_gpu),
                keys("idle_gpus"),
                keys("leases"),
            ],
            [
                e.experiment_id,
                e.number,
                e.tag,
                e.agent or "",
                priority,
                json.dumps(flatten(fields)),
                e.traceparent,
                e.gpu_id,
                budget_s,
            ],
        )
        if answer[0] == "exhausted":
            raise exhausted(e.tag, answer)
        became: Literal["queued", "leased", "stale"] = answer[0]
        return became
