"""The ends of an experiment: complete, crash and stop."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from functions.experiments.rules.claiming import judge_report
from functions.experiments.rules.judging import (
    MEASURES,
    Completed,
    CrashAnswer,
    FailureReport,
    ResultReport,
    conditions_of,
    judge_failure,
)
from functions.experiments.rules.reports import (
    already_finished,
    check_in_time,
    check_open,
    check_score,
    is_evidence,
    replayed,
)
from functions.experiments.rules.verdict import Key, check_plausible
from functions.experiments.views.hints import MEND, abort_step
from functions.formats.metrics_block import LONGEST_NAME, FailureKind, is_metric_name
from functions.kernel.contract import Call, Command, Response, function
from functions.kernel.off_loop import statistics_loaded
from functions.kernel.rules.access import check_own, check_reporter
from functions.pool.rules.leases import Breaker
from functions.runs.rules.time_limits import at_base, with_extension
from functions.swarm.rules.results import stopped
from functions.trust.rules.contention import with_contention
from functions.trust.rules.hidden import check_hidden, codes_beside, look
from state.change import Change
from state.decisions import Ending
from state.errors import Conflict, Invalid
from state.experiments import Experiments
from state.facts import Comparison, RunFacts
from state.ids import ExperimentId, digest_of
from state.records import OPEN, RETESTED, Score, TimeSpent
from state.settings import Settings
from state.trust import Certificates, HiddenNumbers

# -- Shared by complete and crash: who may report on a run, and the treatment of late reports.

Seconds = Annotated[float, Field(ge=0, le=1e9)]
"""Bounded, because a tag adds them up."""


class RunReport(Command):
    """A report on one run; a worker names the lease that it trained under."""

    experiment_id: ExperimentId
    training_seconds: Seconds | None = Field(None, description="how long it trained", examples=[300.1])
    attempt: int | None = Field(
        None, ge=0, description="which attempt this is about; agents leave it out", examples=[1]
    )
    fence: int | None = Field(
        None, ge=0, description="the fence of the lease it ran under; agents leave it out", examples=[17]
    )

    @cached_property
    def digest(self) -> str:
        """Digest of the report; a repeated report has the same."""
        return digest_of(self)


def first_answer(
    op: str, request: RunReport, call: Call, run: RunFacts, beside: Comparison
) -> dict[str, Any] | None:
    """The first answer to this very report; None: it is new. Raises Forbidden: the caller may not report."""
    check_reporter(call.caller, run.experiment, beside.gpu, request.attempt, request.fence)
    return replayed(run.answer, op, request.digest)


async def check_counts(
    op: str, request: RunReport, run: RunFacts, beside: Comparison, experiments: Experiments
) -> None:
    """Raise Conflict for a late report, and keep it as evidence if its attempt existed."""
    try:
        check_open(run.experiment, request.attempt, request.fence)
        check_in_time(run.experiment, beside.gpu, run.now)
    except Conflict:
        if is_evidence(run.experiment, request.attempt):
            said: Mapping[str, Any] = request.model_dump(exclude_none=True)
            await experiments.keep_evidence(request.experiment_id, request.digest, {"op": op, **said})
        raise


Measured = Annotated[float, Field(ge=0, le=1e15)]


def _shown(name: str) -> str:
    if not is_metric_name(name):
        raise ValueError("holds a character that cannot be shown")
    return name


MetricName = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME), AfterValidator(_shown)]


class Complete(RunReport):
    val_bpb: float = Field(description="the tag's metric, whatever its name", examples=[0.9979])
    peak_vram_mb: Measured | None = Field(None, description="most GPU memory it used", examples=[45060.2])
    total_tokens_m: Measured | None = Field(None, description="millions of tokens seen", examples=[499.6])
    mfu_percent: Measured | None = Field(None, description="model FLOPs utilization", examples=[39.8])
    num_steps: Measured | None = Field(None, description="optimizer steps", examples=[953])
    num_params_m: Measured | None = Field(None, description="millions of parameters", examples=[50.3])
    depth: Measured | None = Field(None, description="layers of the model", examples=[8])
    metrics: dict[MetricName, float] = Field(
        default_factory=dict, max_length=200, description="further numbers", examples=[{"grad_norm": 0.7}]
    )
    evaluator_hash: Annotated[str, Field(max_length=64)] | None = Field(
        None,
        description="SHA-256 of the evaluator it was measured with; default: the best's",
        examples=["9f86d081884c7d65"],
    )
    gpu_class: Annotated[str, Field(max_length=100)] | None = Field(
        None, description="the GPU's name, or cpu; default: the best's", examples=["NVIDIA H100"]
    )
    budget_seconds: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="the training time it was given; default: a worker's run's own, else the best's",
        examples=[300],
    )

    wall_seconds: Seconds | None = Field(
        None,
        description="how long its worker had it train, by the clock; agents leave it out",
        examples=[301.2],
    )
    cpu_seconds: Seconds | None = Field(
        None, description="CPU seconds of its processes in that time; agents leave it out", examples=[290.5]
    )
    hung: bool = Field(
        False,
        description="whether it hung after its result, so that its worker ended it; agents leave it out",
    )
    score: Score = Field(
        "reported",
        description="trusted: the lab's own worker had the tag's evaluator measure val_bpb; agents leave it out",
    )
    reported: float | None = Field(
        None,
        description="what train.py printed, where val_bpb is trusted; agents leave it out",
        examples=[0.9979],
    )
    hidden: float | None = Field(
        None,
        exclude=True,  # it is in no digest, and in no late result
        repr=False,
        description="what the evaluator measured on the tag's hidden split; agents leave it out",
        examples=[0.9712],
    )

    test: float | None = Field(
        None,
        exclude=True,
        repr=False,
        description="the same of its test split, where the lab has asked for it; agents leave it out",
        examples=[0.9715],
    )

    @property
    def report(self) -> ResultReport:
        key = Key(self.gpu_class, self.evaluator_hash, self.budget_seconds)
        measured = {name: value for name in MEASURES if (value := getattr(self, name)) not in (None, {})}
        measured |= {"hung": True} if self.hung else {}
        time = None
        if self.wall_seconds is not None:
            time = TimeSpent(wall_seconds=self.wall_seconds, cpu_seconds=self.cpu_seconds)
        printed = self.reported if self.score == "trusted" else None
        return ResultReport(
            self.val_bpb, key, self.digest, measured, self.training_seconds, time, self.score, printed
        )


@function("experiment::complete", role=("agent", "worker"), writes=True)
async def complete(
    request: Complete,
    call: Call,
    experiments: Experiments,
    numbers: HiddenNumbers,
    certificates: Certificates,
) -> Completed:
    """Record a run's result: its status, its gain over the best, and what the agent does with its commit."""

    async def judged(change: Change) -> Completed:
        run = await experiments.run_facts(change, request.experiment_id, request.attempt)
        report = at_base(request.report, run.experiment)
        under = conditions_of(report.key, run)
        beside = await experiments.comparison(
            change, run, under.key.gpu_class, under.other_key, under.code, report.value
        )
        is_split = run.tag.hidden_split
        codes = codes_beside(under, beside) if is_split else ()
        facts = await numbers.of(change, run.tag.name, under.key.gpu_class, codes) if is_split else None
        is_test = request.test is not None and await numbers.awaits_test(change, run.experiment)
        if first := first_answer("complete", request, call, run, beside):
            return change.idle(Completed(**first, replayed=True))
        check_score(request.score, call.caller, run.experiment, run.tag)
        if facts is not None or (request.hidden, request.test) != (None, None):
            check_hidden(request.hidden, run, beside)
        if request.test is not None and not is_test:
            raise Invalid("the lab has not asked for a number of the test split here", hint="leave test out")
        check_plausible(run.tag.metric, report.value)
        await check_counts("complete", request, run, beside, experiments)
        if beside.noise.is_known:
            await statistics_loaded()
        seen = look(request.hidden, run, under, beside, facts) if facts is not None else None
        judged_on = beside._replace(hidden=seen.refusals) if seen is not None else beside
        ending = with_extension(judge_report(report, run, under, judged_on), request.val_bpb)
        if request.num_steps is not None:
            after = with_contention(ending, report, run, beside)
            if after.status != "queued":
                ending = after
            elif not await certificates.has_run(change, run.experiment):
                await experiments.run_again(change, run, after)
                return Completed.model_validate(after.answer)
        await experiments.finish(change, run, ending, beside)
        if seen is not None:
            numbers.keep(change, run.tag.name, under.key.gpu_class, seen.kept_after(ending))
        if is_test and request.test is not None and ending.status == RETESTED:
            numbers.keep_test(change, run.experiment, request.test)
        assert isinstance(ending.answer, Completed)
        return ending.answer

    return await experiments.judging(request.experiment_id, judged)


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
            return change.idle(crashed(CrashAnswer(**first), replayed=True))
        await check_counts("crash", request, run, beside, experiments)
        ending = judge_failure(failure, run, beside, breaker)
        await experiments.finish(change, run, ending, beside)
        return crashed(CrashAnswer.model_validate(ending.answer))

    return await experiments.judging(request.experiment_id, judged)


def crashed(answer: CrashAnswer, *, replayed: bool = False) -> Crashed:
    """The answer, with what its agent does next."""
    step = abort_step(answer.consecutive_crashes) if answer.should_abort else MEND
    return Crashed(**vars(answer), next=step, replayed=replayed)


class Stop(Command):
    experiment_id: ExperimentId
    reason: Annotated[str, Field(max_length=1000)] = Field("asked to stop", description="why it is stopped")


class Stopped(Response):
    experiment_id: str
    status: str
    stopping: bool
    """True while its worker still has to end the run."""


@function("experiment::stop", role="agent", writes=True)
async def stop(request: Stop, call: Call, experiments: Experiments) -> Stopped:
    """Stop it: at once where no worker has it, else the worker ends the run within two seconds."""

    async def decide(change: Change) -> Stopped:
        run = await experiments.run_facts(change, request.experiment_id)
        e = run.experiment
        check_own(call.caller, e.owner, e.experiment_id)
        if e.status == "stopped":
            return change.idle(Stopped(experiment_id=e.experiment_id, status="stopped", stopping=False))
        if e.status not in OPEN:
            raise already_finished(e)
        if e.status in ("leased", "running") and e.worker_id is None:
            if not e.stopping:
                experiments.ask_to_stop(change, e, request.reason)
            return Stopped(experiment_id=e.experiment_id, status=e.status, stopping=True)
        await experiments.finish(change, run, _ending(run, request.reason))
        return Stopped(experiment_id=e.experiment_id, status="stopped", stopping=False)

    return await experiments.judging(request.experiment_id, decide)


def _ending(run: RunFacts, reason: str) -> Ending:
    """The ending for an experiment that stops at once. Time of a swarm's worker counts as spent."""
    if run.experiment.worker_id is not None and run.experiment.status == "running":
        return stopped(run.experiment, run.now, reason)
    return Ending(run.experiment, "stopped", {"error": reason}, reason=reason)
