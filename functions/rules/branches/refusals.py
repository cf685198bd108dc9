"""Errors of selections, each with a code and a hint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from state.errors import Conflict


def single_mode(tag: str) -> Conflict:
    """The tag has one trace only, so nothing can be chosen."""
    return Conflict(
        f"{tag!r} has one trace: its traces.mode is single",
        hint="omit intent, trace_id and parent_ids, or have an operator set the mode to multi"
        " with POST /api/trace/configure",
        fields={"code": "single_mode"},
    )


def busy(trace_id: str, retry_after: float) -> Conflict:
    """A trace has as many open selections as it may have."""
    return Conflict(
        f"{trace_id} is busy: it has max_inflight_per_trace open selections",
        hint="wait for it (wait up to 50 seconds), or omit trace_id and take the next free trace",
        retry_after=retry_after,
        fields={"code": "busy_trace"},
    )


def ended(trace_id: str, status: str) -> Conflict:
    """A trace has ended, or has no node yet."""
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
    """A tag has `target_traces` traces already."""
    return Conflict(
        f"{tag!r} has {most} live and pending traces, as many as target_traces allows",
        hint="extend one of them, close one with POST /api/trace/close, or have an operator raise target_traces"
        " with POST /api/trace/configure",
        fields={"code": "no_room", "target_traces": most},
    )


def never_grown(trace_id: str) -> Conflict:
    """A trace without a node cannot be reopened."""
    return Conflict(
        f"{trace_id} has no finished experiment to extend",
        hint="POST /api/trace/select with intent new_root opens another",
    )


def no_trace(tag: str) -> Conflict:
    """There is no trace to extend."""
    return Conflict(
        f"{tag!r} has no trace to extend",
        hint="open one with intent auto or new_root",
        fields={"code": "no_trace"},
    )


def no_parent(tag: str) -> Conflict:
    """There is no experiment to branch from."""
    return Conflict(
        f"{tag!r} has no kept experiment without a trace based on it",
        hint="name one in parent_ids, or open a root with intent new_root",
        fields={"code": "no_parent"},
    )


def rootless(nodes: Sequence[str]) -> Conflict:
    """No growing trace holds the nodes to merge."""
    return Conflict(
        f"no growing trace holds {', '.join(nodes)}",
        hint="build on one of them with parent_ids: that opens a trace",
        fields={"code": "no_trace"},
    )


def one_base(bases: Iterable[str | None]) -> Conflict:
    """A merge needs two different bases."""
    found = sorted({base for base in bases if base is not None})
    have = f"only {found[0]}" if len(found) == 1 else "none"
    return Conflict(
        f"a merge needs two different bases; found {have}",
        hint="name traces with different bases (POST /api/trace/list shows them), or extend this one",
        fields={"code": "one_base"},
    )


def no_near_misses() -> Conflict:
    """There is no pair of near misses to merge."""
    return Conflict(
        "all pairs of near misses of different traces were combined, or there are none",
        hint="merge by best_base, name the nodes in parent_ids of POST /api/trace/select, or let the traces grow",
        fields={"code": "no_near_misses"},
    )
