"""swarm::result takes what a swarm's worker measured."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from functions.contract import Call, Command, Http, Response, function
from functions.rules.access import check_worker
from functions.rules.keeps.verdict import check_plausible, is_plausible
from functions.rules.swarm.handing_out import lost, not_run
from functions.rules.swarm.results import (
    GIVEN_BACK,
    NO_CONSTANT,
    RETURNED,
    Sent,
    conditions,
    failed,
    is_failure,
    judged,
    judged_value,
)
from functions.swarm._stores import Stores
from functions.views.swarm_runs import not_of_a_swarm
from state.change import Change
from state.digests import digest_of
from state.errors import Forbidden
from state.facts import RunFacts
from state.ids import ExperimentId, Id

FINAL = ("keep", "discard", "crash", "timeout", "invalid", "retracted", "measured")


class SendResult(Command):
    worker_id: Id = Field(description="who ran it", examples=["h100-3"])
    exp_id: ExperimentId
    config: dict[str, Any] = Field(
        default_factory=dict,
        max_length=1000,
        description="all constants that it ran with; not kept",
        examples=[{"LR": 0.001}],
    )
    config_delta: dict[str, Any] = Field(
        default_factory=dict,
        max_length=1000,
        description="what it was handed out; the lab knows it",
        examples=[{"LR": 0.001}],
    )
    val_bpb: float | None = Field(
        None, description="what it measured; null with an error, or after a stop", examples=[0.9979]
    )
    delta_bpb: float | None = Field(
        None, description="the same less the worker's baseline; the lab computes its own", examples=[-0.01]
    )
    duration_seconds: Annotated[float, Field(ge=0, le=1e9)] = Field(
        description="how long it trained", examples=[300.4]
    )
    cpu_seconds: Annotated[float, Field(ge=0, le=1e9)] | None = Field(
        None, description="CPU seconds of its processes; published workers send none", examples=[290.5]
    )
    hung: bool = Field(
        False, description="whether it hung after it had printed its result; published workers do not say"
    )
    error: Annotated[str, Field(max_length=65536)] | None = Field(
        None,
        description="why there is no value: TIMEOUT, returned (others are to run its config), no such constant"
        " (nor can others), or the log's end",
        examples=["TIMEOUT"],
    )

    @cached_property
    def sent(self) -> Sent:
        """The request as the rule takes it."""
        return Sent(
            self.val_bpb,
            self.error,
            self.duration_seconds,
            self.cpu_seconds,
            self.delta_bpb,
            digest_of(self),
            self.hung,
        )


class TakenResult(Response):
    ok: bool
    total_experiments: int
    """Runs of the swarm that ended with a value, or were stopped."""


@function("swarm::result", Http("POST", "/result"), role="worker", writes=True, keeps_answer=False)
async def result(request: SendResult, call: Call, stores: Stores) -> TakenResult:
    """Send a run's result; its delta is computed here, and a repeated result is counted once."""
    experiments = stores.experiments

    async def taken(change: Change) -> RunFacts:
        run = await experiments.run_facts(change, request.exp_id)
        e = run.experiment
        if e.worker_id is None:
            raise not_of_a_swarm(request.exp_id)
        check_worker(call.caller, e.worker_id)
        check_worker_named(request.worker_id, e.worker_id, e.experiment_id)
        if e.status in FINAL:
            return change.idle(run)
        if e.status == "stopped":
            if request.val_bpb is not None and is_plausible(run.tag.metric, request.val_bpb):
                await experiments.keep_late_value(e, request.val_bpb)
            return change.idle(run)
        error = request.error or ""
        if request.val_bpb is None and (error == RETURNED or error.startswith(NO_CONSTANT)):
            if e.status != "running":
                return change.idle(run)
            ending = lost(e, GIVEN_BACK) if error == RETURNED else not_run(e, error)
            await experiments.finish(change, run, ending)
            return run
        under = conditions(run)
        value = None if is_failure(request.sent) else judged_value(request.sent, run)
        beside = await experiments.comparison(
            change, run, under.key.gpu_class, under.other_key, under.code, value
        )
        if value is None:
            ending = failed(request.sent, run, beside)
        else:
            check_plausible(run.tag.metric, request.val_bpb or 0.0)
            ending = judged(request.sent, run, under, beside)
        await experiments.finish(change, run, ending, beside)
        return run

    run = await experiments.judging(request.exp_id, taken)
    return TakenResult(ok=True, total_experiments=await stores.swarms.results(run.tag.name))


def check_worker_named(said: str, owner: str, run_id: str) -> None:
    """Refuse a result under another worker's name.

    Raises:
        Forbidden: the run is another worker's.
    """
    if said != owner:
        raise Forbidden(
            f"{run_id} was handed out to {owner!r}, not to {said!r}",
            hint="send the worker_id that asked for the run",
        )
