"""Refusals that stores and rules give alike; values only, no IO."""

from __future__ import annotations

from collections.abc import Sequence

from state.errors import Conflict, Invalid, NotFound
from state.records import GpuState, Selection


def unknown_tag(tag: str) -> NotFound:
    return NotFound(f"there is no tag {tag!r}", hint="create it with POST /api/experiment/setup")


def no_experiment(experiment_id: str) -> NotFound:
    return NotFound(
        f"there is no experiment {experiment_id!r}",
        hint="ids look like <tag>-<n>; POST /api/experiment/history lists a tag's experiments",
    )


def no_gpu(gpu_id: str) -> NotFound:
    return NotFound(f"there is no GPU {gpu_id!r}", hint="register it with POST /api/pool/register")


def served_by_another(gpu_id: str) -> Conflict:
    """The GPU has a worker already."""
    return Conflict(
        f"another worker serves {gpu_id}",
        hint="one at a time may: end that worker, or name other slots with --gpu and --cpu",
        fields={"code": "served"},
    )


def agents_own(gpu_id: str) -> Conflict:
    """The GPU is an agent's own: no worker of the lab trains there."""
    return Conflict(
        f"{gpu_id} is an agent's own GPU: the lab trains nothing there",
        hint="its agent registers an experiment, acquires that GPU and trains it; for any of the lab's GPUs give this"
        " one back with POST /api/pool/release, and leave gpu_id out",
    )


CONFINED_ONLY = (
    "its tag has a hidden split, and runs only on the lab's own workers in the isolation landlock or bwrap, because a"
    " machine's owner can read what his machine scores"
)


def check_pinned(gpu_id: str | None, slots: Sequence[GpuState], *, is_confined: bool = False) -> None:
    """Refuse to wait for a GPU that would not run it.

    Raises:
        NotFound: no such GPU. Conflict: an agent's own, or not confined where the tag's hidden split asks for it.
    """
    if gpu_id is None:
        return
    slot = next((slot for slot in slots if slot.gpu_id == gpu_id), None)
    if slot is None:
        raise no_gpu(gpu_id)
    if slot.of_agent:
        raise agents_own(gpu_id)
    if is_confined and not slot.is_confined:
        raise Conflict(f"{gpu_id} may not run it: {CONFINED_ONLY}", hint="leave gpu_id out")


def no_hypothesis(hypothesis_id: str, tag: str) -> NotFound:
    """The error for a hypothesis that is not open."""
    return NotFound(
        f"{tag!r} tests no hypothesis {hypothesis_id!r}",
        hint="POST /api/hypothesis/list shows them, and POST /api/hypothesis/propose adds one",
    )


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
