"""The breaker: too many crashes in a row take a GPU out for a while."""

from __future__ import annotations

from dataclasses import dataclass

from state.records import Gpu


@dataclass(frozen=True)
class Trip:
    """The GPU's breaker opens."""

    reason: str
    out_s: float
    """Seconds until the GPU may try one run."""


def after_crash(gpu: Gpu, crash_limit: int, cooldown_s: float, longest_s: float = 3600.0) -> Trip | None:
    """How one more crash changes a GPU's breaker; None where it stays as it is.

    `gpu` is as before the crash. Each time the breaker opens again, the cool-down doubles, up to `longest_s`; a run
    that succeeds closes it and starts over.
    """
    crashes = gpu.consecutive_crashes + 1
    if gpu.tripped or crashes < crash_limit:
        return None
    doubled = 2.0 ** min(gpu.trips, 64)
    return Trip(f"{crashes} runs in a row have crashed on it", min(cooldown_s * doubled, longest_s))


def may_try(gpu: Gpu, now: float) -> bool:
    """Whether a tripped GPU has cooled down, so that it may try one run.

    The count of its crashes stays: one more takes it out again, a success closes the breaker.
    """
    return gpu.tripped is not None and gpu.tripped_until is not None and gpu.tripped_until <= now
