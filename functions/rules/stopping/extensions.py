"""Runs that got more time than others: they are judged by their value at the end of the normal budget."""

from __future__ import annotations

from dataclasses import replace

from functions.rules.keeps.judging import ResultReport
from functions.rules.stopping.ticks import is_within_budget
from state.decisions import Ending
from state.records import Experiment


def base_value(e: Experiment) -> float | None:
    """The report nearest to the end of the normal budget; None if no extension was used."""
    return e.base_metric if has_used_extension(e.extended_s, e.last_progress) else None


def has_used_extension(extended_s: float | None, last_progress: float | None) -> bool:
    """Whether an extended run has reported after the end of its normal budget."""
    return extended_s is not None and not is_within_budget(last_progress or 0.0)


def at_base(report: ResultReport, e: Experiment) -> ResultReport:
    """The result with the value that compares with runs that were not extended."""
    base = base_value(e)
    return report if base is None else replace(report, value=base)


def with_extension(ending: Ending, printed: float) -> Ending:
    """The ending with the reason why its value differs from the printed one."""
    e = ending.experiment
    if base_value(e) is None:
        return ending
    why = (
        f"it was given {e.extended_s:g} s more than others, and printed {printed:g} at their end: it is judged by"
        " what it reported at the end of its budget"
    )
    before = ending.fields.get("reason")
    reason = {"reason": f"{why}; {before}" if before else why}
    answer = {**ending.answer, **reason} if ending.answer else None
    return replace(ending, fields={**ending.fields, **reason}, answer=answer)
