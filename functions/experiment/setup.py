"""experiment::setup opens a tag: a line of research with its metric, policy and strategy."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from functions.contract import Command, Line, Request, Response, function
from functions.plugins import Schedulers
from functions.views.hints import tag_step
from state.errors import Conflict
from state.ids import Sha
from state.ids import Tag as TagName
from state.policy import Policy
from state.presence import Presence
from state.records import Best, Direction, Strategy, Tag, stamp
from state.settings import Settings
from state.tags import Tags

FIRST = Strategy(
    mode="explore", explore_ratio=0.7, temperature=1.0, reason="a new tag: look around", version=1
)
"""The strategy of a new tag."""


RepositoryPath = Annotated[
    str, Field(max_length=200, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$")
]


class Metric(Request):
    name: str = Field(
        default="val_bpb",
        pattern=r"^[A-Za-z][A-Za-z0-9_]{0,39}$",
        description="as train.py prints it: `<name>: <value>`",
    )
    direction: Direction = Field(
        default="minimize", description="whether a lower or a higher value is better"
    )
    target: float | None = Field(default=None, description="the value to reach", examples=[0.95])


class OpenTag(Command):
    tag: TagName
    branch: Line | None = Field(
        None, description="the git branch; default: autoresearch/<tag>", examples=["autoresearch/mar11"]
    )
    metric: Metric = Field(Metric(), description="what is measured")
    policy: dict[str, Any] = Field(
        default_factory=dict,
        description="values that differ from the defaults: search::policy shows their names",
        examples=[{"keep_rule": "confirmed"}],
    )
    base_commit: Sha | None = Field(None, description="default: HEAD of the workers' repository")
    evaluator: RepositoryPath = Field(
        "prepare.py",
        description="the file that measures the metric: an experiment that changes it is invalid",
    )
    evaluator_files: list[RepositoryPath] = Field(
        default_factory=list,
        max_length=100,
        description="other files and folders that the score depends on, such as data: no experiment may change them",
        examples=[["data"]],
    )


class TagMetric(Response):
    name: str
    direction: Direction
    target: float | None


class TagSummary(Response):
    name: str
    branch: str
    created_at: str
    best_val_bpb: float | None
    total_experiments: int
    kept_experiments: int
    base_commit: str | None
    metric: TagMetric


class OpenedTag(Response):
    tag: TagSummary
    branch: str
    trace_mode: str
    """`single`, or `multi`: then every experiment is made from what trace::select answers."""
    next: str
    """What to do now, in a sentence."""
    hint: str | None = None
    """What is missing before workers can train its experiments."""


@function("experiment::setup", role="agent", writes=True)
async def setup(
    request: OpenTag,
    tags: Tags,
    presence: Presence,
    schedulers: Schedulers,
    settings: Settings,
) -> OpenedTag:
    """Open a tag; one that exists already is a conflict that shows what is there."""
    policy = Policy(
        near_miss_margin=settings.near_miss_threshold, crash_limit=settings.max_consecutive_crashes
    ).changed(request.policy)
    await schedulers.check(policy)
    tag = Tag(
        name=request.tag,
        branch=request.branch or f"autoresearch/{request.tag}",
        created_at=0.0,
        metric=request.metric.name,
        direction=request.metric.direction,
        target=request.metric.target,
        base_commit=request.base_commit or await presence.repository_head(),
        evaluator=request.evaluator,
        evaluator_files=request.evaluator_files,
    )
    created = await tags.create(tag, FIRST, policy)
    if created is None:
        raise await _taken(request.tag, tags)
    hint = None
    if tag.base_commit is None:
        hint = (
            "no worker is there to say what the base commit is, and none was sent: workers can only train commits"
            " that their own clone has; set up another tag with base_commit to send patches"
        )
    return OpenedTag(
        tag=_summary(created, None),
        branch=tag.branch,
        trace_mode=policy.traces.mode,
        next=tag_step(policy, 0, is_empty=True),
        hint=hint,
    )


async def _taken(name: str, tags: Tags) -> Conflict:
    found = await tags.existing(name)
    return Conflict(
        f"the tag {name!r} exists already",
        hint="go on with it (POST /api/report/brief shows where it stands) or choose another name",
        fields={"existing": _summary(*found).model_dump() if found else None},
    )


def _summary(tag: Tag, best: Best | None) -> TagSummary:
    return TagSummary(
        name=tag.name,
        branch=tag.branch,
        created_at=stamp(tag.created_at),
        best_val_bpb=best.val_bpb if best else None,
        total_experiments=tag.total,
        kept_experiments=tag.kept,
        base_commit=tag.base_commit,
        metric=TagMetric(name=tag.metric, direction=tag.direction, target=tag.target),
    )
