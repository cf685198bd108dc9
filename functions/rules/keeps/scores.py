"""Whose number a value is: printed by the code that was scored, or measured by the tag's trusted evaluator."""

from __future__ import annotations

from dataclasses import replace

from functions.rules.access import Caller
from state.decisions import Ending
from state.errors import Forbidden, Invalid
from state.records import Experiment, Score, Tag


def check_score(score: Score, caller: Caller, e: Experiment, tag: Tag) -> None:
    """Refuse a value as trusted that the lab's worker did not have measured, and a worker's that it could have.

    Raises:
        Forbidden: the caller is not the lab. Invalid: nothing measured it, or the tag's evaluator should have.
    """
    if score == "reported":
        if e.attempt > 0 and tag.evaluator_command is not None:
            raise Invalid(
                f"the score of {tag.name!r} is what its evaluator measures, not what a run prints",
                hint="serve it with a worker that runs evaluator commands: ./nightjar worker of this version",
            )
        return
    if not caller.may_do_all and not caller.is_worker:
        raise Forbidden(
            f"only the lab's workers have a score measured; {caller.described}",
            hint="leave score and reported out: the value counts as reported",
        )
    if tag.evaluator_command is None:
        raise Invalid(
            f"the tag {tag.name!r} has no evaluator command, so nothing can have measured this score",
            hint="leave score out, or open another tag with evaluator_command (operator)",
        )
    if e.attempt == 0:
        raise Invalid(
            f"{e.experiment_id} was not trained by a worker, so nothing can have measured this score",
            hint="leave score out: the value is a claim until the lab has run the code",
        )


def with_score(ending: Ending, score: Score, reported: float | None) -> Ending:
    """The end of a run, with whose number its value is."""
    whose = {"score": score, "reported": reported if score == "trusted" else None}
    return replace(ending, fields={**ending.fields, **whose}, answer={**(ending.answer or {}), **whose})
