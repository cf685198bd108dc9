"""Tells a run that hangs from one that works on in silence."""

from __future__ import annotations

_IDLE = 0.05
"""Share of one CPU core up to which a run counts as idle: a thread that waits, or looks now and then."""


class Silence:
    """How long a run has neither printed nor reported; times in seconds of one clock."""

    def __init__(self, lasting_s: float, now: float) -> None:
        self.since = now
        self._lasting_s = lasting_s
        self._begun = now
        self._idle_since = now
        self._cpu_s = 0.0

    def ends(self, now: float, cpu_s: float) -> None:
        """Begin anew: the run, which has used `cpu_s` seconds so far, has printed or reported something."""
        self.since = self._idle_since = now
        self._cpu_s = cpu_s

    def lasts(self, now: float, cpu_s: float) -> bool:
        """Whether it has lasted long enough.

        A run that still computes has to be silent for as long as it had run before: it may train another epoch.
        """
        if cpu_s - self._cpu_s > _IDLE * self._lasting_s:
            self._idle_since, self._cpu_s = now, cpu_s
        is_idle = now - self._idle_since >= self._lasting_s
        return is_idle or now - self.since >= max(self._lasting_s, self.since - self._begun)
