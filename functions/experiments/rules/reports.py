"""Which reports about an experiment count, and errors for requests about a finished one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from functions.kernel.rules.access import Caller
from functions.pool.rules.leases import was_renewed_to_its_end
from state.errors import Conflict, Forbidden, Invalid
from state.records import OPEN, Experiment, Gpu, Score, Tag

MOST_RETESTS = 100
"""Of one experiment."""


def replayed(stored: Mapping[str, Any] | None, op: str, digest: str) -> dict[str, Any] | None:
    """The first answer to this very report; None: it is new."""
    if stored is None or stored["op"] != op or stored["digest"] != digest:
        return None
    return dict(stored["answer"])


def is_evidence(experiment: Experiment, attempt: int | None) -> bool:
    """Whether a late report is kept as evidence: its attempt existed."""
    return attempt is not None and 1 <= attempt <= experiment.attempt


def check_open(experiment: Experiment, attempt: int | None, fence: int | None) -> None:
    """Refuse a report on a finished experiment or on another attempt than the current one.

    An agent that trains by itself reports on `registered`. A late report on `lost` counts if no worker tried.

    Raises:
        Conflict: with the status found.
    """
    e = experiment
    if e.worker_id is not None:
        raise Conflict(
            f"{e.experiment_id} is a swarm's run: {e.worker_id} reports on it",
            hint="its worker sends POST /result; an operator stops it with DELETE /runs/{run_id}",
            fields={"experiment_status": e.status},
        )
    if e.status not in OPEN and not (e.status == "lost" and e.attempt == 0):
        raise already_finished(e, f"{outcome_of(e)}; {REGISTER}")
    if attempt is not None and attempt > e.attempt:
        raise Conflict(
            f"{e.experiment_id} has no attempt {attempt}: its newest is {e.attempt}",
            hint="report with the attempt and the fence of the lease; an agent that trains by itself sends neither",
            fields={"experiment_status": e.status, "attempt": e.attempt},
        )
    if attempt is not None and attempt != e.attempt:
        raise _too_late(
            e, f"attempt {attempt} of {e.experiment_id} is over: attempt {e.attempt} is {e.status}"
        )
    if fence is not None and fence != e.fence:
        raise _too_late(e, f"fence {fence} of {e.experiment_id} is old: the lease is another's")
    if e.status in ("queued", "leased") or (e.status == "running" and fence is None):
        raise Conflict(
            f"{e.experiment_id} is {e.status}: a worker reports on it",
            hint=f"wait for it with GET /api/experiment/{e.experiment_id}/wait, or stop it first",
            fields={"experiment_status": e.status},
        )


def check_in_time(e: Experiment, gpu: Gpu | None, now: float) -> None:
    """Raise Conflict for the result of a run past its deadline, whose lease the next sweep ends."""
    if gpu is None or e.attempt == 0 or (gpu.holder, gpu.fence) != (e.experiment_id, e.fence):
        return
    if now >= (gpu.lease_expires_at or 0.0) and was_renewed_to_its_end(gpu, e):
        past = f"attempt {e.attempt} of {e.experiment_id} is past its time limit and the lab's grace"
        raise _too_late(e, past, "; end runs at their timeout_s")


def _too_late(e: Experiment, detail: str, remedy: str = "") -> Conflict:
    return Conflict(
        detail,
        hint=f"its result was kept as evidence and does not count{remedy}",
        fields={"experiment_status": e.status, "attempt": e.attempt},
    )


def check_repeatable(e: Experiment) -> None:
    """Raise Conflict for a retest of a run without a value, or with MOST_RETESTS retests."""
    if e.retest_of is not None or e.val_bpb is None or e.status not in ("keep", "discard"):
        raise Conflict(
            f"{e.experiment_id} is {'a retest itself' if e.retest_of else e.status}",
            hint=f"run {e.retest_of} again"
            if e.retest_of
            else "what was kept or discarded can be run again; a crash is mended and registered anew",
            fields={"experiment_status": e.status},
        )
    if e.retests >= MOST_RETESTS:
        raise Conflict(
            f"{e.experiment_id} was run again {MOST_RETESTS} times",
            hint=f"GET /api/experiment/{e.experiment_id} shows what it measured",
        )


def check_score(score: Score, caller: Caller, e: Experiment, tag: Tag) -> None:
    """Refuse a trusted score from anyone but the lab's workers, and a reported one where the evaluator measures.

    Raises:
        Forbidden: the caller is no worker of the lab. Invalid: nothing measured it, or the evaluator should have.
    """
    if score == "reported":
        if e.attempt > 0 and tag.evaluator_command is not None:
            raise Invalid(
                f"the score of {tag.name!r} is what its evaluator measures, not what a run prints",
                hint="serve it with a worker that runs evaluator commands: ./nightjar worker of this version",
            )
        return
    if not caller.may_do_all and not caller.is_worker:
        raise Forbidden(
            f"only the lab's workers have a score measured; {caller.described}",
            hint="leave score and reported out: the value counts as reported",
        )
    if tag.evaluator_command is None:
        raise Invalid(
            f"the tag {tag.name!r} has no evaluator command, so nothing can have measured this score",
            hint="leave score out, or open another tag with evaluator_command (operator)",
        )
    if e.attempt == 0:
        raise Invalid(
            f"{e.experiment_id} was not trained by a worker, so nothing can have measured this score",
            hint="leave score out: the value is a claim until the lab has run the code",
        )


REGISTER = "register a new experiment to try again"


def already_finished(e: Experiment, hint: str | None = None) -> Conflict:
    """The experiment has its final status. The default hint shows where the outcome is."""
    return Conflict(
        f"{e.experiment_id} is already finished: {e.status}",
        hint=hint or outcome_of(e),
        fields={"experiment_status": e.status},
    )


def outcome_of(e: Experiment) -> str:
    """Where the outcome is shown."""
    return f"GET /api/experiment/{e.experiment_id} shows the outcome"
