"""When `nightjar agent` starts, ends and restarts an agent's process, and when the night is over."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 600.0
FIRST_LIMIT_S, LONGEST_LIMIT_S = 60.0, 3600.0
"""Pauses after a usage limit without a known end."""


@dataclass(frozen=True)
class Patience:
    """Limits on an agent's inactivity."""

    silent_s: float
    """Seconds without a line printed; 0: any time."""
    idle_s: float
    """Seconds with no experiment of its own open or finished."""
    starts: int
    """Starts in a row in which it works on no experiment."""


def end_of_night(brief: Mapping[str, Any]) -> str | None:
    """Why an agent with this brief has nothing more to do; None: it has."""
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
    """Why a process has to be restarted; None: it need not be."""
    if patience.silent_s and silent_s > patience.silent_s:
        return f"it has printed nothing for {silent_s:.0f} s"
    if idle_s > patience.idle_s:
        return f"it has worked on no experiment for {idle_s:.0f} s"
    return None


def pause_before(useless_starts: int) -> float:
    """Seconds before the next start, after so many useless starts in a row."""
    return float(min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(useless_starts, 20)))


def pause_after_limit(limits: int, left_s: float | None) -> float:
    """Seconds before the next start, after so many usage limits in a row; the last one ends in `left_s` seconds.

    The first time, the announced end is used. After that the pause doubles each time, up to an hour.
    """
    pause_s = min(LONGEST_LIMIT_S, FIRST_LIMIT_S * 2.0 ** min(limits - 1, 20))
    if left_s is None:
        return pause_s
    return left_s if limits == 1 else max(left_s, pause_s)


def own_experiments(brief: Mapping[str, Any], agent: str, unnamed: Collection[str] = ()) -> dict[str, str]:
    """The status of each experiment in a brief that has the agent's name, or is one of its `unnamed` ones."""
    shown = [*brief["last_results"], *brief["open_experiments"]]
    return {
        e["experiment_id"]: e["status"] for e in shown if e["agent"] == agent or e["experiment_id"] in unnamed
    }


def awaited(brief: Mapping[str, Any], own: Mapping[str, str], before: Collection[str]) -> list[str]:
    """Open experiments of an agent that has nothing else to do; empty if it has.

    It has something to do if an experiment that was open `before` has ended, if it trains one itself, or if it holds
    an open selection.
    """
    still_open = {e["experiment_id"] for e in brief["open_experiments"]} & own.keys()
    is_busy = brief["open_selections"] or "registered" in {own[name] for name in still_open}
    return [] if is_busy or set(before) - still_open else sorted(still_open)
