"""pool::sweep finds what has died: silent GPUs, leases that ran out, agents that never reported."""

from __future__ import annotations

from functions.contract import Command, Every, Response, function
from functions.rules.pool.broken_lease import broken
from functions.rules.pool.health import is_stale
from state.experiments import Experiments
from state.policies import Policies
from state.pool import Pool
from state.settings import Settings


class Sweep(Command):
    """Nothing to say."""


class Swept(Response):
    offline: list[str]
    leases_ended: list[str]
    """GPUs whose lease was ended."""
    trials: list[str]
    """GPUs that may try one run, after so many crashes in a row that they were taken out."""
    experiments: dict[str, str]
    """What became of experiments: queued, lost or stopped."""


@function("pool::sweep", Every("sweep_s"), role="operator", writes=True)
async def sweep(
    request: Sweep, pool: Pool, experiments: Experiments, policies: Policies, settings: Settings
) -> Swept:
    """Write down who is gone and send their experiments back to the queue; safe to run twice."""
    if await pool.begin_sweep(settings.stale_s / 2 + settings.sweep_s, settings.stale_s):
        return Swept(offline=[], leases_ended=[], trials=[], experiments={})
    now = await pool.now()
    offline: list[str] = []
    ended: list[str] = []
    trials: list[str] = []
    became: dict[str, str] = {}
    expired = set(await pool.expired())
    for gpu in await pool.all():
        if gpu.tripped_until is not None and await pool.allow_trial(gpu.gpu_id):
            trials.append(gpu.gpu_id)
        silent = is_stale(gpu.heartbeat_at, now, settings.stale_s)
        if gpu.holder is not None and (silent or gpu.gpu_id in expired):
            e = await experiments.get(gpu.holder)
            policy, _ = await policies.get(e.tag)
            lease = broken(
                gpu,
                e,
                "silent" if silent else "expired",
                reason="its worker fell silent" if silent else "its lease ran out",
                max_attempts=policy.max_attempts,
            )
            status = await experiments.break_lease(lease, stale_s=settings.stale_s)
            if status is not None:
                ended.append(gpu.gpu_id)
                offline += [gpu.gpu_id] if silent else []
                became |= {e.experiment_id: status} if status else {}
        elif silent and not gpu.offline:
            flagged = await pool.flag(
                gpu.gpu_id, set_={"offline": True}, reason="silent", silent_for_s=settings.stale_s
            )
            offline += [gpu.gpu_id] if flagged is not None else []
    became |= await experiments.close_forgotten()
    return Swept(offline=offline, leases_ended=ended, trials=trials, experiments=became)
