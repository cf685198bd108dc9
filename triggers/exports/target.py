"""A place that runs are exported to."""

from __future__ import annotations

from abc import ABC, abstractmethod

from triggers.exports.runs import ExportedRun


class Target(ABC):
    """One file, folder or server. It knows by their ids which runs it has."""

    needs_whole = True
    """It takes runs with their patches, ticks and retests."""
    is_final = True
    """It cannot change what it has, so keeps are exported once their retests have ended."""
    opened_by: str
    """The command that shows it."""

    def awaits(self, run: ExportedRun) -> bool:
        """Whether it cannot have this run yet."""
        return not (run.is_settled if self.is_final else run.is_over)

    @abstractmethod
    def lacks(self, run: ExportedRun) -> bool:
        """Whether it has not got this run, or has another verdict of it and can change that."""

    @abstractmethod
    def add(self, run: ExportedRun) -> None:
        """Write a run, and change one that is there."""

    def complete(self) -> str | None:
        """Called after all runs were added; answers what differs from the lab."""
        return None

    def close(self) -> None:  # noqa: B027 - most write each run at once
        """Let go of it."""
