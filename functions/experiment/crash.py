"""experiment::crash records a run that ended without a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from functions.contract import Call, Response, function
from functions.experiment._reports import RunReport, check_counts, first_answer
from functions.formats.metrics_block import FailureKind
from functions.rules.keeps.judging import CrashAnswer, FailureReport, conditions_of, judge_failure
from functions.rules.keeps.verdict import Key
from functions.rules.pool.breaker import Breaker
from functions.views.hints import MEND, abort_step
from state.change import Change
from state.experiments import Experiments
from state.settings import Settings


class Crash(RunReport):
    error: Annotated[str, Field(max_length=65536)] = Field(
        description="the last lines of the traceback", examples=["RuntimeError: CUDA out of memory"]
    )
    kind: FailureKind = Field(
        "other",
        description="why it failed; timeout gives the status of that name, evaluator and leak the status invalid",
    )


class Crashed(Response, CrashAnswer):
    next: str
    """What to do now, in a sentence."""
    replayed: bool = False
    """Whether this very report was answered before: then this is the first answer once more."""


@function("experiment::crash", role=("agent", "worker"), writes=True)
async def crash(request: Crash, call: Call, experiments: Experiments, settings: Settings) -> Crashed:
    """Record a crash or timeout, and say whether so many in a row mean that something is broken for all."""
    failure = FailureReport(request.kind, request.error, request.digest, request.training_seconds)
    breaker = Breaker(settings.cooldown_s)

    async def judged(change: Change) -> Crashed:
        run = await experiments.run_facts(change, request.experiment_id, request.attempt)
        under = conditions_of(Key(), run)
        beside = await experiments.comparison(change, run, under.key.gpu_class, under.other_key, under.code)
        if first := first_answer("crash", request, call, run, beside):
            return change.idle(crashed(first, replayed=True))
        await check_counts("crash", request, run, beside, experiments)
        ending = judge_failure(failure, run, beside, breaker)
        await experiments.finish(change, run, ending, beside)
        return crashed(ending.answer or {})

    return await experiments.judging(request.experiment_id, judged)


def crashed(answer: Mapping[str, Any], *, replayed: bool = False) -> Crashed:
    """The answer, with what its agent does next."""
    step = abort_step(answer["consecutive_crashes"]) if answer["should_abort"] else MEND
    return Crashed(**answer, next=step, replayed=replayed)
