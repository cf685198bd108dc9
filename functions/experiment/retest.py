"""experiment::retest runs an experiment's code once more: evidence for it, on another seed."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Call, Command, Response, function
from functions.experiment.settle import retest as queued_retest
from functions.experiment.settle import seed_for
from functions.rules.access import check_own
from functions.views.hints import next_step
from state.errors import Conflict
from state.experiments import Experiments
from state.ids import Id
from state.policies import Policies

MOST = 100
"""Retests of one experiment."""


class Retest(Command):
    experiment_id: Id
    train: bool = Field(True, description="false: its agent trains it itself, on the seed of the answer")


class Begun(Response):
    experiment_id: str
    retest_id: str
    seed: int
    status: str
    wait_url: str
    next: str


@function("experiment::retest", role="agent", writes=True)
async def retest(request: Retest, call: Call, experiments: Experiments, policies: Policies) -> Begun:
    """Run the same code on its next fixed seed; its value is evidence, and counts nowhere as a new experiment."""
    while True:
        e = await experiments.get(request.experiment_id)
        check_own(call.caller, e.owner, e.experiment_id)
        if e.retest_of is not None or e.val_bpb is None or e.status not in ("keep", "discard"):
            raise Conflict(
                f"{e.experiment_id} is {'a retest itself' if e.retest_of else e.status}",
                hint=f"run {e.retest_of} again"
                if e.retest_of
                else "what was kept or discarded can be run again; a crash is mended and registered anew",
                fields={"experiment_status": e.status},
            )
        if e.retests >= MOST:
            raise Conflict(
                f"{e.experiment_id} was run again {MOST} times",
                hint=f"GET /api/experiment/{e.experiment_id} shows what it measured",
            )
        if request.train:
            policy, _ = await policies.get(e.tag)
            begun = await queued_retest(e, policy, experiments)
        else:
            seed = await seed_for(e, experiments)
            begun = await experiments.begin_retest(e, seed, reserve_s=None, agent=e.agent or "agent")
        if begun is not None:
            now = await experiments.get(begun.experiment_id)
            return Begun(
                experiment_id=e.experiment_id,
                retest_id=now.experiment_id,
                seed=now.seed or 0,
                status=now.status,
                wait_url=f"/api/experiment/{now.experiment_id}/wait",
                next=next_step(now, None),
            )
