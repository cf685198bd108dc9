"""Experiments, queued: the wait queue, places in it, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from state.budgets import WARN_AT
from state.entries import Rounds, Turn
from state.experiments.reading import Reading
from state.records import STATUSES, Experiment, Status, flatten, words
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

    async def rounds(self, agent: str | None) -> Rounds:
        """The wait queue's rounds, for this agent."""
        own, served = await self._lab.command(
            "HMGET", self._keys("queue_clock"), f"agent:{agent or ''}", "round"
        )
        return Rounds(None if own is None else int(own), int(served or 0))

    async def enqueue(
        self,
        e: Experiment,
        *,
        turn: Turn | None,
        lease: Literal["used", "returned"] | None = None,
        priority: int,
        pinned_gpu: str | None,
        budget_s: float,
        timeout_s: float,
        config_delta: Mapping[str, Any] | None = None,
    ) -> Literal["queued", "leased", "stale"]:
        """Put a registered experiment into the wait queue, or onto the GPU whose lease it holds.

        Its run is set aside from the tag's budget. While the tag is paused it waits aside, with its place, and its
        lease is `returned`. Without a `turn` it takes no agent's, and joins the round that is served now.
        "stale": what this was decided on has changed.

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
        status_before, category_before = keys.indexes(e, "registered")
        status_after, category_after = keys.indexes(e, "leased" if lease == "used" else "queued")
        answer = await self._lab.move(
            "queue_experiment",
            keys={
                "experiment": keys.experiment(e.experiment_id),
                "attempts": keys.attempts(e.experiment_id),
                "tag": keys.tag(e.tag),
                "status_before": status_before,
                "category_before": category_before,
                "status_after": status_after,
                "category_after": category_after,
                "queue": keys.queue(pinned_gpu),
                "parked": keys.parked(e.tag, pinned_gpu),
                "queue_clock": keys("queue_clock"),
                "open": keys("open"),
                "starting": keys("starting"),
                "held_gpu": keys.gpu(e.gpu_id) if e.gpu_id and lease else None,
                "idle_gpus": keys("idle_gpus"),
                "leases": keys("leases"),
                "events": keys("events"),
            },
            args={
                "id": e.experiment_id,
                "number": e.number,
                "tag": e.tag,
                "agent": e.agent or "",
                "fence": e.fence,
                "gpu_id": e.gpu_id,
                "lease": lease,
                "priority": priority,
                "run_s": budget_s,
                "warn_at": WARN_AT,
                "fields": words(flatten(fields)),
                "experiment_traceparent": e.traceparent,
                **turn_of(turn),
            },
        )
        if answer[0] == "exhausted":
            raise exhausted(e.tag, answer)
        became: Literal["queued", "leased", "stale"] = answer[0]
        return became


def turn_of(turn: Turn | None) -> dict[str, int | None]:
    """A turn as the moves take it."""
    if turn is None:
        return {}
    return {"round": turn.round, "own_round": turn.rounds.own, "served_round": turn.rounds.served}
