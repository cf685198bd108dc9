"""The process of one attempt over HTTP: reads it from standard input, trains, hands in the result.

`python -P -m workers.trainer SLOT PARENT`. The lease of the attempt is renewed at most every `every_s` seconds.
"""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import sys
from collections.abc import Mapping
from typing import Any

from functions.kernel.lanes import Extension, Order, Source
from functions.kernel.process.ending import adopt_orphans
from functions.kernel.process.logs import bound, start_logging
from functions.kernel.process.remote import remote_of
from functions.runs.rules.ticks import is_first_in_bucket
from state import traceparent
from state.ids import named_by
from state.records import Footprint
from state.settings import Settings
from workers.attempt.job import TrainingJob, attempted, delivered
from workers.attempt.launch import die_with
from workers.attempt.runner import TrainingRunner
from workers.lab_client import HANDED_IN, RemoteLab, Spool, calling, spool_of
from workers.slot import HealthSampler, Slot

CALLED = ("gpu::begin", "gpu::built", "gpu::renew", "pool::give_back", "pool::release", *HANDED_IN)


class RemoteLease:
    """See workers.attempt.job.RunLease.

    At least `every_s` seconds pass between two requests. A request carries the newest report and the newest lines.
    """

    def __init__(
        self, lab: RemoteLab, gpu_id: str, job: TrainingJob, spool: Spool, *, lease_s: float, every_s: float
    ) -> None:
        self._lab = lab
        self._gpu_id = gpu_id
        self._who = {"experiment_id": job.experiment_id, "attempt": job.attempt, "fence": job.fence}
        self._source = {} if job.tick_source == "report" else {"tick_source": job.tick_source}
        self._spool = spool
        self._lease_s = lease_s
        self._every_s = every_s
        self._ask_at = 0.0
        self._is_urgent = False
        """Whether a report waits that has to be sent at once, even if a request is under way."""
        self._ranked_at: set[float] = set()
        """Buckets that were reported at once, because the lab decides there whether the run goes on."""
        self._order: Order = "continue"
        self._extension: Extension | None = None
        self._unsent: dict[str, Any] = {}
        self._turn = asyncio.Lock()

    @property
    def lease_s(self) -> float:
        return self._lease_s

    async def begin(self, runner: str, before: Footprint | None) -> bool:
        footprint = before.model_dump(mode="json") if before is not None else None
        request = {**self._who, "runner": runner, "footprint": footprint}
        return bool((await delivered(lambda: self._lab.call("gpu::begin", request)))["begun"])

    async def built(self, source: Source) -> Order:
        patch = None if source.patch is None else base64.b64encode(source.patch).decode()
        request = {**self._who, "tree_id": source.tree_id, "patch_base64": patch, "differs": source.differs}
        order: Order = (await delivered(lambda: self._lab.call("gpu::built", request)))["order"]
        return order

    async def tick(self, metric: float, progress: float) -> Order | Extension:
        self._unsent |= {"metric": metric, "progress": progress, **self._source}
        if is_first_in_bucket(progress, self._ranked_at):
            self._is_urgent = True
        order = await self.poll()
        return self._extension if order == "continue" and self._extension is not None else order

    async def tail(self, text: str) -> None:
        self._unsent["log"] = text
        await self.poll()

    async def poll(self) -> Order:
        """See Watcher; between two requests it repeats the lab's last answer."""
        async with self._turn:
            if self._is_urgent or asyncio.get_running_loop().time() >= self._ask_at:
                self._is_urgent = False
                await self._renew()
            return self._order

    async def _renew(self) -> None:
        sent, self._unsent = self._unsent, {}
        try:
            told = await self._lab.call("gpu::renew", {**self._who, **sent})
        except BaseException:
            self._unsent, self._is_urgent = {**sent, **self._unsent}, True
            raise
        self._order = told["order"]
        if told["extra_s"] is not None:
            self._extension = Extension(told["extra_s"], told["budget_s"])
        self._ask_at = asyncio.get_running_loop().time() + self._every_s

    async def report(self, function: str, request: Mapping[str, Any]) -> str:
        """See RunLease. A result that the lab does not take now is kept, and sent by the next process."""
        kept = self._spool.keep("-".join(map(str, self._who.values())), function, request)
        if self._unsent:  # the last lines and the last report
            await self._renew()
        answer = await self._spool.send(kept, self._lab.call)
        return str(answer["status"])

    async def hand_back(self, reason: str) -> None:
        await self._lab.call(
            "pool::give_back",
            {"gpu_id": self._gpu_id, "fence": self._who["fence"], "reason": reason[:500], "sick": True},
        )

    async def end(self, *, proven: bool) -> None:
        lease = {"experiment_id": self._who["experiment_id"], "fence": self._who["fence"]}
        await self._lab.call("pool::release", {"gpu_id": self._gpu_id, **lease, "proven": proven})


NEAR_S = 0.5
"""Seconds between two requests to a lab on this machine."""


def job_of(work: Mapping[str, Any]) -> TrainingJob:
    patch = work["patch_base64"]
    same = (
        *("experiment_id", "attempt", "fence", "commit_sha", "base_commit", "config_delta", "evaluator"),
        *("budget_s", "timeout_s", "seed", "traceparent", "evaluator_files", "evaluator_command", "splits"),
        *("tick_source", "check", "check_s"),
    )
    decoded = None if patch is None else base64.b64decode(patch)
    return TrainingJob(**{name: work[name] for name in same}, patch=decoded)


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
