"""When an agent's process is ended, when it is started again, and when its night is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 600.0


@dataclass(frozen=True)
class Patience:
    """How long an agent may do nothing."""

    silent_s: float
    """Seconds without a line printed; 0: any time."""
    idle_s: float
    """Seconds with no experiment of its own open or finished."""
    starts: int
    """Starts in a row in which it works on no experiment."""


def end_of_night(brief: Mapping[str, Any]) -> str | None:
    """Why an agent with this brief has nothing more to do; None where it has."""
    if brief["paused"]:
        return f"{brief['tag']} is paused"
    spent = [
        name.replace("_", " ")
        for name, account in (brief["budget"] or {}).items()
        if account["left"] is not None and account["left"] <= 0 and account["reserved"] <= 0
    ]
    if spent and not brief["open_experiments"]:
        return f"{brief['tag']} has no {' and no '.join(spent)} left"
    return None


def overdue(silent_s: float, idle_s: float, patience: Patience) -> str | None:
    """Why a process is ended and started again; None while it is left alone."""
    if patience.silent_s and silent_s > patience.silent_s:
        return f"it has printed nothing for {silent_s:.0f} s"
    if idle_s > patience.idle_s:
        return f"it has worked on no experiment for {idle_s:.0f} s"
    return None


def pause_before(useless_starts: int) -> float:
    """Seconds before the next start, after so many in a row that came to nothing."""
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(useless_starts, 20)))


def own_experiments(brief: Mapping[str, Any], agent: str) -> dict[str, str]:
    """The status of each experiment in a brief that is this agent's: while one is open, or one changes, it works."""
    shown = [*brief["last_results"], *brief["open_experiments"]]
    return {e["experiment_id"]: e["status"] for e in shown if e["agent"] == agent}
