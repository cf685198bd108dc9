"""What an operator is told of events that are not handled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from state.program import as_typed

LATE_S = 600.0
"""A healthy binding handles an event in seconds; a failing function's letter is dead after two minutes."""
MANY_LETTERS = 1000


def event_hints(events: Mapping[str, Any]) -> Iterator[str]:
    """Warnings about `Stream.lags`: bindings that hold old events back, and a pile of dead letters."""
    for name, lag in sorted(events["bindings"].items()):
        age, waiting = lag["oldest_s"], (lag["undelivered"] or 0) + (lag["unacknowledged"] or 0)
        if age is not None and age > LATE_S:
            yield (
                f"{name} is {age / 60:.0f} min behind, {max(1, waiting)} events wait for it and are kept until it"
                " has handled them: the log of the events process says why"
            )
    if events["dead_letters"] > MANY_LETTERS:
        yield (
            f"{events['dead_letters']} dead letters are kept:"
            + as_typed(" redrive them or discard them with ./nightjar call event::discard --all true")
        )
