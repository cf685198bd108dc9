"""Values to decide which stored patches leave Redis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class UsedPatches:
    """The patches that are needed at hand, by digest."""

    uses: str
    """Changes whenever a patch is used anew."""
    digests: frozenset[str]


@dataclass(frozen=True)
class EndedRun:
    """A run that was not kept, with its patches in Redis."""

    finished_at: float
    digests: frozenset[str]
