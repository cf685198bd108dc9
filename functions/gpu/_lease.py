"""The lease under which a worker runs one attempt: begun, renewed, ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from functions.gpu._ranking import ranked
from functions.gpu._reporting import delivered
from functions.gpu._stores import Stores
from functions.lanes import Extension, Order, Source
from functions.rules.pool.broken_lease import broken, given_up
from functions.rules.stopping.buckets import bucket_of, is_within_budget
from state.assignments import Assignment
from state.decisions import BrokenLease
from state.errors import Unavailable
from state.policy import Policy
from state.records import Experiment, Footprint, Gpu

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AttemptLease:
    """The lab's side of an attempt: every look of the runner renews the lease and brings orders back."""

    stores: Stores
    experiment: Experiment
    """As it was leased."""
    assignment: Assignment
    lease_s: float
    ranked_at: set[float] = field(default_factory=set)
    """Buckets at which the run was ranked: a script that reports all the time costs no more than its lease."""

    @property
    def gpu_id(self) -> str:
        return self.assignment.gpu_id

    @property
    def attempt(self) -> int:
        return self.assignment.attempt

    @property
    def fence(self) -> int:
        return self.assignment.fence

    async def begin(self, runner: str, before: Footprint | None) -> bool:
        """Begin the attempt; False where it was begun before, or the lease is over."""
        return await self.stores.experiments.start(
            self.experiment,
            attempt=self.attempt,
            fence=self.fence,
            runner=runner,
            lease_s=self.lease_s,
            footprint=before,
        )

    async def built(self, source: Source) -> Order:
        e = self.experiment
        is_ours = await delivered(
            lambda: self.stores.experiments.note_source(
                e,
                attempt=self.attempt,
                fence=self.fence,
                tree_id=source.tree_id,
                patch=source.patch,
                differs=source.differs,
            )
        )
        return "continue" if is_ours else "lost"

    async def tick(self, metric: float, progress: float) -> Order | Extension:
        tick, bucket = (metric, progress), bucket_of(progress)
        order = await self._renew(tick)
        if order != "continue" or bucket is None or bucket in self.ranked_at:
            return order
        told = await ranked(self.experiment, tick, bucket, self.stores.experiments)
        self.ranked_at.add(bucket)
        return told

    async def poll(self) -> Order:
        return await self._renew()

    async def tail(self, text: str) -> None:
        await self.stores.experiments.keep_log(self.experiment.experiment_id, text)

    async def _renew(self, tick: tuple[float, float] | None = None) -> Order:
        e = self.experiment
        return await self.stores.experiments.renew(
            e.experiment_id,
            self.gpu_id,
            self.fence,
            self.lease_s,
            tick,
            is_base=tick is not None and is_within_budget(tick[1]),
        )

    @asynccontextmanager
    async def renewing(self) -> AsyncIterator[None]:
        """Renew beside the run: a checkout, during which the runner does not poll, may take longer than a lease."""
        over = asyncio.Event()
        renewal = asyncio.create_task(self._renew_until(over))
        try:
            yield
        finally:
            over.set()
            await renewal

    async def _renew_until(self, over: asyncio.Event) -> None:
        name = self.experiment.experiment_id
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.lease_s / 4):
                    await over.wait()
                    return
            try:
                await self.poll()  # the runner asks for orders itself
            except Unavailable as problem:
                log.warning("the lease of %s is not renewed: %s", name, problem.detail)
            except Exception:  # a fault beside the run must not end it
                log.exception("the lease of %s is not renewed", name)

    async def hand_back(self, reason: str) -> None:
        """Give up the attempt before it begins: its GPU is sick, and the attempt waits for another."""
        await self._break(
            lambda gpu, e, policy: broken(
                gpu, e, "dead", reason=reason, max_attempts=policy.max_attempts, sick=reason
            )
        )

    async def give_up(self, reason: str) -> None:
        """End the experiment before its attempt begins: no worker can train it."""
        await self._break(lambda gpu, e, policy: given_up(gpu, e, reason))

    async def _break(self, decide: Callable[[Gpu, Experiment, Policy], BrokenLease]) -> None:
        while self.experiment.status == "leased":
            held = await self.stores.pool.holding(self.gpu_id)
            e, policy = held.experiment, held.policy
            if e is None or policy is None or held.gpu.fence != self.fence or e.status != "leased":
                return
            end = decide(held.gpu, e, policy)
            if await self.stores.experiments.break_lease(end, stale_s=self.lease_s) is not None:
                return

    async def end(self, *, proven: bool) -> None:
        """Give the GPU back after the run; its keeper has to look where it is not `proven` empty."""
        await self.stores.pool.release(self.gpu_id, self.experiment.experiment_id, self.fence, proven=proven)
