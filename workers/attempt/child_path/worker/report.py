"""nightjar_report under the older name that existing scripts import."""

from __future__ import annotations

import nightjar_report  # type: ignore[import-not-found]  # found beside this package at run time
from nightjar_report import report

__all__ = ["report"]


def __getattr__(name: str) -> object:
    if name == "budget_s":  # it changes during a run
        budget: object = nightjar_report.budget_s
        return budget
    raise AttributeError(name)
