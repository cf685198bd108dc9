"""report::runs gives a tag's runs as columns, for tables and plots."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from functions.contract import Request, Response, function
from functions.rules.keeps.gains import gains_of
from functions.rules.keeps.noise import noise_of
from functions.rules.search.suggestions import short
from state.experiments import Experiments
from state.ids import ExperimentId, Tag
from state.records import Direction, RunRow, VariedRow
from state.reports import Reports, RunRows

TEXT = 120
"""Characters of a text in a row."""
MOST_WITH_CONSTANTS = 1000

RowTrust = Literal["first", "provisional", "unconfirmed", "confirmed", "demoted", "claimed"]


class ListRuns(Request):
    tag: Tag
    limit: int = Field(
        2000, ge=1, le=5000, description="most runs that are answered; with their constants 1000 at most"
    )
    before: Annotated[int, Field(ge=0)] | None = Field(
        None, description="only runs with a smaller number: next_before of the page before", examples=[2001]
    )
    ids: list[ExperimentId] | None = Field(
        None,
        max_length=500,
        description="these runs of the tag instead of a page; a retest's id means the run that it repeats",
        examples=[["mar11-47", "mar11-48.2"]],
    )
    constants: bool = Field(False, description="answer the constants that each run set")


class RunColumns(BaseModel):
    """Runs as lists of equal length: the nth value of each list is of the nth run."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    id: list[str]
    number: list[int]
    status: list[str]
    trust: list[RowTrust | None]
    """Evidence for a keep; demoted, for one that was taken back. claimed: only its agent measured it."""
    baseline: list[bool]
    near_miss: list[bool]
    over_budget: list[bool]
    error_kind: list[str | None]
    value: list[float | None]
    """Value that it is compared by: a mean where further runs of its code count."""
    gain: list[float | None]
    """Gain over the best of its time on the same seeds; above zero is better."""
    retests: list[list[float | None]]
    """Values of further runs of its code; null: not over, or without a value."""
    category: list[str]
    description: list[str]
    """Changes, 120 characters at most."""
    hypothesis: list[str]
    """120 characters at most."""
    agent: list[str | None]
    worker: list[str | None]
    """Worker of a swarm."""
    gpu: list[str | None]
    """GPU or CPU slot; in a swarm, its worker's type of GPU."""
    branch: list[str | None]
    """Its trace."""
    parents: list[list[str]]
    registered_at: list[float]
    """Seconds since 1970, as `finished_at`."""
    finished_at: list[float | None]
    duration_s: list[float | None]
    """Seconds of training."""
    constants: list[dict[str, Any] | None] | None
    """Constants that each run set, where they were asked for. Null: it set none, or over 2,000 bytes of them."""


class ListedRuns(Response):
    tag: str
    metric: str
    """delta_bpb where runs are compared by the difference to their worker's baseline."""
    direction: Direction
    sigma: float | None
    """Standard deviation of runs of the same code on the main class of GPU; null: not known yet."""
    total: int
    """Runs of the tag, without retests."""
    next_before: int | None
    """`before` of the next page; null: this is the last one."""
    runs: RunColumns
    """The newest first, without retests."""


@function("report::runs", role="viewer")
async def runs(request: ListRuns, reports: Reports, experiments: Experiments) -> ListedRuns:
    """A tag's runs as columns, newest first, without retests; `next_before` leads to older ones."""
    kind = VariedRow if request.constants else RunRow
    limit = min(request.limit, MOST_WITH_CONSTANTS) if request.constants else request.limit
    found = await reports.rows(request.tag, kind, limit, before=request.before, ids=request.ids)
    noise = noise_of(found.noise.squares, found.noise.df)
    last = found.rows[-1].number if request.ids is None and found.rows else 0
    return ListedRuns(
        tag=found.tag.name,
        metric="delta_bpb" if found.by_delta else found.tag.metric,
        direction=found.tag.direction,
        sigma=noise.sigma if noise else None,
        total=found.total,
        next_before=last if last > 1 else None,
        runs=await _columns(found, experiments, has_constants=request.constants),
    )


async def _columns(found: RunRows, experiments: Experiments, *, has_constants: bool) -> RunColumns:
    rows = found.rows
    known = await experiments.beside(rows)
    gains = gains_of(rows, known, found.tag.direction)
    retests = {name: [r.own_value for r in runs.retests] for name, runs in known.items() if runs.retests}
    return RunColumns(
        id=[e.experiment_id for e in rows],
        number=[e.number for e in rows],
        status=[e.status for e in rows],
        trust=["claimed" if e.is_claim else e.trust for e in rows],
        baseline=[e.baseline for e in rows],
        near_miss=[bool(e.near_miss) for e in rows],
        over_budget=[e.over_budget for e in rows],
        error_kind=[e.error_kind for e in rows],
        value=[e.judged for e in rows],
        gain=[gains.get(e.experiment_id) for e in rows],
        retests=[retests.get(e.experiment_id, []) for e in rows],
        category=[e.category for e in rows],
        description=[short(e.description, TEXT) for e in rows],
        hypothesis=[short(e.hypothesis, TEXT) for e in rows],
        agent=[e.agent for e in rows],
        worker=[e.worker_id for e in rows],
        gpu=[e.gpu_id or e.gpu_type for e in rows],
        branch=[e.trace_id for e in rows],
        parents=[e.parent_ids for e in rows],
        registered_at=[e.registered_at for e in rows],
        finished_at=[e.finished_at for e in rows],
        duration_s=[e.training_seconds if e.wall_seconds is None else e.wall_seconds for e in rows],
        constants=[e.config_delta if isinstance(e, VariedRow) else None for e in rows]
        if has_constants
        else None,
    )
