"""experiment::complete judges a finished run: keep or discard."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from functions.contract import Call, Response, function
from functions.experiment._reports import RunReport, Seconds, check_counts, first_answer, statistics_loaded
from functions.formats.metrics_block import LONGEST_NAME, is_metric_name
from functions.rules.keeps.claiming import judge_report
from functions.rules.keeps.judging import MEASURES, CompleteAnswer, ResultReport, conditions_of
from functions.rules.keeps.reports import check_score, with_score
from functions.rules.keeps.verdict import Key, check_plausible
from functions.rules.stopping.extensions import at_base, with_extension
from state.change import Change
from state.experiments import Experiments
from state.records import Score, TimeSpent

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

    @property
    def report(self) -> ResultReport:
        """The request as the rule takes it."""
        key = Key(self.gpu_class, self.evaluator_hash, self.budget_seconds)
        said = vars(self).items()
        measured = {name: value for name, value in said if name in MEASURES and value is not None}
        measured |= {"hung": True} if self.hung else {}
        time = None
        if self.wall_seconds is not None:
            time = TimeSpent(wall_seconds=self.wall_seconds, cpu_seconds=self.cpu_seconds)
        return ResultReport(self.val_bpb, key, self.digest, measured, self.training_seconds, time)


class Completed(Response, CompleteAnswer):
    score: Score = "reported"
    """Source of `val_bpb`: printed by the code that was scored, or measured by the tag's trusted evaluator."""
    reported: float | None = None
    """The value that train.py printed, where `val_bpb` is trusted."""
    replayed: bool = False
    """Whether this very report was answered before: then this is the first answer once more."""


@function("experiment::complete", role=("agent", "worker"), writes=True)
async def complete(request: Complete, call: Call, experiments: Experiments) -> Completed:
    """Record a run's result: its status, its gain over the best, and what the agent does with its commit."""

    async def judged(change: Change) -> Completed:
        run = await experiments.run_facts(change, request.experiment_id, request.attempt)
        report = at_base(request.report, run.experiment)
        under = conditions_of(report.key, run)
        beside = await experiments.comparison(
            change, run, under.key.gpu_class, under.other_key, under.code, report.value
        )
        if first := first_answer("complete", request, call, run, beside):
            return change.idle(Completed(**first, replayed=True))
        check_score(request.score, call.caller, run.experiment, run.tag)
        check_plausible(run.tag.metric, report.value)
        await check_counts("complete", request, run, beside, experiments)
        await statistics_loaded(beside.noise)
        ending = with_score(judge_report(report, run, under, beside), request.score, request.reported)
        ending = with_extension(ending, request.val_bpb)
        await experiments.finish(change, run, ending, beside)
        return Completed(**(ending.answer or {}))

    return await experiments.judging(request.experiment_id, judged)
