"""Record of what simulated workers sent and received, compared with the server's at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from functions.trust.rules.audit_tags import Acknowledged


@dataclass
class Book:
    """The notes of all workers of one simulation."""

    acknowledged: dict[str, Acknowledged] = field(default_factory=dict)
    """Runs whose results the server took, and those that it stopped."""
    abandoned: dict[str, str] = field(default_factory=dict)
    """Runs whose workers died, with their configs as texts."""
    configs: Counter[str] = field(default_factory=Counter)
    """How often each config was handed out, as text, as a run of its own."""
    runs: set[str] = field(default_factory=set)
    """Every run that was handed out."""
    tried: dict[str, set[str]] = field(default_factory=dict)
    """Runs whose configs name a hidden constant, by its name."""
    is_over: bool = False
    """No worker begins another run."""
    best_delta: float | None = None
    kills: int = 0
    told_to_extend: int = 0
    crashes: int = 0
    late: int = 0
    duplicates: int = 0
    reordered: int = 0
    repeats: int = 0
    trained_s: float = 0.0
    """Simulated GPU seconds."""
    saved_s: float = 0.0
    """Those that stopped runs would have taken beside that."""
    extra_s: float = 0.0
    """Of `trained_s`, those of extensions."""
    rounds_left: dict[str, int] = field(default_factory=dict)
    """Runs that each dead worker still owed."""
    faults: list[str] = field(default_factory=list)
    """What no worker should have seen."""

    @property
    def handed_on(self) -> int:
        """Configs of dead workers' runs that another run got since."""
        owed = Counter(self.abandoned.values())
        return sum(min(count, self.configs[text] - count) for text, count in owed.items())
