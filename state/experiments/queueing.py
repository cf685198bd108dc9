"""Experiments, queued: the wait queue, places in it, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from state import reads
from state.booking import RUNS, Booking, a_run, reading_books, set_aside
from state.change import (
    NOW,
    Change,
    Count,
    Digits,
    Joined,
    Number,
    Read,
    Word,
    clock,
    hgetall,
    hmget,
    size,
    zscore,
)
from state.decisions import HeldLease, Queued, Run
from state.experiments.reading import ExperimentReader
from state.experiments.writing import FLAGS, keep_gpu, relist
from state.facts import TrainFacts
from state.ids import named_by
from state.keys import Keys
from state.moves import Arg
from state.records import STATUSES, Experiment, Status, flatten
from state.tags import reading_pins

BASELINE_FIELDS: Mapping[str, str] = {"baseline": "true"}
A = TypeVar("A")
GATE = ("paused_at", "awaits_baseline", "baseline_id")
"""Fields of a tag that let its experiments wait aside."""
ROUND_DIGITS, ARRIVAL_DIGITS = 9, 6
"""Of a place in the queue. Orders of arrival begin again after a million experiments."""
Waiting = Mapping[str | None, Mapping[str, float]]
"""Places of experiments in the queues, by the GPU that they are pinned to."""


@dataclass(frozen=True)
class Census:
    """Number of experiments by status, and when the oldest one that waits was queued (Redis' clock)."""

    counts: Mapping[Status, int]
    queued_since: float | None


class Queueing(ExperimentReader):
    async def position(self, e: Experiment, gpu_ids: Sequence[str]) -> int:
        """Its place, from 1, among the experiments that wait for one of the GPUs `gpu_ids`; 0 if it does not wait."""
        [place] = await self._lab.pipeline([self.place(e.experiment_id, e.tag, e.pinned_gpu, gpu_ids)])
        return int(place)

    def place(
        self, experiment_id: str, tag: str, pinned_gpu: str | None, gpu_ids: Sequence[str]
    ) -> Sequence[Arg]:
        """`position` as one command of a pipeline.

        A pinned experiment is behind those that may get its GPU first. Any other is behind those that may get any
        GPU. An experiment of a paused tag blocks nobody; its place is the one that it would return to.
        """
        keys = self._keys
        return self._lab.reading(
            "find_place",
            keys={
                "queue": keys.queue(pinned_gpu),
                "parked": keys.parked(tag, pinned_gpu),
                "rivals": self._rivals(tag, pinned_gpu, gpu_ids, paused=False),
                "rivals_of_parked": self._rivals(tag, pinned_gpu, gpu_ids, paused=True),
            },
            args={"id": experiment_id},
        )

    def _rivals(self, tag: str, pinned_gpu: str | None, gpu_ids: Sequence[str], *, paused: bool) -> list[str]:
        """The other queues whose experiments may get a GPU before one that waits for `pinned_gpu`, or for any."""
        keys, others = self._keys, [None] if pinned_gpu else gpu_ids
        rivals = [keys.queue(other) for other in others]
        if paused:
            rivals += [keys.queue(pinned_gpu), *(keys.parked(tag, other) for other in others)]
        return rivals

    def _room(self, tag: str, pinned_gpu: str | None, *, aside: bool) -> str:
        """The queue in which an experiment waits, or the one that keeps its place aside."""
        return self._keys.parked(tag, pinned_gpu) if aside else self._keys.queue(pinned_gpu)

    def _position(
        self,
        change: Change,
        tag: str,
        run: Run,
        workers: Sequence[str],
        in_round: Number | int,
        *,
        aside: bool,
    ) -> list[Count]:
        """Counts of the experiments up to one that begins to wait now, which get a GPU before it or are it."""
        rooms = [
            self._room(tag, run.pinned_gpu, aside=aside),
            *self._rivals(tag, run.pinned_gpu, workers, paused=aside),
        ]
        last = place(run.priority, in_round, "9" * ARRIVAL_DIGITS)
        return [change.count(room, last) for room in rooms]

    async def _to_hold_back(self, change: Change, tag: str, also: Read[A]) -> tuple[Waiting, A]:
        """Experiments of a tag that will wait for its baseline, and what else is asked."""
        queued = self._keys.status(tag, "queued", "")[0]
        _, other, found = await change.read(size(queued), also, reading_pins(self._lab, tag))
        pins = {name: pin for name, (pin,) in found.items()}
        if not pins:
            return {}, other
        places = await change.read(*(zscore(self._keys.queue(pin), name) for name, pin in pins.items()))
        held: dict[str | None, dict[str, float]] = {}
        for (name, pin), place in zip(pins.items(), places, strict=True):
            if place is not None:
                held.setdefault(pin, {})[name] = place
        return held, other

    async def waiting_count(self, gpu_ids: Sequence[str]) -> int:
        """Number of experiments that wait for any GPU or for one of these. It is read from the queues themselves."""
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

    async def train_facts(self, experiment_id: str) -> TrainFacts:
        """Facts for queueing an experiment. Raises NotFound: no such experiment."""
        found = await self._lab.read(self._with_tag_and_slots(experiment_id))
        e: Experiment = found["experiment"]
        lease: list[str] = []
        if e.gpu_id is not None:
            lease = await self._lab.command("HMGET", self._keys.gpu(e.gpu_id), "holder", "fence")
        return TrainFacts(**found, holds=lease == [e.experiment_id, str(e.fence)])

    def _with_tag_and_slots(self, experiment_id: str) -> dict[str, Read[Any]]:
        """Reads of an experiment with its tag, its policy and every GPU."""
        keys, (_, tag) = self._keys, named_by(experiment_id)
        return {
            "now": clock(),
            "experiment": reads.experiment(keys, experiment_id),
            "tag": reads.tag(keys, tag),
            "policy": reads.policy(keys, tag),
            "slots": reads.slots(self._lab),
        }

    async def enqueue(
        self,
        e: Experiment,
        run: Run,
        workers: Sequence[str],
        *,
        takes_turn: bool = True,
        lease: HeldLease | None = None,
        is_baseline: bool = False,
    ) -> Queued | None:
        """Put a registered experiment into the wait queue, or onto the GPU whose lease it holds.

        Its run is reserved in the tag's budget. In a paused tag it waits aside, and its lease is `returned`: the GPU
        would be idle for as long. Without a turn of its agent it joins the round that is served now. Other
        experiments wait for the end of one that `is_baseline`. None if it, or its lease, has changed.

        Raises:
            BudgetExhausted: the tag's budget has no room for the run.
        """
        keys, name, tag, gpu_id = self._keys, e.experiment_id, e.tag, e.gpu_id or "none"
        record, attempts, gpu = keys.experiment(name), keys.attempts(name), keys.gpu(gpu_id)

        async def decide(change: Change) -> Queued | None:
            now, limits, taken, served, gate, *lent = await change.read(
                hmget(record, "status", "fence", "attempt", "reserved_gpu_seconds"),
                *reading_books(keys, tag, RUNS),
                served_round(keys),
                hmget(keys.tag(tag), *GATE),
                *([hgetall(gpu, "fence", *FLAGS)] if lease else []),
            )
            is_paused = gate["paused_at"] is not None
            if (now["status"], now["fence"] or "0") != ("registered", str(e.fence)):
                return None
            if is_baseline and gate["baseline_id"] is not None:
                return None
            for before in lent:
                is_its_own = (before.get("holder"), before.get("fence")) == (name, str(e.fence))
                if not is_its_own or is_paused != (lease == "returned"):
                    return None
            takes = a_run(run.budget_s, now["reserved_gpu_seconds"])
            booking = Booking(change, tag, takes, limits, taken)
            await booking.check()
            others: Waiting = {}
            if is_baseline:
                others, _ = await self._to_hold_back(change, tag, hmget(keys.tag(tag), "baseline_id"))
            booking.write()
            set_aside(change, record, run.budget_s)
            attempt = int(now["attempt"] or 0) + 1
            status: Literal["queued", "leased"] = "leased" if lease == "used" else "queued"
            fields = {**run_fields(run), **(BASELINE_FIELDS if is_baseline else {})}
            change.hset(record, {**fields, "status": status, "attempt": attempt, "queued_at": NOW})
            change.hset(attempts, {f"{attempt}:status": status, f"{attempt}:queued_at": NOW})
            change.zrem(keys("open"), name)
            relist(change, keys, e, "registered", status)
            told = {"experiment_id": name, "attempt": attempt}
            change.emit("experiment.queued", tag, name, told, e.traceparent)
            if lease == "used":
                change.hset(gpu, {"attempt": attempt})
                leased: dict[str, Word] = {"gpu_id": gpu_id, "fence": e.fence, "leased_at": NOW}
                change.hset(attempts, {f"{attempt}:{what}": value for what, value in leased.items()})
                change.zadd(keys("starting"), {name: 0})
                told |= {"gpu_id": gpu_id, "fence": e.fence}
                change.emit("experiment.leased", tag, name, told, e.traceparent)
                return Queued(status, attempt)
            for before in lent:
                self._give_up(change, e, gpu_id, before)
            if is_baseline:
                begin_baseline(change, tag, name, others)
            in_round = next_round(change, e.agent) if takes_turn else int(served["round"] or 0)
            if takes_turn:
                change.hset(record, {"queue_round": in_round})
            aside = is_paused if is_baseline else waits_aside(gate, name)
            room = self._room(tag, run.pinned_gpu, aside=aside)
            enter_queue(change, room, name, run.priority, in_round)
            counts = self._position(change, tag, run, workers, in_round, aside=aside)
            return Queued(status, attempt, counts=counts)

        return await self._lab.change(decide)

    def _give_up(self, change: Change, e: Experiment, gpu_id: str, before: Mapping[str, str]) -> None:
        """Give the lease back that an experiment holds. A retest waits for the class of GPU that it has to run on."""
        record = self._keys.experiment(e.experiment_id)
        change.hdel(record, "gpu_id", *([] if e.retest_of else ["gpu_class"]))
        change.hset(record, {"fence": 0})
        change.zrem(self._keys("leases"), gpu_id)
        ended = ("holder", "leased_at", "lease_expires_at")
        after: dict[str, Word] = {field: text for field, text in before.items() if field not in ended}
        keep_gpu(change, gpu_id, before, after, "its holder waits: the tag is paused")


def run_fields(run: Run) -> dict[str, str]:
    return flatten(vars(run) | {"config_delta": dict(run.config_delta) if run.config_delta else None})


def waits_aside(gate: Mapping[str, str | None], experiment_id: str | None = None) -> bool:
    """Whether an experiment of the tag waits aside: it is paused, or the baseline has not ended, which waits for
    nothing, nor do its retests."""
    if gate["paused_at"] is not None or gate["awaits_baseline"] != "true":
        return gate["paused_at"] is not None
    return experiment_id is None or named_by(experiment_id)[0] != gate["baseline_id"]


def served_round(keys: Keys) -> Read[dict[str, str | None]]:
    """A read of the newest round that an experiment got a GPU in. A later one would let it wait longer, no more."""
    return hmget(keys("queue_clock"), "round").loose()


def next_round(change: Change, agent: str | None) -> Number:
    """The round of an agent's next experiment: the one after its last, and none that is over.

    Start-time fair queueing with equal shares (P. Goyal, H. M. Vin, H. Cheng, SIGCOMM 1996).
    """
    return change.number(change.lab.keys("queue_clock"), f"agent:{agent or ''}", least="round")


def place(priority: int, in_round: Number | int, arrival: str | Digits) -> Joined:
    """A place in the wait queue: higher priorities (0 to 7) first, then earlier rounds, then the order of arrival."""
    digits = Digits(in_round, ROUND_DIGITS) if isinstance(in_round, Number) else f"{in_round:0{ROUND_DIGITS}}"
    return Joined(str(7 - priority), digits, arrival)


def enter_queue(change: Change, room: str, name: str | Joined, priority: int, in_round: Number | int) -> None:
    """Wait from now on, in this round."""
    arrival = Digits(change.number(change.lab.keys("queue_clock"), "seq"), ARRIVAL_DIGITS)
    change.zadd(room, {name: place(priority, in_round, arrival)})


def begin_baseline(change: Change, tag: str, name: str | Joined, others: Waiting) -> None:
    """From now on the tag's other experiments wait for this one, those that wait already too."""
    keys = change.lab.keys
    change.hset(keys.tag(tag), {"baseline_id": name, "awaits_baseline": "true"})
    change.zadd(keys("baselines"), {tag: NOW})
    for pin, places in others.items():
        change.zadd(keys.parked(tag, pin), places)
        change.zrem(keys.queue(pin), *places)
