"""Traces and selections: which branches of a tag grow, and what each experiment is made from."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from weakref import WeakValueDictionary

from state.client import Lab
from state.digests import REQUEST_TTL_S, RequestKey
from state.errors import Conflict, NotFound
from state.ids import OWN_LINE, trace_id_of
from state.records import Forest, Selection, SelectionKind, Trace, flatten
from state.refusals import no_selection, over
from state.tags import unknown


@dataclass(frozen=True)
class Pick:
    """What to select: one of some traces, or one that is opened for it."""

    kind: SelectionKind
    by: Literal["auto", "turn", "asked"]
    """`auto`: the room for traces decided whether one is opened; `turn`: one of those that grow has its turn;
    `asked`: the caller named the trace, or that one is to be opened."""
    candidates: Sequence[str] = ()
    """Traces to choose from, most wanted first; none where one is opened."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What the selection says beside its trace: agent, reason, and the parents where no trace's tip is one."""


@dataclass(frozen=True)
class Plan:
    """A pick with the limits that it has to keep, and the versions that it was decided on."""

    forest: Forest
    policy_version: int
    pick: Pick
    most_open: int
    most_traces: int | None
    """Live and pending ones; None in single mode."""
    most_in_flight: int | None
    """Open selections of one trace; None is any number."""
    lease_s: float
    run_s: float
    """Seconds of the run that is to follow: the tag's budget needs room for them."""


@dataclass(frozen=True)
class Refusal:
    """Why nothing was selected."""

    why: Literal["stale", "expired", "paused", "budget", "no_slot", "all_busy", "no_room", "ended"]
    free_at: float | None = None
    """When the first lease of the tag ends, if its holder stays silent."""
    status: str | None = None
    """Of the trace that was asked for."""


class Traces:
    """All traces and selections of the lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._keys = lab.keys
        self._deciding = WeakValueDictionary[str, asyncio.Lock]()

    def deciding(self, tag: str) -> asyncio.Lock:
        """Held by whoever decides what to select in this process: of several at once all but one would be stale."""
        return self._deciding.setdefault(tag, asyncio.Lock())

    # -- reading

    async def forest(self, tag: str) -> Forest:
        """What may be selected now."""
        counters, ids, branches = await self._lab.pipeline(
            [
                ("HGETALL", self._keys("forest", tag)),
                ("ZRANGE", self._keys("live_traces", tag), 0, -1),
                ("ZCOUNT", self._keys("traces", tag), f"({OWN_LINE}", "+inf"),
            ]
        )
        return Forest(
            tag=tag,
            select_seq=int(counters.get("select_seq", 0)),
            epoch=int(counters.get("epoch", 1)),
            virtual_time=int(counters.get("virtual_time", 0)),
            last_trace=int(counters.get("last_trace", OWN_LINE)),
            branches=int(branches),
            growing=tuple(await self.many(ids)),
        )

    async def epoch(self, tag: str) -> int:
        """The epoch that the tag's selections are made in now."""
        return int(await self._lab.command("HGET", self._keys("forest", tag), "epoch") or 1)

    async def many(self, trace_ids: Sequence[str]) -> list[Trace]:
        """Several, in the order asked for; what is not there is left out."""
        stored = await self._lab.hashes([self._keys.trace(i) for i in trace_ids])
        return [Trace.parse(fields) for fields in stored if fields]

    async def get(self, tag: str, trace_id: str) -> Trace:
        """A trace of this tag.

        Raises:
            NotFound: it has none of that name.
        """
        found = await self.many([trace_id])
        if not found or found[0].tag != tag:
            raise NotFound(
                f"{tag!r} has no trace {trace_id!r}", hint="POST /api/trace/list names them: <tag>-t<number>"
            )
        return found[0]

    async def standing_on(self, tag: str, experiment_id: str) -> list[Trace]:
        """Traces, ended ones too, that have this experiment for their base; looks at every trace of the tag."""
        ids = await self._lab.command("ZRANGE", self._keys("traces", tag), 0, -1)
        bases = await self._lab.pipeline([("HGET", self._keys.trace(i), "base") for i in ids])
        return await self.many([i for i, base in zip(ids, bases, strict=True) if base == experiment_id])

    async def page(self, tag: str, limit: int, below: int | None = None) -> tuple[list[Trace], int]:
        """The newest `limit` traces below a number, by number, and how many there are in all."""
        index = self._keys("traces", tag)
        top = f"({below}" if below is not None else "+inf"
        ids, total = await self._lab.pipeline(
            [("ZREVRANGEBYSCORE", index, top, "-inf", "LIMIT", 0, limit), ("ZCARD", index)]
        )
        return (await self.many(ids))[::-1], int(total)

    async def selection(self, selection_id: str) -> Selection:
        """A selection; one that is over is known for 24 h.

        Raises:
            NotFound: there is none of that name, or no longer.
        """
        stored = await self._lab.hash(self._keys.selection(selection_id))
        if not stored:
            raise no_selection(selection_id)
        return Selection.parse(stored)

    async def open_selections(self, tag: str) -> dict[str, float]:
        """Open selections of a tag and when their leases end; infinity while an experiment holds one."""
        rows = await self._lab.command(
            "ZRANGE", self._keys("open_selections", tag), 0, -1, "WITHSCORES", withscores=True
        )
        return {str(member): float(score) for member, score in rows}

    async def unused(self, tag: str, limit: int, agent: str | None = None) -> list[Selection]:
        """Open selections, of one agent or all, that nothing was registered with, those that end first first."""
        still_open = await self.open_selections(tag)
        waiting = [name for name, ends in still_open.items() if math.isfinite(ends)]
        found = await self.selections(waiting)
        return [s for s in found if s.experiment_id is None and agent in (None, s.agent)][:limit]

    async def selections(self, selection_ids: Sequence[str]) -> list[Selection]:
        """Several; what is forgotten is left out."""
        stored = await self._lab.hashes([self._keys.selection(i) for i in selection_ids])
        return [Selection.parse(fields) for fields in stored if fields]

    async def first_answer(self, request: RequestKey) -> Selection | None:
        """What this request selected before.

        Raises:
            Invalid: the request of this id had another body.
        """
        found = await self._lab.command("GET", self._keys("requests", request.name))
        return None if found is None else await self.selection(request.registered(found))

    # -- moving

    async def select(self, plan: Plan, request: RequestKey | None = None) -> Selection | Refusal:
        """Make a selection, or say why not; the same request gets its first selection.

        Raises:
            NotFound: the tag does not exist. Invalid: the request of this id had another body.
        """
        keys, forest, pick = self._keys, plan.forest, plan.pick
        tag, number = forest.tag, forest.last_trace + 1
        selection_id = f"{tag}-s{forest.select_seq + 1}"
        opened = trace_id_of(tag, number if plan.most_traces is not None else OWN_LINE)
        answer = await self._lab.run(
            "select_trace",
            [
                keys.tag(tag),
                keys("policy", tag),
                keys("forest", tag),
                keys("open_selections", tag),
                keys("traces", tag),
                keys("live_traces", tag),
                keys.selection(selection_id),
                keys.trace(opened),
                keys("requests", request.name if request else "none"),
                keys("events"),
                keys("finished", tag),
                keys.best(tag),
                *(keys.trace(i) for i in pick.candidates),
            ],
            [
                tag,
                plan.policy_version,
                forest.select_seq,
                selection_id,
                pick.kind,
                plan.most_open,
                plan.most_traces,
                plan.most_in_flight,
                pick.by,
                plan.lease_s,
                plan.run_s,
                json.dumps(flatten(pick.fields)),
                opened,
                number,
                REQUEST_TTL_S if request else 0,
                request.body_digest if request else "",
                next(iter(pick.fields.get("parent_ids", ())), None) if pick.kind == "branch" else None,
            ],
        )
        match answer[0]:
            case "selected":
                return Selection.parse(dict(zip(answer[1][::2], answer[1][1::2], strict=True)))
            case "repeat" if request is not None:
                return await self.selection(request.registered(str(answer[1])))
            case "no_tag":
                raise unknown(tag)
            case "ended":
                return Refusal("ended", status=answer[1])
            case "no_slot" | "all_busy":
                free_at = float(answer[1]) if answer[1] not in ("", "inf") else None
                return Refusal(answer[0], free_at)
            case why:
                return Refusal(why)

    async def renew(self, s: Selection) -> Selection:
        """Prolong the lease by its whole length; one that is held by an experiment needs none.

        Raises:
            Conflict: it is over.
        """
        answer = await self._lab.move(
            "renew_selection",
            keys={
                "selection": self._keys.selection(s.selection_id),
                "open_selections": self._keys("open_selections", s.tag),
            },
            args={"id": s.selection_id, "lease_s": s.lease_s},
        )
        match answer:
            case ["ok", ends]:
                return s.model_copy(update={"lease_expires_at": float(ends)})
            case ["held", experiment_id]:
                return s.model_copy(update={"experiment_id": experiment_id})
            case _:
                raise over(await self.selection(s.selection_id))

    async def release(self, s: Selection, why: str) -> Selection:
        """Give a selection back, unless an experiment was registered with it; answers what it is then."""
        match await self._end(s.tag, s.selection_id, s.trace_id, "released", why):
            case ["over", status, experiment_id]:
                return s.model_copy(update={"status": status, "experiment_id": experiment_id or None})
            case ["registered", experiment_id]:
                return s.model_copy(update={"experiment_id": experiment_id})
            case _:
                return s.model_copy(update={"status": "released"})

    async def _end(
        self, tag: str, name: str, trace_id: str | None, status: Literal["released", "expired"], why: str
    ) -> Sequence[str]:
        """One without a record only leaves the index of open ones."""
        keys = self._keys
        answer: Sequence[str] = await self._lab.move(
            "end_selection",
            keys={
                "selection": keys.selection(name),
                "trace": keys.trace(trace_id or "none"),
                "open_selections": keys("open_selections", tag),
                "live_traces": keys("live_traces", tag),
                "traces": keys("traces", tag),
                "events": keys("events"),
            },
            args={"id": name, "tag": tag, "status": status, "why": why},
        )
        return answer

    async def sweep(self, tag: str) -> list[str]:
        """Expire the selections of a tag whose leases have ended; answers which."""
        now = await self._lab.now()
        ids = await self._lab.command("ZRANGEBYSCORE", self._keys("open_selections", tag), "-inf", repr(now))
        traces = {s.selection_id: s.trace_id for s in await self.selections(ids)}
        why = "its agent did not register an experiment in time"
        ended = [(name, await self._end(tag, name, traces.get(name), "expired", why)) for name in ids]
        return [name for name, answer in ended if answer[0] == "ok"]

    async def with_expired(self) -> list[str]:
        """Tags that have open selections whose leases have ended."""
        now = await self._lab.now()
        tags = await self._lab.command("ZRANGE", self._keys("tags"), 0, -1)
        counts = await self._lab.pipeline(
            [("ZCOUNT", self._keys("open_selections", tag), "-inf", repr(now)) for tag in tags]
        )
        return [tag for tag, count in zip(tags, counts, strict=True) if int(count)]

    async def prioritise(self, priorities: Mapping[str, float]) -> None:
        """Set how much traces are wanted, higher first."""
        keys = [self._keys.trace(trace_id) for trace_id in priorities]
        await self._lab.move(
            "prioritise_trace", keys={"traces": keys}, args={"priorities": list(priorities.values())}
        )

    async def close(self, trace: Trace, reason: str) -> Trace:
        """Select it no more; one that has ended stays as it ended."""
        keys = self._keys
        answer = await self._lab.move(
            "end_trace",
            keys={
                "trace": keys.trace(trace.trace_id),
                "live_traces": keys("live_traces", trace.tag),
                "events": keys("events"),
            },
            args={"tag": trace.tag, "reason": reason},
        )
        if answer == "over":
            return await self.get(trace.tag, trace.trace_id)
        return trace.model_copy(update={"status": "closed", "reason": reason})

    async def reopen(self, trace: Trace, most_traces: int, policy_version: int) -> Trace | None:
        """Let a trace that has ended grow again; None where the policy has changed: read it again.

        Raises:
            Conflict: it has no node, or the tag has as many traces as it may have.
        """
        keys = self._keys
        answer = await self._lab.move(
            "reopen_trace",
            keys={
                "trace": keys.trace(trace.trace_id),
                "live_traces": keys("live_traces", trace.tag),
                "policy": keys("policy", trace.tag),
                "events": keys("events"),
            },
            args={
                "tag": trace.tag,
                "id": trace.trace_id,
                "number": trace.number,
                "most_traces": most_traces,
                "policy_version": policy_version,
            },
        )
        match answer:
            case "stale":
                return None
            case "rootless":
                raise Conflict(
                    f"nothing of {trace.trace_id} was ever committed",
                    hint="POST /api/trace/select with intent new_root opens another",
                )
            case "no_room":
                raise no_room(trace.tag, most_traces)
            case "growing":
                return await self.get(trace.tag, trace.trace_id)
            case _:
                return trace.model_copy(update={"status": "live"})


def no_room(tag: str, most: int) -> Conflict:
    """A tag has as many traces as it may have."""
    return Conflict(
        f"{tag!r} has the {most} traces that it may have, live and pending ones",
        hint="extend one of them, close one with POST /api/trace/close, or have an operator raise target_traces"
        " with POST /api/trace/configure",
        fields={"code": "no_room", "target_traces": most},
    )
