"""How a tag opens: setup, its baseline, and resuming it after too many crashes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from functions.experiments.rules.entering import admitted, run_of
from functions.experiments.rules.opening import FIRST, baseline_of, first_policy, owes_baseline
from functions.experiments.views.hints import tag_step
from functions.formats.metrics_block import direction_of
from functions.formats.train_command import words_of
from functions.kernel.clone import lacks
from functions.kernel.contract import Call, Command, Line, Request, Response, TagCommand, function
from functions.kernel.off_loop import Children
from functions.kernel.own import check_policy
from functions.kernel.rules.access import check_may_command
from functions.runs.rules.ticks import check_source
from functions.runs.rules.time_limits import check_may_lengthen
from functions.trust.rules.guarding import in_words
from functions.trust.rules.hidden import check_splits
from state.archive import packed
from state.change import Change
from state.decisions import RETEST_PRIORITY, Entered
from state.errors import Conflict, Invalid
from state.experiments import Experiments
from state.ids import CommitHash
from state.ids import Tag as TagName
from state.policy import Policy, nested, own_names
from state.presence import Presence
from state.records import NO_CHANGE, Best, Direction, Score, Tag, stamp, view_of
from state.settings import Settings
from state.tags import Policies, Tags

RepositoryPath = Annotated[
    str, Field(max_length=200, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$")
]


class Metric(Request):
    name: str = Field(
        default="val_bpb",
        max_length=80,
        pattern=r"^([0-9_./@-][0-9_./@ -]*)?[A-Za-z]([A-Za-z0-9_./@ -]*[A-Za-z0-9_./@-])?$",
        description="as train.py prints it: `<name>: <value>`; letters, digits, `_ - . / @` and spaces within",
    )
    direction: Direction | None = Field(
        default=None,
        description="whether a lower or a higher value is better; loss and accuracy, say, need none",
        examples=["minimize"],
    )
    target: float | None = Field(default=None, description="the value to reach", examples=[0.95])


@dataclass(frozen=True)
class SetupStores:
    tags: Tags
    policies: Policies
    presence: Presence


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
    base_commit: CommitHash | None = Field(None, description="default: HEAD of the workers' repository")
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
    evaluator_command: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        None,
        description="operators only: after each training a worker runs this script of the base commit, and its line"
        " `<metric>: NUMBER` is the score, whatever train.py printed",
        examples=["python prepare.py"],
    )

    hidden_split: bool = Field(
        False,
        description="operators only: the evaluator measures a second number, which no agent sees; what is kept must"
        " not be worse by it; asks for evaluator_command",
        examples=[True],
    )
    test_split: bool = Field(
        False,
        description="operators only: and a third one, for each experiment once at most, in a certificate; asks for"
        " hidden_split",
        examples=[True],
    )

    @property
    def trusted_files(self) -> list[str]:
        """Files beside the evaluator that the score depends on, the script too. Raises Invalid: no script."""
        if self.evaluator_command is None:
            return self.evaluator_files
        script = words_of(self.evaluator_command)[1]
        others = (*self.evaluator_files, script)
        return [path for path in dict.fromkeys(others) if path != self.evaluator]


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
    score: Score
    """Source of the lab's values: train.py prints them, or a trusted evaluator measures them afterwards."""
    hidden_split: bool
    """A keep must also not be worse by a second number, which nobody is told."""


class OpenedTag(Response):
    tag: TagSummary
    branch: str
    trace_mode: str
    """`single`, or `multi`: then every experiment is made from what trace::select answers."""
    guards: list[str]
    """What a run must not break to be kept."""
    next: str
    """What to do now, in a sentence."""
    hint: str | None = None
    """What is missing before workers can train its experiments."""


@function("experiment::setup", role="agent", writes=True)
async def setup(
    request: OpenTag, call: Call, stores: SetupStores, children: Children, settings: Settings
) -> OpenedTag:
    """Open a tag. If it exists already, the conflict shows its values."""
    check_may_command(call.caller, request.evaluator_command)
    lab_s = first_policy(settings.near_miss_threshold, settings.max_consecutive_crashes)
    policy = lab_s.changed(request.policy)
    check_may_lengthen(call.caller, policy)
    check_may_command(call.caller, policy.guards.check, "guards.check")
    direction = request.metric.direction or direction_of(request.metric.name)
    check_source(policy, direction)
    check_policy(policy)
    tag = Tag(
        name=request.tag,
        branch=request.branch or f"autoresearch/{request.tag}",
        created_at=0.0,
        metric=request.metric.name,
        direction=direction,
        target=request.metric.target,
        base_commit=request.base_commit or await stores.presence.repository_head(),
        evaluator=request.evaluator,
        evaluator_files=request.trusted_files,
        evaluator_command=request.evaluator_command,
        hidden_split=request.hidden_split,
        test_split=request.test_split,
    )
    check_splits(tag, policy)
    if tag.evaluator_command is not None and tag.base_commit is None:
        raise Invalid(
            "an evaluator command is run from the base commit's files, and no worker is there to say which that is",
            hint="send base_commit, or start a worker first",
        )
    created = await stores.tags.create(tag, FIRST, policy)
    if created is None:
        raise await _taken(request, tag, policy, stores)
    return OpenedTag(
        tag=_summary(created, None),
        branch=tag.branch,
        trace_mode=policy.traces.mode,
        guards=in_words(policy.guards, tag.direction),
        next=tag_step(tag, policy, 0, is_empty=True),
        hint=await _missing(tag.base_commit, children, settings.clone),
    )


async def _missing(base: str | None, children: Children, clone: Path | None) -> str | None:
    """What is missing before the base commit's code can be trained; None: nothing."""
    if base is None:
        return (
            "no worker is there to say what the base commit is, and none was sent: workers can only train commits"
            " that their own clone has; set up another tag with base_commit to send patches"
        )
    if clone is None or not await lacks(clone, children, base):
        return None
    return (
        f"the lab's clone {clone} does not have the base commit {base}: a worker that uses this clone cannot"
        f" train it. Run `git -C {clone} fetch --all`, or push it there, before the first submit"
    )


async def _taken(request: OpenTag, sent: Tag, policy: Policy, stores: SetupStores) -> Conflict:
    found = await stores.tags.existing(request.tag)
    if found is None:
        return Conflict(f"the tag {request.tag!r} was removed meanwhile", hint="send the same again")
    its_policy, _ = await stores.policies.get(request.tag)
    ignored = _ignored(request, sent, found[0]) | _ignored_of(policy, its_policy, request.policy)
    detail = f"the tag {request.tag!r} exists already"
    if ignored:
        told = ", ".join(
            f"{name} {pair['sent']!r} (it has {pair['has']!r})" for name, pair in ignored.items()
        )
        detail += f"; of this request was ignored: {told}"
    return Conflict(
        detail,
        hint="go on with it (POST /api/report/brief shows where it stands) or choose another name"
        + ("; an operator changes its policy (POST /api/search/set-policy)" if request.policy else ""),
        fields={"existing": _summary(*found).model_dump(), "ignored": ignored},
    )


Ignored = dict[str, dict[str, object]]
"""By the names of fields: what was sent, and what the tag has."""


def _ignored(request: OpenTag, sent: Tag, has: Tag) -> Ignored:
    """The fields that the request named and the tag has otherwise."""
    named = request.model_fields_set - {"metric", "policy"}
    pairs = {
        name: (getattr(sent, name), getattr(has, name)) for name in sorted(named & Tag.model_fields.keys())
    }
    if "metric" in request.model_fields_set:
        pairs["metric.name"] = (sent.metric, has.metric)
        pairs["metric.direction"] = (sent.direction, has.direction)
        if request.metric.target is not None:
            pairs["metric.target"] = (sent.target, has.target)
    return {name: {"sent": one, "has": other} for name, (one, other) in pairs.items() if one != other}


def _ignored_of(sent: Policy, has: Policy, named: dict[str, Any]) -> Ignored:
    """The policy values that the request named and the tag has otherwise."""
    one, other = (_dotted(policy.model_dump(mode="json")) for policy in (sent, has))
    return {
        f"policy.{name}": {"sent": one.get(name), "has": other.get(name)}
        for name in _dotted(nested(own_names(named)))
        if one.get(name) != other.get(name)
    }


def _dotted(values: dict[str, Any], prefix: str = "") -> dict[str, object]:
    """Nested values by their dotted names."""
    found: dict[str, object] = {}
    for name, value in values.items():
        found |= _dotted(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def _summary(tag: Tag, best: Best | None) -> TagSummary:
    return view_of(
        TagSummary,
        tag,
        created_at=stamp(tag.created_at),
        best_val_bpb=best.val_bpb if best else None,
        total_experiments=tag.total,
        kept_experiments=tag.kept,
        metric=TagMetric(name=tag.metric, direction=tag.direction, target=tag.target),
        score=tag.score,
    )


class BaselineSubmitted(Response):
    baseline_id: str | None
    """Null where the tag needs none: runs of it have finished, or its policy says `baseline_first: false`."""
    submitted: bool
    """By this request."""


@function("experiment::baseline", role="agent", writes=True)
async def baseline(request: TagCommand, call: Call, experiments: Experiments) -> BaselineSubmitted:
    """Submit the tag's baseline, unless it has one or needs none; the first submit of a tag does it by itself."""
    _, patch = await packed(NO_CHANGE)

    async def decide(change: Change) -> tuple[str | None, Entered | None]:
        facts = await experiments.entry_facts(change, baseline_of(request.tag, ""), None, to_train=True)
        if not owes_baseline(facts.tag, facts.policy):
            return change.idle((facts.tag.baseline_id, None))
        entry = admitted(baseline_of(request.tag, facts.tag.base_commit or ""), facts, call.caller)
        run = run_of(facts.policy, priority=RETEST_PRIORITY)
        return None, await experiments.submit(change, entry, facts, patch, None, run, (), is_baseline=True)

    baseline_id, new = await experiments.change(decide)
    return BaselineSubmitted(baseline_id=new.experiment_id if new else baseline_id, submitted=new is not None)


class ResumedTag(Response):
    tag: str
    consecutive_crashes_before: int


@function("experiment::resume", role="operator", writes=True)
async def resume(request: TagCommand, tags: Tags) -> ResumedTag:
    """Start counting a tag's crashes in a row from zero."""
    return ResumedTag(tag=request.tag, consecutive_crashes_before=await tags.resume(request.tag))
