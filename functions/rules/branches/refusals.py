"""Why nothing can be selected: each reason with its code, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from state.errors import Conflict


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


def ended(trace_id: str, status: str) -> Conflict:
    """A trace grows no more, or has nothing yet that others could be merged with."""
    if status == "pending":
        return Conflict(
            f"{trace_id} is pending: its first experiment is not finished",
            hint="merge it when POST /api/trace/list shows it live, or merge other traces",
            fields={"code": "pending_trace", "trace_status": status},
        )
    return Conflict(
        f"{trace_id} is {status}: it is selected no more",
        hint="take another trace, branch from one of its nodes with parent_ids, or reopen it with"
        " POST /api/trace/reopen",
        fields={"code": "closed_trace", "trace_status": status},
    )


def no_room(tag: str, most: int) -> Conflict:
    """A tag has as many traces as it may have."""
    return Conflict(
        f"{tag!r} has the {most} traces that it may have, live and pending ones",
        hint="extend one of them, close one with POST /api/trace/close, or have an operator raise target_traces"
        " with POST /api/trace/configure",
        fields={"code": "no_room", "target_traces": most},
    )


def never_grown(trace_id: str) -> Conflict:
    """A trace without a node cannot go on."""
    return Conflict(
        f"nothing of {trace_id} was ever committed",
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
    """There is nothing to branch from."""
    return Conflict(
        f"{tag!r} has no kept experiment that no trace stands on",
        hint="name one in parent_ids, or open a root with intent new_root",
        fields={"code": "no_parent"},
    )


def rootless(nodes: Sequence[str]) -> Conflict:
    """No trace holds what is to be merged."""
    return Conflict(
        f"no trace that grows holds {', '.join(nodes)}",
        hint="build on one of them alone with parent_ids: that opens a trace",
        fields={"code": "no_trace"},
    )


def one_base(bases: Iterable[str | None]) -> Conflict:
    """There is nothing to bring together."""
    stands_on = sorted({base for base in bases if base is not None})
    standing = f"on {stands_on[0]} alone" if len(stands_on) == 1 else "on nothing that was kept"
    return Conflict(
        f"what is to be merged stands {standing}: a merge takes two bases",
        hint="name traces with different bases (POST /api/trace/list shows them), or extend this one",
        fields={"code": "one_base"},
    )


def no_near_misses() -> Conflict:
    """There is no pair of near misses to merge."""
    return Conflict(
        "there are no two near misses of different traces that were not combined yet",
        hint="merge by best_base, name the nodes in parent_ids of POST /api/trace/select, or let the traces grow",
        fields={"code": "no_near_misses"},
    )
