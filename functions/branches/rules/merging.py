"""Which traces or near misses a merge combines, and errors of selections."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from functions.branches.rules.ancestry import best_of, parents_named
from functions.experiments.rules.verdict import Key
from state.errors import Conflict
from state.ids import OWN_LINE, trace_id_of
from state.records import Direction, Experiment, Trace, score
from state.refusals import unknown_trace
from state.selecting import SelectionFacts, Wish

# -- Errors of selections, each with a code and a hint.


def single_mode(tag: str) -> Conflict:
    return Conflict(
        f"{tag!r} has one trace: its traces.mode is single",
        hint="omit intent, trace_id and parent_ids, or have an operator set the mode to multi"
        " with POST /api/trace/configure",
        fields={"code": "single_mode"},
    )


def busy(trace_id: str, retry_after: float) -> Conflict:
    return Conflict(
        f"{trace_id} is busy: it has max_inflight_per_trace open selections",
        hint="wait for it (wait up to 50 seconds), or omit trace_id and take the next free trace",
        retry_after=retry_after,
        fields={"code": "busy_trace"},
    )


def ended(trace_id: str, status: str) -> Conflict:
    if status == "pending":
        return Conflict(
            f"{trace_id} is pending: its first experiment is not finished",
            hint="merge it when POST /api/trace/list shows it live, or merge other traces",
            fields={"code": "pending_trace", "trace_status": status},
        )
    return Conflict(
        f"{trace_id} is {status}: it cannot be selected",
        hint="take another trace, branch from one of its nodes with parent_ids, or reopen it with"
        " POST /api/trace/reopen",
        fields={"code": "closed_trace", "trace_status": status},
    )


def no_room(tag: str, most: int) -> Conflict:
    return Conflict(
        f"{tag!r} has {most} live and pending traces, as many as target_traces allows",
        hint="extend one of them, close one with POST /api/trace/close, or have an operator raise target_traces"
        " with POST /api/trace/configure",
        fields={"code": "no_room", "target_traces": most},
    )


def one_base(bases: Iterable[str | None]) -> Conflict:
    found = sorted({base for base in bases if base is not None})
    have = f"only {found[0]}" if len(found) == 1 else "none"
    return Conflict(
        f"a merge needs two different bases; found {have}",
        hint="name traces with different bases (POST /api/trace/list shows them), or extend this one",
        fields={"code": "one_base"},
    )


# -- Which traces or near misses a merge combines.


@dataclass(frozen=True)
class MergePlan:
    """The trace that the merged node extends; the other traces end if the node is kept."""

    into: Trace
    fields: Mapping[str, Any]
    """Fields of the selection."""


def merged(wish: Wish, facts: SelectionFacts, main: Key) -> MergePlan:
    """The merge that a wish asks for. Raises Conflict: none, or no trace to extend. NotFound: no such trace."""
    live = {t.trace_id: t for t in facts.forest.live}
    if wish.into is not None and wish.into not in live:
        raise ended(wish.into, named_trace(wish.into, wish, facts).status)
    traces, nodes = _sources(wish, facts, live)
    grows = [t for t in traces if t.trace_id in live]
    name = wish.into or next((t.trace_id for t in grows), None)
    if name is None:
        if traces:
            raise ended(traces[0].trace_id, traces[0].status)
        raise Conflict(
            f"no growing trace holds {', '.join(nodes)}",
            hint="build on one of them with parent_ids: that opens a trace",
            fields={"code": "no_trace"},
        )
    into = live[name]
    parents = nodes
    if wish.selector == "near_miss" and into.tip is not None and into.tip not in nodes:
        parents = [into.tip, *nodes]  # the merged node extends the tip, so the tip is a parent
    by_bases = wish.selector in ("explicit", "best_base")
    fields = {
        **parents_named(parents, best_of(facts.bases.values(), facts.tag.direction, main)),
        **(_best_base([into, *grows], parents, facts) if wish.selector != "nodes" else {}),
        "sources": {t.trace_id: t.tip for t in grows if t.trace_id != name},
        "combines": [t.base for t in traces] if by_bases else nodes,
        "reason": f"{wish.selector}: combines {', '.join(nodes)}",
    }
    return MergePlan(into, fields)


def _sources(wish: Wish, facts: SelectionFacts, live: Mapping[str, Trace]) -> tuple[list[Trace], list[str]]:
    """The traces that a merge combines, and its parents."""
    match wish.selector:
        case "explicit":
            traces = [named_trace(name, wish, facts) for name in dict.fromkeys(wish.sources)]
            for trace in traces:
                if trace.status != "live":
                    raise ended(trace.trace_id, trace.status)
            if len({t.base for t in traces if t.base is not None}) < 2:
                raise one_base(t.base for t in traces)
        case "best_base":
            traces = by_best_base(list(live.values()), facts.values, facts.tag.direction, wish.into)
        case "near_miss":
            pair = near_pair(facts.near, facts.combined, None if wish.into else live)
            grow = [live[e.trace_id] for e in pair if e.trace_id is not None and e.trace_id in live]
            return grow, [e.experiment_id for e in pair]
        case "nodes":
            nodes = list(dict.fromkeys(wish.parent_ids))
            if len(nodes) < 2:
                raise one_base(nodes)
            names = [name for n in nodes if (name := facts.nodes[n].trace_id) is not None]
            # an experiment without a trace is on the tag's own line
            of = dict.fromkeys(names or [trace_id_of(wish.tag, OWN_LINE)])
            return [facts.traces[name] for name in of if name in facts.traces], nodes
    return traces, [t.tip for t in traces if t.tip is not None]


def _best_base(traces: Iterable[Trace], parents: Collection[str], facts: SelectionFacts) -> dict[str, Any]:
    """Fields that name the best base among the traces whose tip is a parent of the merge."""
    above = [trace for trace in traces if trace.tip in parents]
    best = next(iter(in_order(above, facts.values, facts.tag.direction)), None)
    base, commit_sha = (best.base, best.base_commit_sha) if best else (None, None)
    return {"base_experiment_id": base, "base_commit_sha": commit_sha}


def named_trace(name: str, wish: Wish, facts: SelectionFacts) -> Trace:
    """The trace that a wish names. Raises NotFound: the tag has none of this name."""
    found = facts.traces.get(name)
    if found is None or found.tag != wish.tag:
        raise unknown_trace(wish.tag, name)
    return found


def by_best_base(
    traces: Sequence[Trace], values: Mapping[str, float], direction: Direction, into: str | None = None
) -> list[Trace]:
    """The two traces with the best different bases, best first; `into` is one of them. Raises Conflict: no such two.

    `values`: metric of each base.
    """
    for one, other in combinations(in_order(traces, values, direction), 2):
        if one.base != other.base and into in (None, one.trace_id, other.trace_id):
            return [one, other]
    raise one_base(trace.base for trace in traces if into in (None, trace.trace_id))


def in_order(traces: Iterable[Trace], values: Mapping[str, float], direction: Direction) -> list[Trace]:
    """The traces that have a base, best first."""
    valued = [
        (score(values[trace.base], direction), trace.number, trace)
        for trace in traces
        if trace.base is not None and trace.base in values
    ]
    return [trace for *_, trace in sorted(valued, key=lambda each: each[:2])]


def near_pair(
    near: Sequence[Experiment], combined: Iterable[Sequence[str]], growing: Collection[str] | None = None
) -> list[Experiment]:
    """The two best near misses of different traces that were not combined yet. Raises Conflict: no such pair.

    One of them must be in a `growing` trace, which the merge extends. None: the merge extends another trace.
    """
    done = {frozenset(pair) for parents in combined for pair in combinations(parents, 2)}
    for one, other in combinations([e for e in near if e.trace_id is not None], 2):
        apart = one.trace_id != other.trace_id
        goes_on = growing is None or one.trace_id in growing or other.trace_id in growing
        if apart and goes_on and frozenset((one.experiment_id, other.experiment_id)) not in done:
            return [one, other]
    raise Conflict(
        "all pairs of near misses of different traces were combined, or there are none",
        hint="merge by best_base, name the nodes in parent_ids of POST /api/trace/select, or let the traces grow",
        fields={"code": "no_near_misses"},
    )
