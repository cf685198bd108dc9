"""Circuit breaker of a GPU: it opens when code crashes there that has succeeded before."""

from __future__ import annotations

from dataclasses import dataclass

from state.records import Experiment, Gpu

CRASH_LIMIT = 5
"""Crashes in a row on a GPU after which a tag's baseline runs there. If it crashes, too, the GPU leaves the pool."""


@dataclass(frozen=True)
class Breaker:
    """When a GPU is taken out of the pool for its crashes, and for how long."""

    cooldown_s: float
    """Seconds until it may try a run; doubled each time that the breaker opens again, up to `longest_s`."""
    longest_s: float = 3600.0

    def after_crash(self, gpu: Gpu, *, is_probe: bool) -> CrashesInARow:
        """The breaker after one more crash. A success closes it and resets the count.

        `gpu` is as before the crash. New code may crash by its own fault. So only a crashed probe opens the breaker,
        and only after `CRASH_LIMIT` crashes in a row.
        """
        in_a_row = gpu.consecutive_crashes + 1
        if gpu.tripped or not is_probe or in_a_row < CRASH_LIMIT:
            return CrashesInARow(in_a_row)
        out_s = min(self.cooldown_s * 2.0 ** min(gpu.trips, 64), self.longest_s)
        reason = f"{in_a_row} runs in a row have crashed on it, the last one of a baseline that ran before"
        return CrashesInARow(in_a_row, Trip(reason, out_s))

    def wants_probe(self, gpu: Gpu) -> bool:
        """Whether a baseline has to run as a probe, because so many runs in a row have crashed."""
        return gpu.tripped is None and gpu.consecutive_crashes >= CRASH_LIMIT


@dataclass(frozen=True)
class Trip:
    """The GPU's breaker opens."""

    reason: str
    out_s: float
    """Seconds until the GPU may try a run."""


@dataclass(frozen=True)
class CrashesInARow:
    """A GPU's crashes in a row after one more."""

    in_a_row: int
    trip: Trip | None = None


def is_probe(first: Experiment | None) -> bool:
    """Whether a run of this experiment's code tests the GPU: it is a baseline that a worker has run."""
    return first is not None and first.baseline and first.was_trained_here and first.val_bpb is not None


def may_try(gpu: Gpu, now: float) -> bool:
    """Whether a tripped GPU has cooled down and may try a run.

    The number of trips is kept: the next crashed probe takes the GPU out for longer.
    """
    return gpu.tripped is not None and gpu.tripped_until is not None and gpu.tripped_until <= now
