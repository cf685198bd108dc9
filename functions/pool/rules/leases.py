"""What a heartbeat renews, what follows when a holder is gone, and when crashes take a GPU out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from functions.pool.rules.health import is_stale
from state.decisions import AfterLease, BrokenLease, Gone, GpuCrashes
from state.leases import Holding
from state.records import OPEN, Experiment, Gpu

# -- Leases on GPUs: what a heartbeat renews, and what follows when the holder is gone.

CLOCK_S = 1e-3
"""Tolerance in seconds between two sums of times."""


def was_renewed_to_its_end(gpu: Gpu, e: Experiment) -> bool:
    """Whether a run's lease was renewed up to its deadline.

    An agent's lease has no deadline. A worker stops renewing when its run ends, so a result that it kept while the
    lab was down is not late.
    """
    deadline = math.inf if gpu.deadline is None else gpu.deadline + (e.extended_s or 0.0)
    return (gpu.lease_expires_at or 0.0) >= deadline - CLOCK_S


def why_gone(gpu: Gpu, now: float, stale_s: float) -> Gone | None:
    """Why the sweep ends the lease on a GPU; None: it is valid, or there is none."""
    if gpu.holder is None:
        return None
    if is_stale(gpu.heartbeat_at, now, stale_s):
        return "silent"
    return "expired" if gpu.lease_expires_at is not None and gpu.lease_expires_at <= now else None


def reason_of(gpu: Gpu, e: Experiment, why: Gone) -> str:
    """Why the sweep ends a lease, for people."""
    if why == "silent":
        return "its worker fell silent"
    if e.status == "leased" or not was_renewed_to_its_end(gpu, e):
        return "its lease ran out"
    if e.stopping:
        return "its worker went on after it was told to stop"
    return "its worker went on past its time limit"


def broken(
    gpu: Gpu, e: Experiment, why: Gone, *, reason: str, max_attempts: int, sick: str | None = None
) -> BrokenLease:
    """The decision to end the lease that `e` holds on `gpu`, both as read. `sick`: why the GPU is unhealthy."""
    flags, cleared = flags_after(gpu, e, why)
    if sick is not None:
        flags |= {"sick": sick, "good_samples": 0}
    return BrokenLease(gpu, e, why, reason, after_lease(gpu, e, max_attempts), flags, cleared)


def given_up(held: Holding, fence: int, reason: str) -> BrokenLease | None:
    """The decision to end a leased experiment that no worker can train. The GPU is not to blame."""
    gpu, e = held.gpu, held.experiment
    if e is None or not is_unbegun(gpu, e, fence):
        return None
    return BrokenLease(gpu, e, "dead", reason, "lost", *flags_after(gpu, e, "dead"))


def handed_back(held: Holding, fence: int, reason: str) -> BrokenLease | None:
    """The decision to end the lease of a run that has not begun: it waits again."""
    gpu, e = held.gpu, held.experiment
    if e is None or not is_unbegun(gpu, e, fence):
        return None
    return broken(gpu, e, "dead", reason=reason, max_attempts=held.policy.max_attempts)


def is_unbegun(gpu: Gpu, e: Experiment, fence: int) -> bool:
    """Whether `e` has the lease with this fence on its GPU, and no worker has begun its attempt."""
    return e.status == "leased" and e.fence == gpu.fence == fence


def after_lease(gpu: Gpu, e: Experiment, max_attempts: int) -> AfterLease | None:
    """What happens to the experiment; None: no attempt of it runs under this lease."""
    if e.status not in ("leased", "running") or e.fence != gpu.fence:
        return None
    if e.stopping:
        return "stopped"
    if e.status == "leased":
        return "same_attempt"  # nothing was tried yet
    return "requeued" if e.attempt - e.contended < max_attempts else "lost"


def flags_after(gpu: Gpu, e: Experiment, why: Gone) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Flags that a broken lease sets and clears: the GPU may hold processes, unless its keeper proved it `dead`."""
    if why == "dead":
        return {}, ("unproven", "footprint")
    flags: dict[str, Any] = {"offline": True} if why == "silent" else {}
    if gpu.runner is not None:
        flags["unproven"] = True
    if why == "expired" and e.status == "leased" and e.fence == gpu.fence:
        flags |= {"sick": "its worker did not begin a run that it was leased for", "good_samples": 0}
    return flags, ()


@dataclass(frozen=True)
class Beat:
    """Consequences of a heartbeat."""

    renewed: Experiment | None
    action: Literal["stop", "drain", "prove"] | None


def beat(held: Holding, fence: int | None) -> Beat:
    """Answer to a GPU heartbeat. A wrong fence must stop, and one whose run is over, stopping or revoked."""
    gpu, holder = held.gpu, held.experiment
    renewed = holder if fence is not None and fence == gpu.fence else None
    if fence is not None and (renewed is None or renewed.status not in OPEN):
        return Beat(None, "stop")
    if renewed is not None and (renewed.stopping or gpu.fence <= held.stop_fence):
        return Beat(renewed, "stop")
    return Beat(renewed, "prove" if gpu.unproven else "drain" if gpu.drained else None)


# -- Circuit breaker of a GPU: it opens when code crashes there that has succeeded before.

CRASH_LIMIT = 5
"""Crashes in a row on a GPU after which a tag's baseline runs there. If it crashes, too, the GPU leaves the pool."""


@dataclass(frozen=True)
class Breaker:
    """When a GPU is taken out of the pool for its crashes, and for how long."""

    cooldown_s: float
    """Seconds until it may try a run; doubled each time that the breaker opens again, up to `longest_s`."""
    longest_s: float = 3600.0

    def after_crash(self, gpu: Gpu, *, is_probe: bool) -> GpuCrashes:
        """The breaker after one more crash. A success closes it and resets the count.

        `gpu` is as before the crash. New code may crash by its own fault. So only a crashed probe opens the breaker,
        and only after `CRASH_LIMIT` crashes in a row.
        """
        in_a_row = gpu.consecutive_crashes + 1
        if gpu.tripped or not is_probe or in_a_row < CRASH_LIMIT:
            return GpuCrashes(in_a_row)
        out_s = min(self.cooldown_s * 2.0 ** min(gpu.trips, 64), self.longest_s)
        reason = f"{in_a_row} runs in a row have crashed on it, the last one of a baseline that ran before"
        return GpuCrashes(in_a_row, reason, out_s)

    def wants_probe(self, gpu: Gpu) -> bool:
        """Whether a baseline has to run as a probe, because so many runs in a row have crashed."""
        return gpu.tripped is None and gpu.consecutive_crashes >= CRASH_LIMIT


def is_probe(first: Experiment | None) -> bool:
    """Whether a run of this experiment's code tests the GPU: it is a baseline that a worker has run."""
    return first is not None and first.baseline and first.was_trained_here and first.val_bpb is not None


def may_try(gpu: Gpu, now: float) -> bool:
    """Whether a tripped GPU has cooled down and may try a run. Trips count on: the next is longer."""
    return gpu.tripped is not None and gpu.tripped_until is not None and gpu.tripped_until <= now
