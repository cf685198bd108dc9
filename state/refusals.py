"""Refusals that stores and rules give alike; values only, no IO."""

from __future__ import annotations

from state.errors import Conflict, Invalid, NotFound
from state.records import Selection


def no_gpu(gpu_id: str) -> NotFound:
    """The GPU is not registered."""
    return NotFound(f"there is no GPU {gpu_id!r}", hint="register it with POST /api/pool/register")


def no_selection(selection_id: str) -> NotFound:
    """There is no such selection, or no longer."""
    return NotFound(
        f"there is no selection {selection_id!r}",
        hint="a selection that is over is forgotten after a day: POST /api/trace/select makes a new one",
    )


def other_tag(s: Selection) -> Invalid:
    """The selection is another tag's than the one asked about."""
    return Invalid(f"{s.selection_id} is a selection of {s.tag!r}", hint="ask with its own tag")


def over(s: Selection) -> Conflict:
    """A selection is no longer open."""
    what = {
        "committed": f"{s.experiment_id} was committed with it",
        "released": "it was released",
        "expired": "its lease ended before an experiment was registered",
    }
    return Conflict(
        f"the selection {s.selection_id} is over: {what.get(s.status, 'its lease has ended')}",
        hint="make a new one with POST /api/trace/select; a long search for an idea renews its selection"
        " with POST /api/trace/renew",
        fields={
            "code": f"selection_{'expired' if s.status == 'open' else s.status}",
            "experiment_id": s.experiment_id,
        },
    )


def unknown_trace(tag: str, trace_id: str) -> NotFound:
    """The tag has no such trace."""
    return NotFound(
        f"{tag!r} has no trace {trace_id!r}", hint="POST /api/trace/list names them: <tag>-t<number>"
    )
