"""The breaker: crashes in a row that are no single tag's fault take a GPU out for a while."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from state.records import Experiment, Gpu


@dataclass(frozen=True)
class Breaker:
    """When a GPU is taken out of the pool for its crashes, and for how long."""

    crash_limit: int
    cooldown_s: float
    """Seconds until it may try a run; doubled each time that the breaker opens again, up to `longest_s`."""
    longest_s: float = 3600.0

    def limit(self, gpu: Gpu) -> int:
        """Crashes in a row that open it: two of different tags while it tries runs after a cool-down."""
        return 2 if gpu.trips else max(2, self.crash_limit)

    def after_crash(self, gpu: Gpu, tag: str, *, is_probe: bool = False) -> Crashed:
        """How one more crash changes a GPU's breaker; a run that succeeds closes it and starts over.

        `gpu` is as before the crash. One tag's crashes count for at most half of the limit, because they may be its
        own fault: the others have to be of other tags. A probe confirms them: then all count.
        """
        by_tag = {**gpu.crashed, tag: gpu.crashed.get(tag, 0) + 1}
        limit, in_a_row = self.limit(gpu), gpu.consecutive_crashes + 1
        counted = sum(by_tag.values() if is_probe else (min(n, (limit + 1) // 2) for n in by_tag.values()))
        if gpu.tripped or counted < limit:
            return Crashed(in_a_row, by_tag)
        out_s = min(self.cooldown_s * 2.0 ** min(gpu.trips, 64), self.longest_s)
        return Crashed(in_a_row, {}, Trip(f"{in_a_row} runs in a row have crashed on it", out_s))

    def wants_probe(self, gpu: Gpu, tag: str) -> bool:
        """Whether one tag's crashes alone would have taken the GPU out: code that is known to run has to tell."""
        limit = self.limit(gpu)
        return gpu.tripped is None and gpu.crashed.get(tag, 0) >= (limit - 1 if gpu.trips else limit)


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
    by_tag: Mapping[str, int]
    trip: Trip | None = None


def is_probe(first: Experiment | None) -> bool:
    """Whether a run of this experiment's code says something of the GPU: it is a baseline, which a worker has run."""
    return first is not None and first.baseline and first.was_trained_here and first.val_bpb is not None


def may_try(gpu: Gpu, now: float) -> bool:
    """Whether a tripped GPU has cooled down, so that it may try runs.

    That it was out is remembered: crashes of two tags or of a probe take it out again, a success closes it.
    """
    return gpu.tripped is not None and gpu.tripped_until is not None and gpu.tripped_until <= now
