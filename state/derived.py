"""Derived state: what experiments add to the counters and indexes of their lab."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

COUNTED: Mapping[str, frozenset[str]] = {
    "tags": frozenset(
        {
            *("kept", "discarded", "crashed", "stopped", "lost", "invalid", "retracted"),
            *("total", "baselines", "claimed", "repeated"),
        }
    ),
    "swarm_workers": frozenset({"runs", "active"}),
}
"""Derived fields of hashes that hold other fields, too."""
Field = tuple[str, str]
"""A key without its lab, and a field of the hash or a member of the sorted set."""


@dataclass
class Derived:
    """Counts of hashes and scores of sorted sets, or a change of them."""

    counts: Counter[Field] = field(default_factory=Counter)
    scores: dict[Field, float | None] = field(default_factory=dict)
    """None: the member leaves."""

    def members(self, key: str) -> dict[str, float]:
        """A sorted set."""
        return {m: score for (of, m), score in self.scores.items() if of == key and score is not None}
