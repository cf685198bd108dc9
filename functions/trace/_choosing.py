"""What select and merge share: plan a selection, commit it, and wait for a slot where there is none."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from functions.contract import Call, Response
from functions.plugins import Schedulers
from functions.rules.branches.forest import forest_of, replanted, stood_on
from functions.rules.branches.merging import by_best_base, in_order, near_pair, one_base
from functions.rules.branches.schedulers import TraceScheduler, checked_params, ranking
from functions.rules.branches.trace_ends import next_start
from functions.rules.keeps.verdict import Key, near_band
from functions.trace._nodes import parents_named
from functions.views.budgets import obstacle
from functions.views.hints import alive
from state.digests import RequestKey, digest_of
from state.errors import Conflict
from state.experiments import Experiments
from state.ids import OWN_LINE, trace_id_of
from state.policies import Policies
from state.policy import Policy
from state.policy import Traces as TracePolicy
from state.pool import Pool
from state.records import Experiment, Forest, Selection, SelectionKind, Tag, Trace, stamp
from state.settings import Settings
from state.tags import Tags
from state.traces import Pick, Plan, Refusal, Traces, no_room
from state.wakeups import Wakeups, woken_within

LOOK_AGAIN_S = 2.0
"""A wake-up may be lost with its connection; the state never is."""
FREEING = (
    *("selection.committed", "selection.released", "selection.expired"),
    *("trace.opened", "trace.ended", "trace.reopened", "tag.resumed"),
)
"""Events after which there may be a slot."""
RETRY_S = (1.0, 15.0)
"""The least and the most that a caller without a slot is told to wait."""
KEPT_READ = 50
"""Newest kept nodes that a freed slot may branch from."""
NEAR_READ = 50
COMBINED_READ = 200
TRACES_READ = 200
"""Newest traces whose bases are not branched from again."""

Intent = Literal["auto", "new_root", "extend", "branch", "merge"]
Selector = Literal["explicit", "best_base", "near_miss", "nodes"]
Said = dict[str, Any]
"""What a selection says beside its trace."""
Why = Literal["no_slot", "all_busy", "paused", "budget"]


@dataclass(frozen=True)
class Wish:
    """What a caller wants to build on."""

    tag: str
    agent: str | None
    intent: Intent = "auto"
    trace_id: str | None = None
    parents: Sequence[Experiment] = ()
    selector: Selector = "best_base"
    """How a merge finds what it brings together."""
    sources: Sequence[str] = ()
    """Traces, where its caller names them."""
    into: str | None = None
    """The trace that the merged node goes on in; None: that of the best of them."""
    wait: float = 0.0


@dataclass(frozen=True)
class Waiting:
    """No selection now."""

    reason: Why
    retry_after: float
    hint: str


class Selected(Response):
    """A selection, or why there is none now."""

    status: Literal["selected", "wait"]
    selection_id: str | None = None
    kind: SelectionKind | None = None
    trace_id: str | None = None
    parent_ids: list[str] | None = None
    local_selection: list[int] | None = None
    """The parents' numbers in the tag; empty is a new root."""
    base_experiment_id: str | None = None
    base_commit_sha: str | None = None
    """The code to check out."""
    combines: list[str] | None = None
    """Of a merge: the kept nodes, or the near misses, whose changes are to be brought together."""
    sources: list[str] | None = None
    """Of a merge: the traces that end with it, if it is kept."""
    select_seq: int | None = None
    epoch: int | None = None
    lease_expires_at: str | None = None
    """Until then an experiment is registered with it, or it is renewed."""
    scheduler: str | None = None
    scores: dict[str, float] | None = None
    reason: str
    """Why this one; or why none: no_slot, all_busy, paused, budget."""
    retry_after: float | None = None
    hint: str
    context: dict[str, Any] | None = None


def answered(found: Selection | Waiting, tag: Tag) -> Selected:
    """A selection as callers see it."""
    if isinstance(found, Waiting):
        return Selected(status="wait", reason=found.reason, retry_after=found.retry_after, hint=found.hint)
    commit = found.base_commit_sha or tag.base_commit
    return Selected(
        status="selected",
        selection_id=found.selection_id,
        kind=found.kind,
        trace_id=found.trace_id,
        parent_ids=found.parent_ids,
        local_selection=found.local_selection,
        base_experiment_id=found.base_experiment_id,
        base_commit_sha=commit,
        combines=(found.combines or found.parent_ids) if found.kind == "merge" else None,
        sources=sorted(found.sources) or None,
        select_seq=found.select_seq,
        epoch=found.epoch,
        lease_expires_at=stamp(found.lease_expires_at),
        scheduler=found.scheduler,
        scores=found.scores,
        reason=found.reason,
        hint=f"Check out {commit or 'the base commit'}, change it, and register or submit with"
        f" selection_id {found.selection_id} before the lease ends.",
    )


@dataclass(frozen=True)
class Chooser:
    """Makes selections with a process's stores."""

    tags: Tags
    policies: Policies
    experiments: Experiments
    traces: Traces
    pool: Pool
    schedulers: Schedulers
    wakeups: Wakeups
    settings: Settings

    async def choose(self, wish: Wish, call: Call, request: RequestKey | None) -> Selection | Waiting:
        """A selection; where there is none now, tries again with whatever happens for `wish.wait` seconds.

        Raises:
            Conflict: what was asked for cannot be selected, now or ever; the `code` says why.
        """
        time = asyncio.get_running_loop().time
        deadline, next_look = time() + wish.wait, 0.0
        async with self.wakeups.types(wish.tag, *FREEING) as woken:
            while True:
                async with self.traces.deciding(wish.tag):
                    found = await self._try(wish, call, request)
                if isinstance(found, Selection):
                    return found
                if time() >= next_look and found.reason in ("no_slot", "all_busy"):
                    next_look = time() + LOOK_AGAIN_S
                    if wish.tag in await self._forgotten_tags():
                        continue
                left = deadline - time()
                if left <= 0:
                    if found.reason == "all_busy" and (named := wish.into or wish.trace_id) is not None:
                        raise busy(named, found.retry_after)
                    return found
                await woken_within(woken, min(left, LOOK_AGAIN_S))

    async def _try(self, wish: Wish, call: Call, request: RequestKey | None) -> Selection | Waiting:
        while True:
            tag, (policy, version), forest = await asyncio.gather(
                self.tags.get(wish.tag), self.policies.get(wish.tag), self.traces.forest(wish.tag)
            )
            plan = await self._plan(wish, call, policy, version, forest, tag)
            found = await self.traces.select(plan, request)
            if isinstance(found, Selection):
                return found
            match found.why:
                case "expired":
                    await self.traces.sweep(wish.tag)
                case "no_room":
                    raise no_room(wish.tag, policy.traces.target_traces)
                case "ended" if (named := wish.into or wish.trace_id) is not None:
                    raise ended(named, found.status)
                case "stale" | "ended":
                    continue
                case why:
                    return Waiting(why, await self._later(found), _hint(why, tag))

    async def _forgotten_tags(self) -> set[str]:
        """Tags with slots again because the agents that held them are gone; without a clock nobody else sweeps."""
        patience_s = self.settings.stale_s
        if await self.pool.begin_sweep(patience_s / 2 + self.settings.sweep_s, patience_s):
            return set()
        closed = await self.experiments.close_forgotten()
        return {name.rpartition("-")[0] for name in closed}

    async def _later(self, refusal: Refusal) -> float:
        least, most = RETRY_S
        if refusal.free_at is None:
            return most
        return min(max(refusal.free_at - await self.pool.now(), least), most)

    async def _plan(
        self, wish: Wish, call: Call, policy: Policy, version: int, forest: Forest, tag: Tag
    ) -> Plan:
        rules = policy.traces
        is_single = rules.mode == "single"
        said = {"agent": wish.agent, "owner": call.caller.owner}
        return Plan(
            forest=forest,
            policy_version=version,
            pick=_own_line(wish, tag, said)
            if is_single
            else await self._pick(wish, policy, forest, tag, said),
            most_open=rules.max_parallel or await self._live_gpus(),
            most_traces=None if is_single else rules.target_traces,
            most_in_flight=None if is_single else rules.max_inflight_per_trace,
            lease_s=rules.lease_ttl_s,
            run_s=policy.budgets.base_s,
        )

    async def _live_gpus(self) -> int:
        """At least one: an agent may train by itself."""
        return max(1, len(alive(await self.pool.all(), await self.pool.now(), self.settings.stale_s)))

    async def _pick(self, wish: Wish, policy: Policy, forest: Forest, tag: Tag, said: Said) -> Pick:
        rules = policy.traces
        if wish.intent == "merge":
            return await self._merge(wish, forest, tag, policy, said)
        if wish.parents:
            return await self._from_node(wish, forest, said)
        if wish.trace_id is not None:
            await self.traces.get(wish.tag, wish.trace_id)
            return Pick("extend", "asked", [wish.trace_id], said | {"reason": "its caller named the trace"})
        room = len(forest.growing) < rules.target_traces
        if wish.intent in ("new_root", "branch") or (wish.intent == "auto" and room):
            return await self._open(wish, forest, tag, said)
        return _in_turn(wish, rules, await self.schedulers.named(rules.scheduler), forest, said)

    async def _open(self, wish: Wish, forest: Forest, tag: Tag, said: Said) -> Pick:
        """A new trace: a root, or in a slot that another trace has left a branch from what was kept before."""
        by: Literal["auto", "asked"] = "auto" if wish.intent == "auto" else "asked"
        wants_branch = wish.intent == "branch" or (by == "auto" and replanted(forest))
        kept = await self.experiments.by_number(wish.tag, "keep", KEPT_READ) if wants_branch else []
        newest, _ = await self.traces.page(wish.tag, TRACES_READ) if kept else ([], 0)
        taken = stood_on((*forest.growing, *newest))
        main = Key(tag.key_gpu_class, tag.key_evaluator_hash, tag.key_budget_seconds)
        node = next_start((e for e in kept if not e.outdated), taken, tag.direction, main)
        if node is not None:
            reason = f"a trace is wanted: {node.experiment_id} was kept, and none stands on it"
            return Pick("branch", by, fields={**said, "reason": reason, **parents_named([node], node)})
        if wish.intent == "branch":
            raise Conflict(
                f"{wish.tag!r} has no kept experiment that no trace stands on",
                hint="name one in parent_ids, or open a root with intent new_root",
                fields={"code": "no_parent"},
            )
        reason = "its caller asked for a root" if by == "asked" else "there is room for one more trace"
        return Pick("new_root", by, fields=said | {"reason": reason})

    async def _from_node(self, wish: Wish, forest: Forest, said: Said) -> Pick:
        """From the node that the caller named: its trace where it is a tip, else a trace of its own."""
        [node] = wish.parents
        said = said | {"reason": f"its caller named {node.experiment_id}"}
        for trace in forest.growing:
            if trace.tip == node.experiment_id and wish.intent != "branch":
                return Pick("extend", "asked", [trace.trace_id], said)
        base = await self.experiments.base_above([node.experiment_id])
        return Pick("branch", "asked", fields=said | parents_named([node], base))

    async def _merge(self, wish: Wish, forest: Forest, tag: Tag, policy: Policy, said: Said) -> Pick:
        """Into the first of the traces whose nodes are brought together; the others end if it is kept."""
        live = {t.trace_id: t for t in forest.growing if t.status == "live"}
        if wish.into is not None and wish.into not in live:
            raise ended(wish.into, (await self.traces.get(wish.tag, wish.into)).status)
        bases = await self._bases(live.values())
        traces, nodes = await self._sources(wish, live, bases, tag, policy)
        grows = [t for t in traces if t.trace_id in live]
        into = wish.into or next((t.trace_id for t in grows), None)
        if into is None:
            raise ended(traces[0].trace_id, traces[0].status) if traces else rootless(nodes)
        best = next(iter(in_order([live[into], *grows], bases, tag.direction)), None)
        said = said | {
            "reason": f"{wish.selector}: brings {', '.join(e.experiment_id for e in nodes)} together"
        }
        tip = live[into].tip
        parents = nodes
        if wish.selector == "near_miss" and tip is not None and tip not in {e.experiment_id for e in nodes}:
            parents = [await self.experiments.get(tip), *nodes]  # what goes on from it descends from it
        by_bases = wish.selector in ("explicit", "best_base")
        combines = [t.base for t in traces] if by_bases else [e.experiment_id for e in nodes]
        return Pick(
            "merge",
            "asked",
            [into],
            {
                **said,
                **parents_named(parents, bases[best.base] if best and best.base else None),
                "sources": {t.trace_id: t.tip for t in grows if t.trace_id != into},
                "combines": combines,
            },
        )

    async def _sources(
        self,
        wish: Wish,
        live: Mapping[str, Trace],
        bases: Mapping[str, Experiment],
        tag: Tag,
        policy: Policy,
    ) -> tuple[list[Trace], list[Experiment]]:
        """The traces that a merge brings together, and the nodes that are its parents."""
        match wish.selector:
            case "explicit":
                named = [await self.traces.get(wish.tag, name) for name in dict.fromkeys(wish.sources)]
                for trace in named:
                    if trace.status != "live":
                        raise ended(trace.trace_id, trace.status)
                traces = named
                if len({t.base for t in traces if t.base is not None}) < 2:
                    raise one_base(t.base for t in traces)
            case "best_base":
                traces = by_best_base(list(live.values()), bases, tag.direction)
            case "near_miss":
                nodes = await self._near_pair(tag, policy, None if wish.into else live)
                return await self.traces.many([e.trace_id for e in nodes if e.trace_id]), nodes
            case "nodes":  # those that were made before there were traces stand on the tag's own line
                nodes = list(wish.parents)
                if len(nodes) < 2:
                    raise one_base(e.experiment_id for e in nodes)
                names = list(dict.fromkeys(e.trace_id for e in nodes if e.trace_id is not None))
                return await self.traces.many(names or [trace_id_of(wish.tag, OWN_LINE)]), nodes
        return traces, await self.experiments.many([t.tip for t in traces if t.tip is not None])

    async def _bases(self, traces: Iterable[Trace]) -> dict[str, Experiment]:
        names = sorted({t.base for t in traces if t.base is not None})
        return {e.experiment_id: e for e in await self.experiments.many(names)}

    async def _near_pair(self, tag: Tag, policy: Policy, growing: Collection[str] | None) -> list[Experiment]:
        best = await self.experiments.best(tag.name)
        if best is None:
            return near_pair([], [])
        band = near_band(best.val_bpb, tag.direction, policy.near_miss_margin)
        near, _ = await self.experiments.near_misses(tag.name, *band, limit=NEAR_READ)
        return near_pair(near, await self.experiments.parents(tag.name, COMBINED_READ), growing)


def _own_line(wish: Wish, tag: Tag, said: Said) -> Pick:
    """In single mode: the one trace, which follows the tag."""
    own = trace_id_of(tag.name, OWN_LINE)
    if wish.intent not in ("auto", "extend") or wish.trace_id not in (None, own) or wish.parents:
        raise single_mode(tag.name)
    return Pick("extend", "turn", [own], said | {"reason": "the tag has one trace, which follows the tag"})


def _in_turn(wish: Wish, rules: TracePolicy, scheduler: TraceScheduler, forest: Forest, said: Said) -> Pick:
    """The scheduler's order of the traces that grow."""
    if wish.intent == "extend" and not forest.growing:
        raise Conflict(
            f"{wish.tag!r} has no trace to extend",
            hint="open one with intent auto or new_root",
            fields={"code": "no_trace"},
        )
    name = rules.scheduler
    params = checked_params(name, scheduler, rules.scheduler_params)
    live = [t for t in forest.growing if t.status == "live"]
    ranked = ranking(name, scheduler, forest_of(forest, live, params))
    return Pick(
        "extend",
        "auto" if wish.intent == "auto" else "turn",
        [r.trace_id for r in ranked],
        {
            **said,
            "scheduler": name,
            "scores": {r.trace_id: r.score for r in ranked if r.score is not None} or None,
            "reason": f"{name} put it first of the traces that were free",
        },
    )


def single_mode(tag: str) -> Conflict:
    """There is nothing to choose from."""
    return Conflict(
        f"{tag!r} has one trace: its traces.mode is single",
        hint="leave intent, trace_id and parent_ids out, or have an operator set the mode to multi"
        " with POST /api/trace/configure",
        fields={"code": "single_mode"},
    )


def busy(trace_id: str, retry_after: float) -> Conflict:
    """A trace has as many open selections as it may have."""
    return Conflict(
        f"{trace_id} is busy: as many experiments as it may have at once are being made from it",
        hint="wait for it (wait up to 50 seconds), or leave trace_id out and take the next free trace",
        retry_after=retry_after,
        fields={"code": "busy_trace"},
    )


def rootless(nodes: Sequence[Experiment]) -> Conflict:
    """No trace holds what is to be merged."""
    return Conflict(
        f"no trace that grows holds {', '.join(e.experiment_id for e in nodes)}",
        hint="build on one of them alone with parent_ids: that opens a trace",
        fields={"code": "no_trace"},
    )


def ended(trace_id: str, status: str | None) -> Conflict:
    """A trace grows no more, or has nothing yet that others could be merged with."""
    if status == "pending":
        return Conflict(
            f"{trace_id} is pending: its first experiment is not finished",
            hint="merge it when POST /api/trace/list shows it live, or merge other traces",
            fields={"code": "pending_trace", "trace_status": status},
        )
    return Conflict(
        f"{trace_id} is {status or 'gone'}: it is selected no more",
        hint="take another trace, branch from one of its nodes with parent_ids, or reopen it with"
        " POST /api/trace/reopen",
        fields={"code": "closed_trace", "trace_status": status},
    )


def request_key(function: str, request: Any, call: Call) -> RequestKey | None:
    """What a repeated request of this function is known by."""
    given = call.key(request.request_id)
    if given is None:
        return None
    return RequestKey(hashlib.sha256(f"{function}|{given}".encode()).hexdigest(), digest_of(request))


def _hint(why: Why, tag: Tag) -> str:
    match why:
        case "paused" | "budget":
            return obstacle(tag) or "The tag has no room for a run now: ask again."
        case "no_slot":
            return (
                "Every slot is taken: ask again, and keep no idea ready for a context that will have changed."
            )
        case "all_busy":
            return "Every trace is being extended: ask again when a result is in."
