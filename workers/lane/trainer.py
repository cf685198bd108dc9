"""The process of one attempt over HTTP: reads it from standard input, trains, hands in the result.

`python -P -m workers.lane.trainer SLOT PARENT`
"""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import sys
from collections.abc import Mapping
from typing import Any

from functions.kernel.process.ending import adopt_orphans
from functions.kernel.process.logs import bound, start_logging
from functions.kernel.process.remote import remote_of
from state import traceparent
from state.ids import named_by
from state.settings import Settings
from workers.attempt.attempted import attempted
from workers.attempt.job import TrainingJob
from workers.attempt.launch import die_with
from workers.attempt.runner import TrainingRunner
from workers.device import HealthSampler
from workers.lane.client import RemoteLab, calling
from workers.lane.lease import CALLED, RemoteLease
from workers.lane.spool import spool_of
from workers.slot import Slot

NEAR_S = 0.5
"""Seconds between two requests to a lab on this machine."""


def job_of(work: Mapping[str, Any]) -> TrainingJob:
    patch = work["patch_base64"]
    same = ("experiment_id", "attempt", "fence", "commit_sha", "base_commit", "config_delta", "evaluator")
    more = ("budget_s", "timeout_s", "seed", "traceparent", "evaluator_files", "evaluator_command")
    guards = ("check", "check_s")
    return TrainingJob(
        **{name: work[name] for name in (*same, *more, *guards)},
        patch=None if patch is None else base64.b64decode(patch),
        splits=work["splits"],
        tick_source=work["tick_source"],
    )


async def train(work: Mapping[str, Any], slot: Slot, settings: Settings, lab: RemoteLab) -> str:
    job = job_of(work)
    async with HealthSampler() as sampler:
        runner = TrainingRunner(slot, settings, lab_identity=slot.mark(settings), sampler=sampler, alone=True)
        lease = RemoteLease(
            lab,
            slot.gpu_id,
            job,
            spool_of(slot, settings),
            lease_s=settings.stale_s,
            every_s=settings.heartbeat_s / 2 if slot.remote else NEAR_S,
        )
        traceparent.current.set(job.traceparent or "")
        _, tag = named_by(job.experiment_id)
        with bound(gpu_id=slot.gpu_id, experiment_id=job.experiment_id, attempt=job.attempt, tag=tag):
            return await attempted(job, lease, runner, str(work["metric"]))


async def from_afar(work: Mapping[str, Any], slot: Slot, settings: Settings) -> None:
    """Train for a lab on another machine."""
    async with calling(remote_of(settings.data_dir), CALLED) as lab:
        await train(work, slot, settings, lab)


def main(argument: str, parent: str) -> int:
    die_with(int(parent))
    adopt_orphans()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # its run finishes when the worker is stopped
    slot, settings = Slot.model_validate_json(argument), Settings()
    start_logging(settings, "trainer")
    if line := sys.stdin.readline():
        asyncio.run(from_afar(json.loads(line), slot, settings))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
