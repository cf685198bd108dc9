"""Experiments, queued: the wait queue, places in it, and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from state.budgets import WARN_AT
from state.change import NOW, Change, Count, Digits, Joined, Read, hmget, loosely, size, zscore
from state.client import Lab, time_of
from state.entries import HeldLease, Queued, Rounds, Run, TrainFacts, Turn, WaitQueue
from state.experiments.reading import ExperimentReader, experiment_in
from state.ids import named_by
from state.indexes import members, read_as, values
from state.keys import Keys
from state.moves import Arg
from state.policy import read_policy
from state.records import STATUSES, Experiment, GpuState, Status, Tag, flatten, words
from state.tags import exhausted, pins_of, places_of, reading_pins

BASELINE_FIELDS: Mapping[str, str] = {"baseline": "true"}
A = TypeVar("A")
ARRIVALS = 10**6
"""Experiments after which their orders of arrival begin again."""
Waiting = Mapping[str | None, Mapping[str, float]]
"""Places of experiments in the queues, by the GPU that they are pinned to."""
Decide = Callable[[Rounds], Turn]
"""Rule that chooses an experiment's round in the wait queue."""


@dataclass(frozen=True)
class Census:
    """Number of experiments by status, and when the oldest one that waits was queued (Redis' clock)."""

    counts: Mapping[Status, int]
    queued_since: float | None


class Queueing(ExperimentReader):
    """Part of `Experiments`."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self._lines = WeakValueDictionary[str | None, _Line]()

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
        """Where an experiment waits: in a queue, or aside, with its place in that."""
        return self._keys.parked(tag, pinned_gpu) if aside else self._keys.queue(pinned_gpu)

    def _position(
        self, change: Change, tag: str, run: Run, workers: Sequence[str], in_round: int, *, aside: bool
    ) -> list[Count]:
        """Counts of the experiments up to one that begins to wait now, which get a GPU before it or are it."""
        rooms = [
            self._room(tag, run.pinned_gpu, aside=aside),
            *self._rivals(tag, run.pinned_gpu, workers, paused=aside),
        ]
        last = (front(run.priority, in_round) + 1) * ARRIVALS - 1
        return [change.count(room, last) for room in rooms]

    async def _to_hold_back(self, change: Change, tag: str, also: Read[A]) -> tuple[Waiting, A]:
        """Experiments of a tag that will wait for its baseline, and what else is asked."""
        queued = self._keys.status(tag, "queued", "")[0]
        _, other, found = await change.read(size(queued), also, loosely(*reading_pins(self._lab, tag)))
        pins = {name: pin for name, (pin,) in values(found).items()}
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
        """Facts for queueing an experiment.

        Raises:
            NotFound: no such experiment.
        """
        found = await self._lab.read(self._with_tag_and_slots(experiment_id))
        e = experiment_in(found["experiment"], experiment_id)
        held = self._keys.gpu(e.gpu_id or "none")
        rounds, lease, waiting = await self._lab.pipeline(
            [
                self._rounds(e.agent),
                ("HMGET", held, "holder", "fence"),
                ("ZCARD", self._keys.status(e.tag, "queued", "")[0]),
            ]
        )
        return TrainFacts(
            now=time_of(found["now"]),
            experiment=e,
            tag=Tag.parse(found["tag"]),
            policy=read_policy(found["policy"]),
            slots=slots_of(found["slots"]),
            rounds=rounds_of(rounds),
            waiting=int(waiting),
            holds=lease == [e.experiment_id, str(e.fence)],
        )

    def _with_tag_and_slots(self, experiment_id: str) -> dict[str, Sequence[Arg]]:
        """Commands that read an experiment with its tag, its policy and every GPU."""
        keys, (_, tag) = self._keys, named_by(experiment_id)
        return {
            "now": ("TIME",),
            "experiment": ("HGETALL", keys.experiment(experiment_id)),
            "tag": ("HGETALL", keys.tag(tag)),
            "policy": ("HGET", keys("policy", tag), "values"),
            "slots": slots(self._lab),
        }

    async def enqueue(
        self,
        e: Experiment,
        run: Run,
        queue: WaitQueue,
        decide: Decide | None,
        *,
        lease: HeldLease | None = None,
        is_baseline: bool = False,
    ) -> Queued | None:
        """Put a registered experiment into the wait queue, or onto the GPU whose lease it holds.

        Its run is reserved in the tag's budget. In a paused tag it waits aside with its place, and its lease is
        `returned`. `decide` chooses its round; without it, it joins the round that is served now. Other experiments
        wait for the end of one that `is_baseline`. None if its facts have changed.

        Raises:
            BudgetExhausted: the tag's budget has no room for the run.
        """
        keys = self._keys
        places = await self._places(e.tag, queue.waiting if is_baseline else 0)

        async def move(turn: Turn | None) -> Any:
            return await self._lab.move(
                "queue_experiment",
                keys={
                    "experiment": keys.experiment(e.experiment_id),
                    "attempts": keys.attempts(e.experiment_id),
                    **keys.relisted(e, "registered", "leased" if lease == "used" else "queued"),
                    **places,
                    "queue": keys.queue(run.pinned_gpu),
                    "parked": keys.parked(e.tag, run.pinned_gpu),
                    "rivals": self._rivals(e.tag, run.pinned_gpu, queue.workers, paused=queue.paused),
                    "held_gpu": keys.gpu(e.gpu_id) if e.gpu_id and lease else None,
                },
                args={
                    "id": e.experiment_id,
                    "number": e.number,
                    "tag": e.tag,
                    "agent": e.agent or "",
                    "fence": e.fence,
                    "gpu_id": e.gpu_id,
                    "lease": lease,
                    "priority": run.priority,
                    "run_s": run.budget_s,
                    "warn_at": WARN_AT,
                    "fields": words(
                        {**run_fields(run), **BASELINE_FIELDS} if is_baseline else run_fields(run)
                    ),
                    "baseline": 1 if is_baseline else None,
                    "experiment_traceparent": e.traceparent,
                    **turn_of(turn),
                },
            )

        answer = await (self._in_turn(e.agent, queue.rounds, decide, move) if decide else move(None))
        match answer:
            case ["queued" | "leased" as status, attempt, place]:
                return Queued(status, int(attempt), int(place))
            case ["exhausted", *_]:
                raise exhausted(e.tag, answer)
            case _:
                return None

    async def _places(self, tag: str, waiting: int) -> Mapping[str, str | Sequence[str]]:
        """Keys of the tag's queues, for a move that lets its experiments wait for a baseline."""
        pinned = await self._lab.pipeline([reading_pins(self._lab, tag)] if waiting else [])
        return places_of(self._keys, tag, [pin for answer in pinned for pin in pins_of(answer)])

    async def _in_turn(
        self,
        agent: str | None,
        rounds: Rounds,
        decide: Decide,
        move: Callable[[Turn], Awaitable[Any]],
    ) -> Any:
        """Make a move in the round that `decide` chooses. If the rounds have changed, make it again in the next one.

        Simultaneous requests of one agent in this process are sent one after the other, each in the next round. None
        waits for an answer. If one fails, those behind it are sent again.
        """
        line = self._lines.setdefault(agent, _Line())
        line.rounds = line.rounds or rounds
        while True:
            turn, sent_after = decide(line.rounds), line.failures
            line.rounds = replace(turn.rounds, own=turn.round)
            answer = await move(turn)
            if answer[0] != "turn":
                return answer
            if sent_after == line.failures:
                line.rounds, line.failures = rounds_of(answer[1:]), line.failures + 1

    def _rounds(self, agent: str | None) -> Sequence[Arg]:
        return reading_rounds(self._keys, agent)


@dataclass
class _Line:
    """Requests of one agent on their way into the queue."""

    rounds: Rounds | None = None
    """The rounds after them, if none fails."""
    failures: int = 0
    """Number of times that `rounds` was read anew."""


def turn_of(turn: Turn | None) -> dict[str, int | None]:
    """A turn as the moves take it."""
    if turn is None:
        return {}
    return {"round": turn.round, "own_round": turn.rounds.own, "served_round": turn.rounds.served}


def line_of(agent: str | None) -> str:
    """The name by which changes that queue experiments of an agent take turns: each begins a round of its own."""
    return f"queue {agent or ''}"


def run_fields(run: Run) -> dict[str, str]:
    """A run as fields of its experiment."""
    return flatten(
        {
            "priority": run.priority,
            "pinned_gpu": run.pinned_gpu,
            "budget_s": run.budget_s,
            "timeout_s": run.timeout_s,
            "config_delta": dict(run.config_delta) if run.config_delta else None,
        }
    )


def reading_queue(keys: Keys, tag: str, agent: str | None) -> list[Read[dict[str, str | None]]]:
    """Reads of the queue's rounds, and of what lets a tag's experiments wait aside."""
    return [
        hmget(keys("queue_clock"), f"agent:{agent or ''}", "round"),
        hmget(keys.tag(tag), "paused_at", "awaits_baseline", "baseline_id"),
    ]


def waits_aside(gate: Mapping[str, str | None], experiment_id: str | None = None) -> bool:
    """Whether an experiment of the tag waits aside: it is paused, or the baseline has not ended, which waits for
    nothing, nor do its retests."""
    if gate["paused_at"] is not None or gate["awaits_baseline"] != "true":
        return gate["paused_at"] is not None
    return experiment_id is None or named_by(experiment_id)[0] != gate["baseline_id"]


def front(priority: int, in_round: int) -> int:
    """A place without its order of arrival: higher priorities (0 to 7) first, then earlier rounds."""
    return (7 - priority) * 10**9 + in_round


def enter_queue(
    change: Change,
    room: str,
    name: str | Joined,
    *,
    agent: str | None,
    priority: int,
    rounds: Rounds,
    takes_turn: bool = True,
) -> None:
    """Wait from now on, in the agent's next round, which is its `queue_round`; or else in the one that is served."""
    clock, in_round = change.lab.keys("queue_clock"), rounds.next if takes_turn else rounds.served
    arrival = Digits(change.number(clock, "seq"), len(str(ARRIVALS)) - 1)
    if takes_turn:
        change.hset(clock, {f"agent:{agent or ''}": in_round})
    change.zadd(room, {name: Joined(str(front(priority, in_round)), arrival)})


def begin_baseline(change: Change, tag: str, name: str | Joined, others: Waiting) -> None:
    """From now on the tag's other experiments wait for this one, those that wait already too."""
    keys = change.lab.keys
    change.hset(keys.tag(tag), {"baseline_id": name, "awaits_baseline": "true"})
    change.zadd(keys("baselines"), {tag: NOW})
    for pin, places in others.items():
        change.zadd(keys.parked(tag, pin), places)
        change.zrem(keys.queue(pin), *places)


def reading_rounds(keys: Keys, agent: str | None) -> Sequence[Arg]:
    """A command that reads the queue's rounds."""
    return ("HMGET", keys("queue_clock"), f"agent:{agent or ''}", "round")


def rounds_of(stored: Iterable[str | None]) -> Rounds:
    own, served = stored
    return Rounds(int(own) if own else None, int(served or 0))


def slots(lab: Lab) -> Sequence[Arg]:
    """A command that reads every GPU, for `slots_of`."""
    return members(lab, lab.keys("gpus"), lab.keys.gpu(""), limit=-1, fields=GpuState)


def slots_of(stored: Sequence[Any]) -> list[GpuState]:
    return read_as(GpuState, stored)
