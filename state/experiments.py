"""Experiments: registered, queued, run and finished, each step one guarded script that also writes its event."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from state.client import Lab
from state.decisions import Finish, Growth, Settled
from state.errors import Conflict, Invalid, NotFound
from state.records import STATUSES, Best, Experiment, Footprint, SelectionStatus, Status, flatten
from state.tags import exhausted, unknown

REQUEST_TTL_S = 24 * 3600
TICKS_KEPT = 500
LOG_BYTES = 16 * 1024
EVIDENCE_KEPT = 100
SAME_CODE = {
    *("tag", "number", "hypothesis", "description", "category", "commit_sha", "diff_summary", "diff_id"),
    *(
        "parent_ids",
        "owner",
        "config_delta",
        "keep_rule",
        "patience_s",
        "traceparent",
        "gpu_class",
        "best_key",
    ),
}
"""What a retest shares with the experiment whose code it runs again."""

Order = Literal["continue", "stop", "lost"]


@dataclass(frozen=True)
class RequestKey:
    """What a repeated registration is known by."""

    name: str
    """Of the function and the id that its caller gave; safe in a key."""
    body_digest: str

    def registered(self, stored: str) -> str:
        """The experiment that the first request registered, from `<id> <digest of its body>`.

        Raises:
            Invalid: that was another body.
        """
        experiment_id, _, digest = stored.partition(" ")
        if digest != self.body_digest:
            raise Invalid(
                "this request id or Idempotency-Key was used with another body",
                hint="use a new key for a new request",
            )
        return experiment_id


@dataclass(frozen=True)
class Census:
    """How many experiments have each status, and since when (Redis' clock) the oldest of each tag's queue waits."""

    counts: Mapping[Status, int]
    queued_since: float | None


class Experiments:
    """All experiments of the lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._keys = lab.keys

    # -- reading

    async def find(self, experiment_id: str) -> Experiment | None:
        """The experiment, or None."""
        stored = await self._lab.hash(self._keys.experiment(experiment_id))
        return Experiment.parse(stored) if "experiment_id" in stored else None

    async def get(self, experiment_id: str) -> Experiment:
        """The experiment.

        Raises:
            NotFound: no such experiment.
        """
        found = await self.find(experiment_id)
        if found is None:
            raise NotFound(
                f"there is no experiment {experiment_id!r}",
                hint="ids look like <tag>-<n>; POST /api/experiment/history lists a tag's experiments",
            )
        return found

    async def many(self, ids: Sequence[str]) -> list[Experiment]:
        """Several, in the order asked for."""
        stored = await self._lab.hashes([self._keys.experiment(i) for i in ids])
        return [Experiment.parse(fields) for fields in stored if fields]

    async def page(
        self,
        tag: str,
        *,
        status: Status | None = None,
        category: str | None = None,
        limit: int,
        below: int | None = None,
        above: int | None = None,
        newest: bool = True,
    ) -> tuple[list[Experiment], int, int | None]:
        """One page by index, in the order of numbers, with the total and where the next page begins.

        It holds more than `limit` where retests of its last experiment are open, too.
        With `newest` the page ends at number `below` (exclusive) and the next one lies before it; otherwise it
        begins after number `above`.
        """
        if status and category:
            index = self._keys.status(tag, status, category)[1]
        elif status:
            index = self._keys.status(tag, status, "")[0]
        elif category:
            index = self._keys("category", tag, category)
        else:
            index = self._keys("lineage", tag)
        if newest:
            top = f"({below}" if below is not None else "+inf"
            ask = ("ZREVRANGEBYSCORE", index, top, "-inf", "LIMIT", 0, limit + 1)
        else:
            bottom = f"({above}" if above is not None else "-inf"
            ask = ("ZRANGEBYSCORE", index, bottom, "+inf", "LIMIT", 0, limit + 1)
        ids, total = await self._lab.pipeline([ask, ("ZCARD", index)])
        found = await self.many(ids[:limit])
        following = found[-1].number if len(ids) > limit and found else None
        if following is not None:  # retests share the number of their experiment: a page holds all of one
            same = await self._lab.command("ZRANGEBYSCORE", index, following, following)
            found += await self.many([i for i in (same[::-1] if newest else same) if i not in ids[:limit]])
        return (found[::-1] if newest else found), int(total), following

    async def counts(self, tag: str, statuses: Sequence[Status]) -> dict[Status, int]:
        """How many experiments have each status now."""
        cards = await self._lab.pipeline([("ZCARD", self._keys.status(tag, s, "")[0]) for s in statuses])
        return dict(zip(statuses, (int(c) for c in cards), strict=True))

    async def finished(self, tag: str, last: int, until: int | None = None) -> list[Experiment]:
        """The last finished ones, oldest first, in finish order; with `until` (a finish number) as of then."""
        newest = "+inf" if until is None else str(until)
        key = self._keys("finished", tag)
        ids = await self._lab.command("ZREVRANGEBYSCORE", key, newest, "-inf", "LIMIT", 0, last)
        return (await self.many(ids))[::-1]

    async def by_number(self, tag: str, status: Status, limit: int) -> list[Experiment]:
        """The newest of one status, oldest first."""
        return (await self.page(tag, status=status, limit=limit))[0]

    async def parents(self, tag: str, last: int, category: str | None = None) -> list[list[str]]:
        """The parents of the last registered ones, of one category or of any."""
        index = self._keys("category", tag, category) if category else self._keys("lineage", tag)
        ids = await self._lab.command("ZREVRANGE", index, 0, last - 1)
        stored = await self._lab.pipeline([("HGET", self._keys.experiment(i), "parent_ids") for i in ids])
        return [json.loads(parents) for parents in stored if parents]

    async def base_above(self, parent_ids: Sequence[str]) -> Experiment | None:
        """The nearest kept one among these and what they were made from; None is the tag's base.

        On a branch that is its best one: a keep there is better than the keep before it.
        """
        e = await self.find(parent_ids[0]) if parent_ids else None
        while e is not None and e.status != "keep":
            above = e.selection.base_experiment_id if e.selection else next(iter(e.parent_ids), None)
            e = await self.find(above) if above else None
        return e

    async def ancestors(self, parent_ids: Sequence[str], most: int) -> tuple[dict[str, Experiment], bool]:
        """What these were made from, themselves included, by id; the nearest `most`, and whether that is all.

        Of what is cut off, or is not there, no experiment that is read names a parent.
        """
        known: dict[str, Experiment] = {}
        waiting = list(dict.fromkeys(parent_ids))
        while waiting and len(known) < most:
            found = await self.many(waiting)
            known |= {e.experiment_id: e for e in found}
            waiting = list(dict.fromkeys(p for e in found for p in e.parent_ids if p not in known))
        for name, e in known.items():
            if any(parent not in known for parent in e.parent_ids):
                above = [parent for parent in e.parent_ids if parent in known]
                known[name] = e.model_copy(update={"parent_ids": above})
        return known, not waiting

    async def retests(self, es: Sequence[Experiment]) -> list[list[Experiment]]:
        """The retests of several experiments, in the order of their seeds."""
        ids = [[retest_id(e, nth) for nth in range(e.retests)] for e in es]
        found = {e.experiment_id: e for e in await self.many([i for its in ids for i in its])}
        return [[found[i] for i in its if i in found] for its in ids]

    async def best(self, tag: str, other_key: str | None = None) -> Best | None:
        """The best under the main comparability key, or under another."""
        stored = await self._lab.hash(self._keys.best(tag, other_key))
        return Best.parse(stored) if stored else None

    async def near_misses(
        self, tag: str, low: float, high: float, limit: int
    ) -> tuple[list[Experiment], int]:
        """Discarded experiments whose score (lower is better) lies in [low, high], best first, and how many."""
        key = self._keys("near_misses", tag)
        ids, total = await self._lab.pipeline(
            [
                ("ZRANGEBYSCORE", key, repr(low), repr(high), "LIMIT", 0, limit),
                ("ZCOUNT", key, repr(low), repr(high)),
            ]
        )
        return await self.many(ids), int(total)

    async def patch(self, experiment: Experiment) -> bytes | None:
        """The patch against the tag's base commit, as it was sent; None where none was."""
        if experiment.diff_id is None:
            return None
        packed = await self._lab.command("GET", self._keys("diffs", experiment.diff_id), NEVER_DECODE=True)
        return zlib.decompress(packed) if packed is not None else None

    async def attempts(self, experiment_id: str) -> dict[int, dict[str, str]]:
        """Every attempt's status, GPU, fence and times."""
        return (await self.attempts_of([experiment_id]))[0]

    async def attempts_of(self, experiment_ids: Sequence[str]) -> list[dict[int, dict[str, str]]]:
        """The attempts of several experiments."""
        return [
            _by_attempt(stored)
            for stored in await self._lab.hashes([self._keys.attempts(i) for i in experiment_ids])
        ]

    async def ticks(self, experiment_id: str) -> list[tuple[float, float, float]]:
        """The newest (progress, metric, time) that the run reported."""
        rows = await self._lab.command("LRANGE", self._keys("reports", experiment_id), 0, -1)
        return [tuple(json.loads(row)) for row in rows]

    async def log(self, experiment_id: str) -> str | None:
        """The newest lines of its log."""
        text: str | None = await self._lab.command("GET", self._keys("log", experiment_id))
        return text

    async def answer(self, experiment_id: str) -> dict[str, Any] | None:
        """What its finishing operation was answered: {op, digest, answer}."""
        stored = await self._lab.command("HGET", self._keys.experiment(experiment_id), "answer")
        return json.loads(stored) if stored else None

    async def forgotten(self, limit: int = 100) -> list[Experiment]:
        """Registered experiments whose agent was not heard of within its patience."""
        now = await self._lab.now()
        return await self.many(
            await self._lab.command("ZRANGEBYSCORE", self._keys("open"), "-inf", repr(now), "LIMIT", 0, limit)
        )

    async def close_forgotten(self) -> dict[str, Status]:
        """End as lost whose own agent never reported; a late report still counts."""
        closed: dict[str, Status] = {}
        for e in await self.forgotten():
            reason = f"its agent was not heard of for {e.patience_s:g} s"
            if e.status == "registered" and await self.finish(
                Finish(e, "lost", {"error": reason}, reason=reason)
            ):
                closed[e.experiment_id] = "lost"
        return closed

    # -- the wait queue

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

    # -- moving

    async def reserve_number(self, tag: str, run_s: float | None = None) -> int:
        """The next number of a tag; one that is not used leaves a gap.

        Raises:
            NotFound: the tag does not exist. BudgetExhausted: a run of `run_s` seconds is to follow, and there is no
            room for it.
        """
        answer = await self._lab.run("number_experiment", [self._keys.tag(tag)], [run_s])
        match answer[0]:
            case "no_tag":
                raise unknown(tag)
            case "exhausted":
                raise exhausted(tag, answer)
            case _:
                return int(answer[1])

    async def first_answer(self, request: RequestKey) -> str | None:
        """The experiment that this request registered before.

        Raises:
            Invalid: the request of this id had another body.
        """
        found: str | None = await self._lab.command("GET", self._keys("requests", request.name))
        return None if found is None else request.registered(found)

    async def register(
        self,
        experiment: Experiment,
        patch: bytes | None,
        request: RequestKey | None,
        reserve_s: float | None = None,
    ) -> str:
        """Store a new experiment with its patch; answers its id, or the first one's for a repeated request.

        With `reserve_s` one run of so many seconds is set aside for it, as `enqueue` does otherwise.

        Raises:
            NotFound: the tag does not exist. Invalid: the request of this id had another body.
            BudgetExhausted: the tag's budget has no room for the run.
            Conflict: what it is made from is over, was used before, or is of an earlier epoch.
        """
        e, keys = experiment, self._keys
        diff_id = hashlib.sha256(patch).hexdigest() if patch is not None else ""
        fields = e.model_copy(update={"diff_id": diff_id or None}).flat()
        reply = await self._lab.run(
            "register_experiment",
            [
                keys.tag(e.tag),
                keys.experiment(e.experiment_id),
                keys("lineage", e.tag),
                *keys.indexes(e, "registered"),
                keys("category", e.tag, e.category),
                keys("diffs", diff_id or "none"),
                keys("tried", e.tag),
                keys("open"),
                keys("requests", request.name if request else "none"),
                keys("events"),
                keys.selection(e.selection_id) if e.selection_id else keys.experiment(e.experiment_id),
                keys("open_selections", e.tag),
                keys("forest", e.tag),
            ],
            [
                e.experiment_id,
                e.number,
                json.dumps(fields),
                zlib.compress(patch) if patch is not None else "",
                diff_id,
                e.commit_sha,
                REQUEST_TTL_S if request else 0,
                e.tag,
                json.dumps(
                    {
                        "experiment_id": e.experiment_id,
                        "number": e.number,
                        "category": e.category,
                        "hypothesis": e.hypothesis,
                        "agent": e.agent,
                    }
                ),
                e.traceparent,
                e.patience_s,
                request.body_digest if request else "",
                reserve_s,
                e.selection_id,
            ],
        )
        match reply[0]:
            case "no_tag":
                raise unknown(e.tag)
            case "over" | "used" | "stale_epoch":
                raise unselectable(e, reply)
            case "exhausted":
                raise exhausted(e.tag, reply)
            case "repeat" if request is not None:
                return request.registered(str(reply[1]))
            case _:
                return e.experiment_id

    async def begin_retest(
        self, e: Experiment, seed: int, *, reserve_s: float | None, agent: str | None = None
    ) -> Experiment | None:
        """Register one more run of an experiment's code; None where another was begun since it was read.

        With `reserve_s` one run of so many seconds is set aside for it; without, `agent` trains it itself.

        Raises:
            BudgetExhausted: the tag's budget has no room for the run.
        """
        keys = self._keys
        again = Experiment(
            experiment_id=retest_id(e, e.retests),
            retest_of=e.experiment_id,
            agent=agent,
            seed=seed,
            budget_s=e.budget_s or e.budget_seconds,
            status="registered",
            registered_at=0.0,
            **e.model_dump(include=SAME_CODE),
        )
        answer = await self._lab.run(
            "begin_retest",
            [
                keys.experiment(e.experiment_id),
                keys.experiment(again.experiment_id),
                *keys.indexes(again, "registered"),
                keys("open"),
                keys.tag(e.tag),
                keys("events"),
            ],
            [
                e.experiment_id,
                again.experiment_id,
                e.number,
                e.tag,
                json.dumps(again.flat()),
                e.retests,
                e.patience_s,
                seed,
                e.traceparent,
                reserve_s,
            ],
        )
        if answer[0] == "exhausted":
            raise exhausted(e.tag, answer)
        return await self.get(again.experiment_id) if answer[0] == "ok" else None

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
        if e.gpu_id is None:
            return False
        keys = self._keys
        answer = await self._lab.run(
            "start_attempt",
            [
                keys.experiment(e.experiment_id),
                keys.gpu(e.gpu_id),
                keys.attempts(e.experiment_id),
                keys("starting"),
                keys("leases"),
                *keys.indexes(e, "leased"),
                *keys.indexes(e, "running"),
                keys("events"),
            ],
            [
                e.experiment_id,
                e.number,
                e.tag,
                attempt,
                fence,
                runner,
                lease_s,
                e.traceparent,
                footprint.model_dump_json() if footprint else "",
            ],
        )
        return bool(answer == "ok")

    async def renew(
        self,
        experiment_id: str,
        gpu_id: str,
        fence: int,
        lease_s: float,
        tick: tuple[float, float] | None = None,
    ) -> Order:
        """Prolong a running attempt's lease, keep a (metric, progress) tick, and answer the lab's order."""
        keys = self._keys
        metric, progress = tick or (None, None)
        answer: Order = await self._lab.run(
            "renew_lease",
            [
                keys.experiment(experiment_id),
                keys.gpu(gpu_id),
                keys("leases"),
                keys("reports", experiment_id),
            ],
            [experiment_id, fence, lease_s, metric, progress, TICKS_KEPT],
        )
        return answer

    async def touch(self, e: Experiment) -> None:
        """Its agent was heard of."""
        await self._lab.run("touch_experiment", [self._keys("open")], [e.experiment_id, e.patience_s])

    async def keep_log(self, experiment_id: str, text: str) -> None:
        """Keep the newest lines of a run's log (text, at most 16 KiB of it)."""
        tail = text.encode("utf-8", "replace")[-LOG_BYTES:].decode("utf-8", "ignore")
        await self._lab.command("SET", self._keys("log", experiment_id), tail)

    async def keep_evidence(self, experiment_id: str, digest: str, result: Mapping[str, Any]) -> None:
        """Keep a result that came too late to count, unless there are a hundred of them."""
        await self._lab.run(
            "keep_evidence",
            [self._keys("evidence", experiment_id)],
            [digest, json.dumps(dict(result), allow_nan=False), EVIDENCE_KEPT],
        )

    async def evidence(self, experiment_id: str) -> list[dict[str, Any]]:
        """Results that came too late to count."""
        stored = await self._lab.hash(self._keys("evidence", experiment_id))
        return [json.loads(text) for text in stored.values()]

    async def ask_to_stop(self, e: Experiment, reason: str) -> bool:
        """Tell the worker of a leased or running attempt to stop; False where the status moved on."""
        answer = await self._lab.run(
            "stop_experiment", [self._keys.experiment(e.experiment_id)], [e.status, reason]
        )
        return bool(answer == "ok")

    async def finish(self, f: Finish) -> bool:
        """Commit a final status; False where what the decision was made on has changed: read and decide again."""
        e, keys = f.experiment, self._keys
        fields = flatten({**f.fields, "answer": f.answer})
        event = {
            "experiment_id": e.experiment_id,
            "number": e.number,
            "status": f.status,
            "category": e.category,
            "val_bpb": f.fields.get("val_bpb"),
            "delta": f.fields.get("delta"),
            "p_better": f.fields.get("p_better"),
            "description": e.description,
            "agent": e.agent,
            "gpu_id": e.gpu_id,
            "error_kind": f.fields.get("error_kind"),
            "reason": f.reason,
            "retest_of": e.retest_of,
            "trust": f.fields.get("trust"),
        }
        crashes = keys("crashes", e.tag)
        answer = await self._lab.run(
            "finish_experiment",
            [
                keys.experiment(e.experiment_id),
                keys.tag(e.tag),
                keys.best(e.tag, f.other_key),
                keys("near_misses", e.tag),
                keys("finished", e.tag),
                keys("categories", e.tag),
                crashes,
                *keys.indexes(e, e.status),
                *keys.indexes(e, f.status),
                keys("open"),
                keys.attempts(e.experiment_id),
                keys.queue(e.pinned_gpu),
                keys("starting"),
                keys.gpu(e.gpu_id) if e.gpu_id else crashes,
                keys("events"),
                keys("queue_clock"),
                keys("idle_gpus"),
                keys.parked(e.tag, e.pinned_gpu),
                f.repeat.key if f.repeat else crashes,
                keys("forest", e.tag),
                *(self._of_trace(e)),
                keys("open_selections", e.tag),
                keys("live_traces", e.tag),
                keys("traces", e.tag),
                *(keys.trace(source.trace_id) for source in (f.growth.ends if f.growth else ())),
            ],
            [
                e.experiment_id,
                e.number,
                e.tag,
                e.category,
                e.status,
                e.attempt,
                e.fence,
                f.best_version,
                f.crashes_before,
                f.key_version,
                f.status,
                json.dumps(fields),
                _best_fields(f.new_best) if f.new_best else "",
                f.near_miss_score,
                json.dumps(flatten(f.tag_fields)) if f.tag_fields else "",
                f.training_seconds,
                f.crash_count,
                json.dumps({k: v for k, v in event.items() if v is not None}, allow_nan=False),
                e.traceparent,
                _best_event(f.new_best, f.other_key)
                if f.new_best and f.new_best.experiment_id == e.experiment_id
                else "",
                f.breaker.crash_limit if f.breaker else None,
                f.breaker.cooldown_s if f.breaker else None,
                f.breaker.longest_s if f.breaker else None,
                *(
                    (f.repeat.code, f.repeat.before, f.repeat.after, f.repeat.squares)
                    if f.repeat
                    else [None] * 4
                ),
                *_growth(f.growth),
                _ending(f),
                json.dumps([str(source.version) for source in f.growth.ends]) if f.growth else "",
            ],
        )
        return bool(answer == "ok")

    def _of_trace(self, e: Experiment) -> tuple[str, str]:
        """Its trace and its selection; itself where it has none."""
        keys, own = self._keys, self._keys.experiment(e.experiment_id)
        return (
            keys.trace(e.trace_id) if e.trace_id else own,
            keys.selection(e.selection_id) if e.selection_id else own,
        )

    async def settle(self, s: Settled) -> bool:
        """Commit what retests said; False where the experiment or the best has changed: read and decide again."""
        e, keys = s.experiment, self._keys
        event = {"experiment_id": e.experiment_id, "number": e.number, "val_bpb": e.val_bpb, "agent": e.agent}
        answer = await self._lab.run(
            "settle_experiment",
            [
                keys.experiment(e.experiment_id),
                keys.tag(e.tag),
                keys.best(e.tag, e.best_key),
                keys("near_misses", e.tag),
                keys("categories", e.tag),
                *keys.indexes(e, e.status),
                *keys.indexes(e, s.status),
                keys("events"),
                *(keys.trace(growth.trace.trace_id) for growth in s.growths),
            ],
            [
                e.experiment_id,
                e.number,
                e.tag,
                e.category,
                e.status,
                s.status,
                s.best.version,
                json.dumps(flatten(s.fields)),
                _best_fields(s.after),
                s.near_miss_score,
                s.verdict,
                json.dumps(event | dict(s.facts), allow_nan=False),
                e.traceparent,
                _best_event(s.after, e.best_key) if s.after.experiment_id != s.best.experiment_id else "",
                json.dumps([json.dumps(flatten(growth.fields)) for growth in s.growths]),
                json.dumps([str(growth.trace.version) for growth in s.growths]),
            ],
        )
        return bool(answer == "ok")


def unselectable(e: Experiment, answer: Sequence[str]) -> Conflict:
    """Nothing can be registered with a selection, as the script says why."""
    again = "POST /api/trace/select makes a new one"
    match answer[0]:
        case "used":
            return Conflict(
                f"{answer[1]} was registered with {e.selection_id}: a selection is for one experiment",
                hint=again,
                fields={"code": "selection_used", "experiment_id": answer[1]},
            )
        case "stale_epoch":
            return stale_epoch(e.selection_id or "", int(answer[1]))
        case _:
            return Conflict(
                f"{e.selection_id} is over: its lease ended before an experiment was registered, or it was released",
                hint=f"{again}; a long search for an idea renews its selection with POST /api/trace/renew",
                fields={"code": "selection_expired"},
            )


def stale_epoch(selection_id: str, epoch: int) -> Conflict:
    """A selection was made before the tag's traces began their present epoch."""
    return Conflict(
        f"{selection_id} is of an earlier epoch: the tag's traces are in epoch {epoch} by now",
        hint="POST /api/trace/select makes a new one",
        fields={"code": "stale_epoch", "epoch": epoch},
    )


def retest_id(e: Experiment, nth: int) -> str:
    """The id of an experiment's nth retest, counted from 0: `mar11-47.2` is the second run of `mar11-47`."""
    return f"{e.experiment_id}.{nth + 2}"


def _ending(f: Finish) -> SelectionStatus | None:
    """How the selection ends with its experiment; None where it has none."""
    if f.experiment.selection_id is None:
        return None
    if f.growth is not None:
        return "committed"
    return "expired" if f.status == "lost" else "released"


def _growth(growth: Growth | None) -> tuple[str | int | None, ...]:
    """Fields of the trace, its expected version, the expected epoch, what it becomes and why."""
    if growth is None:
        return (None,) * 5
    fields = json.dumps(flatten(growth.fields))
    return fields, growth.trace.version, growth.epoch, growth.status, growth.why


def _best_fields(best: Best) -> str:
    return json.dumps(flatten(best.model_dump(exclude={"updated_at", "version"})))


def _best_event(best: Best, other_key: str | None) -> str:
    return json.dumps(
        {
            "experiment_id": best.experiment_id,
            "val_bpb": best.val_bpb,
            "commit_sha": best.commit_sha,
            "key": other_key,
        },
        allow_nan=False,
    )


def _by_attempt(stored: Mapping[str, str]) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    for field, value in stored.items():
        number, _, name = field.partition(":")
        found.setdefault(int(number), {})[name] = value
    return dict(sorted(found.items()))
