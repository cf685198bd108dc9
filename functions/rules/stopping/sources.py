"""Where a tag's ticks come from: what its scripts report, or the loss that their workers read in their output."""

from __future__ import annotations

from state.errors import Invalid
from state.policy import Policy, TickSource
from state.records import Direction


def check_source(policy: Policy, direction: Direction) -> None:
    """Refuse to rank the runs of a tag by a loss where a higher metric is better.

    Raises:
        Invalid: with what to do instead.
    """
    if policy.stopping.tick_source == "stdout" and direction == "maximize":
        raise Invalid(
            "stopping.tick_source stdout reads a loss, of which lower is better, and this tag maximises its metric",
            hint="leave stopping.tick_source at report, and have train.py call report(metric, progress)",
        )


def last_value(last_metric: float | None, source: TickSource) -> float | None:
    """What a run had last of its tag's metric; None: it reported nothing, or only a loss is known."""
    return last_metric if source == "report" else None
