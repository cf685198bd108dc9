"""The breaker: a GPU on which code fails that has succeeded before is taken out for a while."""

from __future__ import annotations

from dataclasses import dataclass

from state.records import Experiment, Gpu


@dataclass(frozen=True)
class Breaker:
    """When a GPU is taken out of the pool for its crashes, and for how long."""

    crash_limit: int
    cooldown_s: float
    """Seconds until it may try a run; doubled each time that the breaker opens again, up to `longest_s`."""
    longest_s: float = 3600.0

    def after_crash(self, gpu: Gpu, *, is_probe: bool) -> Crashed:
        """How one more crash changes a GPU's breaker; a run that succeeds closes it and starts over.

        `gpu` is as before the crash. Code that has never succeeded may crash by its own fault, so only a probe opens
        the breaker, and only after so many crashes in a row.
        """
        in_a_row = gpu.consecutive_crashes + 1
        if gpu.tripped or not is_probe or in_a_row < self._limit:
            return Crashed(in_a_row)
        out_s = min(self.cooldown_s * 2.0 ** min(gpu.trips, 64), self.longest_s)
        reason = f"{in_a_row} runs in a row have crashed on it, the last one of a baseline that ran before"
        return Crashed(in_a_row, Trip(reason, out_s))

    def wants_probe(self, gpu: Gpu) -> bool:
        """Whether so many runs in a row have crashed that a baseline has to tell whether the GPU is broken."""
        return gpu.tripped is None and gpu.consecutive_crashes >= self._limit

    @property
    def _limit(self) -> int:
        return max(2, self.crash_limit)


@dataclass(frozen=True)
class Trip:
    """The GPU's breaker opens."""

    reason: str
    out_s: float
    """Seconds until the GPU may try a run."""


@dataclass(frozen=True)
class Crashed:
    """A GPU's crashes in a row after one more."""

    in_a_row: int
    trip: Trip | None = None


def is_probe(first: Experiment | None) -> bool:
    """Whether a run of this experiment's code says something of the GPU: it is a baseline, which a worker has run."""
    return first is not None and first.baseline and first.was_trained_here and first.val_bpb is not None


def may_try(gpu: Gpu, now: float) -> bool:
    """Whether a tripped GPU has cooled down, so that it may try runs.

    That it was out is remembered: the next probe that crashes takes it out for longer, a success closes the breaker.
    """
    return gpu.tripped is not None and gpu.tripped_until is not None and gpu.tripped_until <= now
