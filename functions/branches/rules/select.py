"""The selection that a wish gets in a tag's forest, or the reason to wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from functions.branches.rules.ancestry import check_parents, parents_named
from functions.branches.rules.forest import next_start, replanted, schedulers_view
from functions.branches.rules.merging import ended, merged, named_trace, no_room, single_mode
from functions.branches.rules.schedulers import TraceScheduler, checked_params, ranking, turn_taken
from functions.experiments.rules.verdict import main_key
from functions.pool.rules.health import is_stale
from functions.trust.rules.noise import near_scores
from state.errors import Conflict
from state.ids import OWN_LINE, trace_id_of
from state.records import SelectionKind, Tag, Trace
from state.selecting import Needs, SelectionDecision, SelectionFacts, SelectionWait, Wish

RETRY_S = (1.0, 15.0)
"""Shortest and longest `retry_after`, in seconds."""


@dataclass(frozen=True)
class _Pick:
    """What to select, if there is a slot."""

    kind: SelectionKind
    fields: Mapping[str, Any]
    candidates: Sequence[Trace] = ()
    """Traces to extend, most wanted first; empty if a trace is opened."""
    by_room: bool = False
    """Whether it depends on the number of traces; the move then checks that number."""
    origin: str | None = None
    tip: str | None = None


def needed(wish: Wish, facts: SelectionFacts) -> Needs:
    rules = facts.policy.traces
    needs = Needs(gpus=rules.max_parallel is None)
    if rules.mode == "single":
        return needs
    if wish.intent == "merge":
        return _needed_to_merge(wish, facts, needs)
    if wish.parent_ids or wish.trace_id is not None:
        return needs
    if _opens(wish, facts):
        return replace(needs, kept=_branches(wish, facts))
    return replace(needs, scheduler=rules.scheduler)


def _needed_to_merge(wish: Wish, facts: SelectionFacts, needs: Needs) -> Needs:
    needs = replace(needs, values=sorted({t.base for t in facts.forest.live if t.base is not None}))
    if wish.selector == "nodes":
        names = {e.trace_id for e in facts.nodes.values() if e.trace_id is not None}
        return replace(needs, traces=sorted(names) or [trace_id_of(wish.tag, OWN_LINE)])
    if wish.selector == "near_miss" and facts.best is not None:
        near = near_scores(facts.best.val_bpb, facts.tag.direction, facts.policy, facts.noise)
        return replace(needs, near=near)
    return needs


def decide(
    wish: Wish, facts: SelectionFacts, scheduler: TraceScheduler | None, stale_s: float
) -> SelectionDecision | SelectionWait:
    """The selection to make, or the reason to wait.

    `scheduler` is the one that `needed` names; GPUs that are silent for `stale_s` seconds do not count.

    Raises:
        Conflict: the wish cannot be fulfilled; `code` says why. Invalid, NotFound: it names an unknown experiment or
        trace.
    """
    check_parents(wish.tag, wish.parent_ids, facts.nodes)
    rules, forest = facts.policy.traces, facts.forest
    pick = _own_line(wish) if rules.mode == "single" else _pick(wish, facts, scheduler)
    most_open = rules.max_parallel or max(1, _live_gpus(facts, stale_s))  # an agent may train by itself
    if (wait := _without_slot(facts, most_open)) is not None:
        return wait
    decision = SelectionDecision(
        tag=wish.tag,
        kind=pick.kind,
        trace_id=trace_id_of(wish.tag, OWN_LINE),
        fields={"agent": wish.agent, "owner": wish.owner, **pick.fields},
        lease_s=rules.lease_ttl_s,
        policy_version=facts.policy_version,
        most_open=most_open,
    )
    if rules.mode == "single":
        return decision
    decision = replace(decision, select_seq=forest.select_seq, places=forest.places if pick.by_room else None)
    if pick.kind in ("new_root", "branch"):
        return _opening(decision, pick, facts)
    return _extending(decision, pick, facts)


# -- what to select


def _own_line(wish: Wish) -> _Pick:
    """In single mode: the tag's one trace."""
    own = trace_id_of(wish.tag, OWN_LINE)
    if wish.intent not in ("auto", "extend") or wish.trace_id not in (None, own) or wish.parent_ids:
        raise single_mode(wish.tag)
    return _Pick("extend", {"reason": "the tag has one trace, which follows the tag"})


def _pick(wish: Wish, facts: SelectionFacts, scheduler: TraceScheduler | None) -> _Pick:
    if wish.intent == "merge":
        merge = merged(wish, facts, main_key(facts.tag))
        return _Pick("merge", merge.fields, [merge.into], tip=merge.into.tip)
    if wish.parent_ids:
        return _from_node(wish, facts)
    if wish.trace_id is not None:
        named = named_trace(wish.trace_id, wish, facts)
        return _Pick("extend", {"reason": "its caller named the trace"}, [named])
    if scheduler is None:
        return _open(wish, facts)
    return _in_turn(wish, facts, scheduler)


def _opens(wish: Wish, facts: SelectionFacts) -> bool:
    has_room = facts.forest.places < facts.policy.traces.target_traces
    return wish.intent in ("new_root", "branch") or (wish.intent == "auto" and has_room)


def _branches(wish: Wish, facts: SelectionFacts) -> bool:
    """Whether a new trace starts from what was kept, not from a root."""
    return wish.intent == "branch" or (wish.intent == "auto" and replanted(facts.forest))


def _open(wish: Wish, facts: SelectionFacts) -> _Pick:
    """A new trace: a branch from a keep if asked for or if a trace has ended, else a root."""
    by_room = wish.intent == "auto"
    tag = facts.tag
    stood_on = facts.stood_on.union(n for t in facts.forest.growing for n in (t.base, t.origin) if n)
    node = next_start((e for e in facts.kept if not e.outdated), stood_on, tag.direction, main_key(tag))
    if node is not None and _branches(wish, facts):
        reason = f"there is room for a trace, and no trace is based on {node.experiment_id}, a keep"
        fields = {"reason": reason, **parents_named([node.experiment_id], node)}
        return _Pick("branch", fields, by_room=by_room, origin=node.experiment_id)
    if wish.intent == "branch":
        raise Conflict(
            f"{wish.tag!r} has no kept experiment without a trace based on it",
            hint="name one in parent_ids, or open a root with intent new_root",
            fields={"code": "no_parent"},
        )
    reason = "there is room for one more trace" if by_room else "its caller asked for a root"
    return _Pick("new_root", {"reason": reason}, by_room=by_room)


def _from_node(wish: Wish, facts: SelectionFacts) -> _Pick:
    """From the node that the caller named: extend its trace if it is the tip, else open a trace."""
    [node] = set(wish.parent_ids)
    reason = {"reason": f"its caller named {node}"}
    for trace in facts.forest.growing:
        if trace.tip == node and wish.intent != "branch":
            return _Pick("extend", reason, [trace])
    return _Pick("branch", {**reason, **parents_named([node], facts.bases.get(node))}, origin=node)


def _in_turn(wish: Wish, facts: SelectionFacts, scheduler: TraceScheduler) -> _Pick:
    """The live traces in the scheduler's order."""
    if wish.intent == "extend" and not facts.forest.growing:
        raise Conflict(
            f"{wish.tag!r} has no trace to extend",
            hint="open one with intent auto or new_root",
            fields={"code": "no_trace"},
        )
    rules, live = facts.policy.traces, facts.forest.live
    params = checked_params(rules.scheduler, scheduler, rules.scheduler_params)
    ranked = ranking(rules.scheduler, scheduler, schedulers_view(facts.forest, live, params))
    by_id = {t.trace_id: t for t in live}
    fields = {
        "scheduler": rules.scheduler,
        "scores": {r.trace_id: r.score for r in ranked if r.score is not None} or None,
        "reason": f"{rules.scheduler} ranked it first of the free traces",
    }
    return _Pick("extend", fields, [by_id[r.trace_id] for r in ranked], by_room=wish.intent == "auto")


# -- whether there is a slot for it


def _without_slot(facts: SelectionFacts, most_open: int) -> SelectionWait | None:
    """Why nothing of the tag can be selected now; None if something can."""
    if facts.tag.paused_at is not None:
        return SelectionWait("paused", RETRY_S[1])
    if not _affords_run(facts.tag, facts.policy.budgets.base_s):
        return SelectionWait("budget", RETRY_S[1])
    if facts.open_selections >= most_open:
        return SelectionWait("no_slot", _retry_after(facts))
    return None


def _opening(decision: SelectionDecision, pick: _Pick, facts: SelectionFacts) -> SelectionDecision:
    forest, most = facts.forest, facts.policy.traces.target_traces
    if forest.places >= most:
        raise no_room(decision.tag, most)
    number = forest.last_trace + 1
    return replace(
        decision,
        trace_id=trace_id_of(decision.tag, number),
        opens=number,
        origin=pick.origin,
        places=forest.places,
        turn=(forest.virtual_time + 1, forest.virtual_time),
    )


def _extending(
    decision: SelectionDecision, pick: _Pick, facts: SelectionFacts
) -> SelectionDecision | SelectionWait:
    """The decision, with the first free candidate."""
    most = facts.policy.traces.max_inflight_per_trace
    for trace in pick.candidates:
        if trace.status not in ("live", "pending"):
            raise ended(trace.trace_id, trace.status)
        if trace.status == "live" and trace.in_flight < most:
            return replace(
                decision,
                trace_id=trace.trace_id,
                turn=turn_taken(trace, facts.forest),
                tip=pick.tip,
                most_in_flight=most,
            )
    return SelectionWait("all_busy", _retry_after(facts))


def _retry_after(facts: SelectionFacts) -> float:
    least, most = RETRY_S
    return most if facts.free_at is None else min(max(facts.free_at - facts.now, least), most)


def _live_gpus(facts: SelectionFacts, stale_s: float) -> int:
    return sum(
        status != "offline" and not is_stale(heard_at, facts.now, stale_s) for status, heard_at in facts.gpus
    )


def _affords_run(tag: Tag, run_s: float) -> bool:
    """Whether the tag's budget has room for one more run of `run_s` seconds, to the millisecond."""
    has_runs = tag.budget_runs is None or tag.spent_runs + tag.reserved_runs + 1 <= tag.budget_runs
    spent_s = tag.spent_gpu_seconds + tag.reserved_gpu_seconds + run_s
    return has_runs and (tag.budget_gpu_seconds is None or spent_s < tag.budget_gpu_seconds + 0.0005)
