"""Traces and selections: the facts that decide a selection, and one change for each step from open to over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal
from weakref import WeakValueDictionary

from state import reads
from state.change import NOW, Asked, Change, clock, hmget, zscore
from state.client import Lab
from state.experiments.registering import ENDLESS
from state.facts import Spread
from state.forests import REMEMBERED_S, Growing, TraceReader, forest_of
from state.ids import REQUEST_TTL_S, RequestKey
from state.policy import read_policy
from state.reads import fields_of
from state.records import Experiment, Selection, Trace, flatten
from state.selecting import Needs, SelectionDecision, SelectionFacts, Wish

GPUS_READ = 100_000
KEPT_READ = 50
"""Newest kept nodes that a freed slot may branch from."""
STOOD_ON_READ = 200
"""Newest traces whose bases are not branched from again."""
NEAR_READ = 50
COMBINED_READ = 200
SWEPT = 1000
"""Most selections of a tag that one sweep expires."""


class Selecting(TraceReader):
    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self._deciding = WeakValueDictionary[str, asyncio.Lock]()

    def deciding(self, tag: str) -> asyncio.Lock:
        """Held from the facts to the move: decisions of one process do not make each other stale."""
        return self._deciding.setdefault(tag, asyncio.Lock())

    # -- facts

    async def facts(self, wish: Wish, request: RequestKey | None) -> SelectionFacts:
        """Facts of every selection, the parts that the wish names, and the earlier selection of the same request.

        Raises:
            NotFound: the tag does not exist. Invalid: the request of this id had another body.
        """
        keys, tag = self._keys, wish.tag
        named = [i for i in dict.fromkeys((wish.trace_id, wish.into, *wish.sources)) if i is not None]
        told = await self._lab.read(
            {
                "now": clock(),
                "tag": reads.tag(keys, tag),
                "policy": ("HGETALL", keys("policy", tag)),
                **self.forest_reads(tag),
                "open": ("ZCARD", keys("open_selections", tag)),
                "earliest": ("ZRANGE", keys("open_selections", tag), 0, 0, "WITHSCORES"),
                **_each("trace", "HGETALL", {i: keys.trace(i) for i in named}),
                **_each("node", "HGETALL", {i: keys.experiment(i) for i in wish.parent_ids}),
                "first": ("GET", keys("requests", request.name)) if request else None,
                "best": reads.best(keys, tag) if wish.selector == "near_miss" else None,
                "noise": reads.main_noise(self._lab, tag) if wish.selector == "near_miss" else None,
                **{f"base {i}": reads.base_above(self._lab, keys.experiment(i)) for i in wish.parent_ids},
            }
        )
        first = told["first"]
        return SelectionFacts(
            now=told["now"],
            tag=told["tag"],
            policy=read_policy(told["policy"]["values"]),
            policy_version=int(told["policy"]["version"]),
            forest=forest_of(tag, told),
            open_selections=int(told["open"]),
            free_at=float(told["earliest"][1]) if told["earliest"] else None,
            first=await self.selection(request.registered(first)) if request and first else None,
            best=told["best"],
            noise=told["noise"] or Spread(),
            nodes={i: Experiment.parse(e) for i in wish.parent_ids if (e := told[f"node {i}"])},
            bases={
                i: b for i in wish.parent_ids if (b := await reads.base_found(self._lab, told[f"base {i}"]))
            },
            traces={i: Trace.parse(t) for i in named if (t := told[f"trace {i}"])},
        )

    async def more(self, facts: SelectionFacts, needs: Needs) -> SelectionFacts:
        """The facts with what else the decision needs."""
        told = await self._lab.read(self._reads(facts.tag.name, needs))
        gpus, stood_on, combined = (told.get(of, {}).values() for of in ("gpus", "stood_on", "combined"))
        return replace(
            facts,
            traces={**facts.traces, **{i: Trace.parse(t) for i in needs.traces if (t := told[f"trace {i}"])}},
            values={i: float(value) for i in needs.values if (value := told[f"value {i}"])},
            gpus=[(status, float(heard_at)) for status, heard_at in gpus if status and heard_at],
            kept=told.get("kept", ()),
            stood_on=frozenset(node for pair in stood_on for node in pair if node),
            near=told.get("near", ()),
            combined=[json.loads(parents) for [parents] in combined if parents],
        )

    def _reads(self, tag: str, needs: Needs) -> dict[str, Asked]:
        keys, lab = self._keys, self._lab
        asked: dict[str, Asked] = {
            **_each("trace", "HGETALL", {i: keys.trace(i) for i in needs.traces}),
            **_each("value", "HGET", {i: keys.experiment(i) for i in needs.values}, "val_bpb"),
        }
        if needs.gpus:
            pulse = ("status", "heartbeat_at")
            asked["gpus"] = reads.members(lab, keys("gpus"), keys.gpu(""), limit=GPUS_READ, fields=pulse)
        if needs.kept:
            kept, opened = keys.status(tag, "keep", "")[0], keys("traces", tag)
            asked["kept"] = reads.records(lab, Experiment, kept, limit=KEPT_READ, newest=True)
            asked["stood_on"] = reads.members(
                lab, opened, keys.trace(""), limit=STOOD_ON_READ, newest=True, fields=("base", "origin")
            )
        if needs.near is not None:
            index, lineage = keys("near_misses", tag), keys("lineage", tag)
            low, high = needs.near
            asked["near"] = reads.records(lab, Experiment, index, limit=NEAR_READ, low=low, high=high)
            asked["combined"] = reads.members(
                lab, lineage, limit=COMBINED_READ, newest=True, fields=("parent_ids",)
            )
        return asked

    # -- moves

    async def select(self, d: SelectionDecision, request: RequestKey | None = None) -> Selection | None:
        """Make a selection, or find that of the same request; None: facts changed. Raises Invalid: another body."""
        keys, tag = self._keys, d.tag
        trace_turn, forest_turn = d.turn or (None, None)
        answer = await self._lab.move(
            "select_trace",
            keys={
                "trace": keys.trace(d.trace_id),
                "request": keys("requests", request.name) if request else None,
            },
            args={
                "tag": tag,
                "policy_version": d.policy_version,
                "select_seq": d.select_seq,
                "places": d.places,
                "tip": d.tip,
                "most_open": d.most_open,
                "most_in_flight": d.most_in_flight,
                "selections": keys.selection(""),
                "kind": d.kind,
                "trace_id": d.trace_id,
                "opens": d.opens,
                "origin": d.origin,
                "owner": d.fields.get("owner"),
                "trace_turn": trace_turn,
                "forest_turn": forest_turn,
                "lease_s": d.lease_s,
                "values": json.dumps(flatten(d.fields)),
                "ttl_s": REQUEST_TTL_S if request else None,
                "digest": request.body_digest if request else None,
            },
        )
        match answer:
            case ["selected", fields]:
                return Selection.parse(fields_of(fields))
            case ["repeat", first] if request is not None:
                return await self.selection(request.registered(first))
            case _:
                return None

    async def renew(self, s: Selection) -> Selection | None:
        """Prolong the lease by its whole length; one that is held by an experiment needs none. None: it is over."""
        key, opened = self._keys.selection(s.selection_id), self._keys("open_selections", s.tag)

        async def decide(change: Change) -> Selection | None:
            found, ends, now = await change.read(
                hmget(key, "status", "experiment_id"), zscore(opened, s.selection_id), clock()
            )
            if found["status"] != "open" or ends is None:
                return None
            if found["experiment_id"] is not None:
                return s.model_copy(update={"experiment_id": found["experiment_id"]})
            if ends <= now:
                return None
            change.before(ends)
            expiry = round(now + s.lease_s, 6)
            change.zadd(opened, {s.selection_id: expiry})
            change.hset(key, {"lease_expires_at": f"{expiry:.6f}"})
            return s.model_copy(update={"lease_expires_at": expiry})

        return await self._lab.change(decide)

    async def release(self, s: Selection, why: str) -> Selection:
        """Give a selection back, unless an experiment was registered with it; answers what it is then."""
        _, status, experiment_id = await self._end(s.tag, s.selection_id, s.trace_id, "released", why)
        return s.model_copy(update={"status": status, "experiment_id": experiment_id})

    async def sweep(self, tags: Sequence[str] | None = None) -> list[str]:
        """Expire selections of these tags, or of all, whose leases have ended; answers their ids."""
        keys = self._keys
        named: Sequence[str] = (
            tags if tags is not None else await self._lab.command("ZRANGE", keys("tags"), 0, -1)
        )
        ended = await self._lab.read(
            {
                tag: reads.members(
                    self._lab,
                    keys("open_selections", tag),
                    keys.selection(""),
                    limit=SWEPT,
                    high="now",
                    fields=("trace_id",),
                )
                for tag in named
            }
        )
        found = [(tag, name, trace_id) for tag in named for name, [trace_id] in ended[tag].items()]
        why = "its agent did not register an experiment in time"
        answers = [await self._end(tag, name, trace_id, "expired", why) for tag, name, trace_id in found]
        return [name for (_, name, _), (ended, *_) in zip(found, answers, strict=True) if ended]

    async def _end(
        self, tag: str, name: str, trace_id: str | None, status: Literal["released", "expired"], why: str
    ) -> tuple[bool, str, str | None]:
        """Whether it ends now, what it is then, and its experiment. Without a record it leaves the index alone."""
        keys = self._keys
        key, opened = keys.selection(name), keys("open_selections", tag)
        trace_id = trace_id or "none"

        async def decide(change: Change) -> tuple[bool, str, str | None]:
            found, ends, trace, now = await change.read(
                hmget(key, "status", "experiment_id"),
                zscore(opened, name),
                hmget(keys.trace(trace_id), "status", "in_flight"),
                clock(),
            )
            was, experiment_id = found["status"], found["experiment_id"]
            if was != "open":
                change.zrem(opened, name)
                return False, was or "", experiment_id
            if experiment_id is not None:
                change.zadd(opened, {name: ENDLESS})
                return False, was, experiment_id
            if status == "expired" and (ends or 0.0) > now:
                return False, was, None
            change.hset(key, {"status": status, "ended_at": NOW})
            change.expire(key, REMEMBERED_S)
            change.zrem(opened, name)
            told = {"selection_id": name, "trace_id": trace_id, "reason": why}
            change.emit(f"selection.{status}", tag, name, told)
            if trace == {"status": "pending", "in_flight": "1"}:  # it was opened for this alone
                change.delete(keys.trace(trace_id))
                change.zrem(keys("traces", tag), trace_id)
                change.zrem(keys("live_traces", tag), trace_id)
            else:
                change.hincrby(keys.trace(trace_id), "in_flight", -1)
            return True, status, None

        return await self._lab.change(decide)


def _each(what: str, command: str, keys: Mapping[str, str], *more: str) -> dict[str, Asked]:
    """One command for each key, named `<what> <id>`."""
    return {f"{what} {i}": (command, key, *more) for i, key in keys.items()}


class Traces(Selecting, Growing):
    """All traces and selections of the lab."""
