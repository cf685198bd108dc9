"""experiment::submit registers an experiment and has it trained."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from pydantic import Field

from functions.contract import MIB, Call, Category, Line, Response, function
from functions.experiment.register import Descent, Register, registration
from functions.views.hints import Queue
from state.experiments import Experiments
from state.ids import GpuId, Id, Sha, Tag
from state.policies import Policies
from state.pool import Pool
from state.tags import Tags
from state.traces import Traces


class Submit(Descent):
    tag: Tag
    hypothesis: Line
    category: Category
    commit_sha: Sha
    diff_summary: Line
    description: Line | None = None
    diff: Annotated[str, Field(max_length=4 * MIB)] | None = None
    gpu_id: GpuId | None = None
    config_delta: dict[str, Any] | None = None
    agent: Id | None = None
    seed: int | None = None
    priority: int = Field(0, ge=0, le=7, description="higher first")
    timeout_s: Annotated[float, Field(gt=0, le=7 * 86400)] | None = None


class Submitted(Response):
    experiment_id: str
    status: str
    number: int
    duplicate_of: str | None
    attempt: int
    invocation_id: str
    status_url: str
    wait_url: str
    queue: Queue
    next: str
    hint: str | None = None
    """Why a run of its tag would not begin now."""


@function("experiment::submit", role="agent", writes=True, body_limit=6 * MIB)
async def submit(
    request: Submit,
    call: Call,
    tags: Tags,
    policies: Policies,
    experiments: Experiments,
    traces: Traces,
    pool: Pool,
) -> Submitted:
    """Register, then queue for training; the answer names the URL to wait at."""
    if request.gpu_id is not None:
        await pool.get(request.gpu_id)  # nothing is registered for a GPU that does not exist
    registered = await registration(
        _registration(request, call), call, tags, policies, experiments, traces, to_train=True
    )
    accepted = await call.invoke(
        "gpu::train",
        {
            "experiment_id": registered.experiment_id,
            "priority": request.priority,
            "timeout_s": request.timeout_s,
        },
    )
    return Submitted(
        experiment_id=registered.experiment_id,
        status=accepted["status"],
        number=registered.number,
        duplicate_of=registered.duplicate_of,
        attempt=accepted["attempt"],
        invocation_id=accepted["invocation_id"],
        status_url=accepted["status_url"],
        wait_url=f"/api/experiment/{registered.experiment_id}/wait",
        queue=accepted["queue"],
        next=accepted["next"],
        hint=registered.hint,
    )


def _registration(request: Submit, call: Call) -> Register:
    """What is registered, under a request id of its own: a key that came with a submit belongs to the submit."""
    body = request.model_dump(exclude={"priority", "timeout_s", "request_id"})
    if given := call.key(request.request_id):
        body["request_id"] = f"submit-{hashlib.sha256(given.encode()).hexdigest()}"
    return Register.model_validate(body)
