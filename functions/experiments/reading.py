"""Experiments as they are read: one, the best, near misses, the history."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, PrivateAttr, StringConstraints
from pydantic.config import JsonDict

from functions.experiments.rules.gains import Gain, gain_of, gains_of
from functions.experiments.views.hints import no_signal
from functions.experiments.views.runs import (
    ClaimView,
    ExperimentView,
    Phase,
    RetestView,
    claim_of,
    in_few_words,
    retest_view,
    timeline,
    view,
)
from functions.formats.patches import text_of
from functions.kernel.contract import Call, Category, Http, OfTag, Request, Response, function
from functions.trust.rules.noise import near_scores
from state.errors import Invalid, NotFound
from state.experiments import PAGE_BYTES, Experiments, Window
from state.ids import ExperimentId, Tag, TraceId
from state.records import OPEN, Certificate, Sketch, Status, Transfer, score, stamp, view_of


class ReadExperiment(Request):
    experiment_id: ExperimentId


class ExperimentShown(Response):
    experiment: ExperimentView
    diff: str | None
    retests: list[RetestView]
    """Further runs of its code."""
    claim: ClaimView
    gain: Gain | None
    """Gain over the best that it was compared with; null: no shared seed, or no such best."""
    attempts: dict[int, dict[str, str]]
    timeline: list[Phase]
    """Its attempts and retests, phase by phase."""
    ticks: list[tuple[float, float, float]]
    """(progress, metric, seconds since 1970) as the run reported them."""
    no_signal: str | None
    """The two lines that train.py lacks, where its tag stops bad runs early and it has reported nothing."""
    log_tail: str | None
    """The newest lines of the run's log: text of the training script, not to be trusted."""
    late_results: list[dict[str, Any]]
    certificate: Certificate | None
    """Its newest certificate: pairs of runs against a reference, and their verdict."""
    transfers: list[Transfer]
    """Whether its gain holds at longer budgets."""


@function("experiment::get", Http("GET", "/api/experiment/{experiment_id}"), role="viewer")
async def get(request: ReadExperiment, experiments: Experiments) -> ExperimentShown:
    """One experiment with everything that is known of it."""
    found = await experiments.shown(request.experiment_id)
    e = found.runs.experiment
    return ExperimentShown(
        experiment=view(e),
        diff=text_of(found.patch),
        retests=[retest_view(r) for r in found.runs.retests],
        claim=claim_of(found.runs, found.noise),
        gain=gain_of(e, found.runs, found.compared, found.direction),
        attempts={n: dict(attempt) for n, attempt in found.attempts.items()},
        timeline=timeline(found.runs, found.attempts),
        ticks=list(found.ticks),
        no_signal=no_signal(e, found.policy),
        log_tail=found.log,
        late_results=[dict(result) for result in found.late_results],
        certificate=found.certificate,
        transfers=sorted(found.transfers, key=lambda one: one.begun_at),
    )


class Incumbent(Response):
    FOR_AGENTS = ("best",)

    best: dict[str, Any]
    experiment: ExperimentView
    key: dict[str, Any]


@function("experiment::best", role="viewer")
async def best(request: OfTag, experiments: Experiments) -> Incumbent:
    """The best experiment of a tag under its main comparability key."""
    facts = await experiments.best_facts(request.tag)
    tag, found, e = facts.tag, facts.best, facts.runs.experiment
    return Incumbent(
        best={
            "experiment_id": found.experiment_id,
            "val_bpb": e.val_bpb if e.by_delta else found.val_bpb,
            **({"delta_bpb": found.val_bpb} if e.by_delta else {}),
            "commit_sha": found.commit_sha,
            "commit": found.commit_sha,
            "updated_at": stamp(found.updated_at),
            "trust": e.trust,
            **claim_of(facts.runs, facts.noise).model_dump(),
        },
        experiment=view(e),
        key={
            "gpu_class": tag.key_gpu_class,
            "evaluator_hash": tag.key_evaluator_hash,
            "budget_seconds": tag.key_budget_seconds,
        },
    )


class ListNearMisses(Request):
    tag: Tag
    limit: int = Field(20, ge=1, le=500, description="most near misses that are answered")


class NearMiss(Response):
    experiment_id: str
    id: str
    """`experiment_id` once more."""
    val_bpb: float
    delta: float
    """How much worse it is than the current best, the least first; below 0 for one that was demoted."""
    hypothesis: str
    category: str
    diff_summary: str


class NearMisses(Response):
    near_misses: list[NearMiss]
    total: int


@function("experiment::near_misses", role="viewer")
async def near_misses(request: ListNearMisses, experiments: Experiments) -> NearMisses:
    """Discarded experiments within the policy's margin of the best as it is now."""
    facts = await experiments.near_facts(request.tag, request.limit, near_scores)
    return NearMisses(
        near_misses=[
            view_of(
                NearMiss,
                e,
                id=e.experiment_id,
                delta=score(e.judged, facts.direction) - score(facts.best, facts.direction),
            )
            for e in facts.found
            if e.val_bpb is not None and e.judged is not None and facts.best is not None
        ],
        total=facts.total,
    )


TOOL_BYTES = 64 * 1024
"""Of a page for a tool's caller: a language model reads all of it, and its clients cut longer answers."""


class ListHistory(Request):
    tag: Tag
    status: Status | None = Field(None, description="only those of this status", examples=["keep"])
    category: Category | None = Field(None, description="only those of this category", examples=["optimizer"])
    trace_id: TraceId | None = Field(None, description="only those that were made for this trace")
    limit: int = Field(
        50, ge=1, le=1000, description="most experiments that are answered; fewer where they are long"
    )
    cursor: Annotated[int, Field(ge=0)] | None = Field(
        None, description="next_cursor of the page before", examples=[40]
    )
    fields: list[str] | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="only these fields of each experiment; default: all, for MCP those of the brief",
        examples=[["experiment_id", "status", "val_bpb"]],
    )
    order: Literal["newest", "oldest"] = Field(
        "newest", description="which end to begin at; every page is oldest first"
    )


def _without_required(schema: JsonDict) -> None:
    del schema["required"]


class ListedExperiment(ExperimentView):
    """An experiment with every field, or with the `fields` that were asked for."""

    model_config = ConfigDict(json_schema_extra=_without_required)


SHOWN = frozenset(name for name, field in ListedExperiment.model_fields.items() if not field.exclude)
"""Fields of an experiment in an answer."""


class HistoryPage(Response):
    experiments: list[ListedExperiment]
    gains: dict[str, float]
    """By id: the gain over the best that it was compared with, on the same seeds; above zero is better."""
    total: int
    next_cursor: int | None

    _fields: Collection[str] | None = PrivateAttr(None)
    _is_short: bool = PrivateAttr(default=False)

    def by(self, fields: Collection[str], *, is_short: bool = False) -> Self:
        """The same with these fields of each experiment alone; `is_short`: without those that say nothing."""
        page = self.model_copy()
        page._fields, page._is_short = fields, is_short
        return page

    def as_json(self) -> bytes:
        if self._fields is None:
            return super().as_json()
        of_each = {"__all__": set(self._fields)}
        shown = {name: name != "experiments" or of_each for name in type(self).model_fields}
        return self.model_dump_json(include=shown, exclude_defaults=self._is_short).encode()


@function("experiment::history", role="viewer")
async def history(request: ListHistory, call: Call, experiments: Experiments) -> HistoryPage:
    """The last `limit` experiments, oldest first; `next_cursor` leads to those before them."""
    by_mcp, fields = call.trigger == "mcp", request.fields
    if unknown := set(fields or ()) - SHOWN:
        raise Invalid(
            f"experiments have no field {', '.join(map(repr, sorted(unknown)))}",
            hint=f"agents use {', '.join(Sketch.FOR_AGENTS)}; GET /api/experiment/{{experiment_id}} shows all",
        )
    window = Window(
        request.tag,
        request.limit,
        status=request.status,
        category=request.category,
        trace_id=request.trace_id,
        cursor=request.cursor,
        newest=request.order == "newest",
        most_bytes=TOOL_BYTES if by_mcp else PAGE_BYTES,
    )
    found = await experiments.history(ListedExperiment, window)
    known = await experiments.beside(found.experiments)
    page = HistoryPage(
        experiments=found.experiments,
        gains=gains_of(found.experiments, known, found.direction),
        total=found.total,
        next_cursor=found.following,
    )
    if fields is not None:
        return page.by(fields)
    if by_mcp:
        few = [e.model_copy(update=in_few_words(e)) for e in found.experiments]
        return page.model_copy(update={"experiments": few}).by(Sketch.FOR_AGENTS, is_short=True)
    return page


class ReadInvocation(Request):
    invocation_id: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.[0-9]{1,6}$")
    ] = Field(
        description="an experiment and its attempt, as submit and train answer it", examples=["mar11-47.1"]
    )


class Invocation(Response):
    invocation_id: str
    function: str
    status: str
    """The attempt's status: queued, leased, running, or how it ended."""
    finished: bool
    experiment_id: str
    attempt: dict[str, str]
    result: ExperimentView | None


@function("invocation::get", Http("GET", "/api/invocation/{invocation_id}"), role="viewer")
async def get_invocation(request: ReadInvocation, experiments: Experiments) -> Invocation:
    """Status and result of one attempt at training; its id is `<experiment>.<attempt>`."""
    experiment_id, _, number = request.invocation_id.rpartition(".")
    e, attempts = await experiments.with_attempts(experiment_id)
    attempt = attempts.get(int(number))
    if attempt is None:
        raise NotFound(f"{experiment_id} has no attempt {number}", hint=f"its newest attempt is {e.attempt}")
    last = int(number) == e.attempt
    finished = not last or e.status not in OPEN
    return Invocation(
        invocation_id=request.invocation_id,
        function="gpu::train",
        status=attempt.get("status", e.status),
        finished=finished,
        experiment_id=experiment_id,
        attempt=attempt,
        result=view(e) if last and finished else None,
    )
