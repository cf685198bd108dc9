"""invocation::get shows what became of a call that was answered 202."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from functions.contract import Http, Request, Response, function
from functions.views.experiments import ExperimentView, view
from state.errors import NotFound
from state.experiments import Experiments
from state.records import OPEN


class ReadInvocation(Request):
    invocation_id: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.[0-9]{1,6}$")
    ] = Field(
        description="an experiment and its attempt, as submit and train answer it", examples=["mar11-47.1"]
    )


class Invocation(Response):
    invocation_id: str
    function: str
    status: str
    """The attempt's status: queued, leased, running, or how it ended."""
    finished: bool
    experiment_id: str
    attempt: dict[str, str]
    result: ExperimentView | None


@function("invocation::get", Http("GET", "/api/invocation/{invocation_id}"), role="viewer")
async def get(request: ReadInvocation, experiments: Experiments) -> Invocation:
    """Status and result of one attempt at training; its id is `<experiment>.<attempt>`."""
    experiment_id, _, number = request.invocation_id.rpartition(".")
    e, attempts = await experiments.with_attempts(experiment_id)
    attempt = attempts.get(int(number))
    if attempt is None:
        raise NotFound(f"{experiment_id} has no attempt {number}", hint=f"its newest attempt is {e.attempt}")
    last = int(number) == e.attempt
    finished = not last or e.status not in OPEN
    return Invocation(
        invocation_id=request.invocation_id,
        function="gpu::train",
        status=attempt.get("status", e.status),
        finished=finished,
        experiment_id=experiment_id,
        attempt=attempt,
        result=view(e) if last and finished else None,
    )
