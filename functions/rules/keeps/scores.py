"""Whose number a value is: printed by the code that was scored, or measured by the tag's trusted evaluator."""

from __future__ import annotations

from dataclasses import replace

from functions.rules.access import Caller
from state.decisions import Ending
from state.errors import Forbidden, Invalid
from state.records import Score, Tag


def check_score(caller: Caller, tag: Tag, score: Score) -> None:
    """Refuse a value as trusted that the lab's own worker did not have measured.

    Raises:
        Forbidden: the caller is not the lab. Invalid: the tag has nothing that measures it.
    """
    if score != "trusted":
        return
    if not caller.may_do_all:
        raise Forbidden(
            f"only the lab's own workers have a score measured; {caller.name!r} is {caller.role}",
            hint="leave score and reported out: the value counts as reported",
        )
    if tag.evaluator_command is None:
        raise Invalid(
            f"the tag {tag.name!r} has no evaluator command, so nothing can have measured this score",
            hint="leave score out, or open another tag with evaluator_command (operator)",
        )


def with_score(ending: Ending, score: Score, reported: float | None) -> Ending:
    """The end of a run, with whose number its value is."""
    whose = {"score": score, "reported": reported if score == "trusted" else None}
    return replace(ending, fields={**ending.fields, **whose}, answer={**(ending.answer or {}), **whose})
