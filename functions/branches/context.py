"""trace::context shows the branch that an experiment builds on, and what was tried beside it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from functions.branches.rules.ancestry import FAILED, BranchHistory, Siblings, branch, check_parents, siblings
from functions.experiments.rules.verdict import main_key
from functions.kernel.contract import Request, Response, function
from functions.search.rules.suggestions import short
from state.facts import ContextFacts
from state.ids import ExperimentId, SelectionId
from state.ids import Tag as TagName
from state.records import Experiment, view_of
from state.refusals import other_tag
from state.traces import Traces

ANCESTORS_READ = 500
BESIDE_READ = 200
"""Siblings are searched among so many newest finished experiments, and roots of newest traces."""
TEXT = 240


class ReadContext(Request):
    tag: TagName
    selection_id: SelectionId | None = Field(None, description="the branch that was selected")
    parent_ids: list[ExperimentId] = Field(
        default_factory=list,
        max_length=16,
        description="instead of a selection: the branch above these",
        examples=[["mar11-41"]],
    )
    search_type: Literal["ancestors", "all"] = Field(
        "ancestors", description="keeps and failures of the branch, or of the whole tag"
    )
    return_type: Literal["all", "kept", "failed"] = Field("all", description="keeps, failures, or both")
    max_keep: int = Field(20, ge=0, le=500, description="most keeps, the newest")
    max_failed: int = Field(20, ge=0, le=500, description="most failures, the newest")
    siblings: Siblings = Field("until_first_keep", description="when other branches' tries are shown, too")

    @model_validator(mode="after")
    def _one_way_to_name_parents(self) -> ReadContext:
        if self.selection_id is not None and self.parent_ids:
            raise ValueError("send selection_id or parent_ids, not both: a selection names its parents")
        return self


class BranchNode(Response):
    experiment_id: str
    id: str
    """`experiment_id` once more."""
    number: int
    status: str
    val_bpb: float | None
    claimed: bool
    """Only its agent says so: the lab has not run its code."""
    parent_ids: list[str]
    parent_id: str | None
    """The first of `parent_ids`."""
    trace_id: str | None
    category: str
    description: str


class BranchEntry(BranchNode):
    commit_sha: str
    hypothesis: str
    diff_summary: str
    error: str | None


class Under(Response):
    """The parents and all their ancestors; other branches do not change it."""

    parent_ids: list[str]
    ancestors: list[str]
    """From the roots to the parents, each once."""
    is_whole: bool
    """False if the oldest are left out."""
    kept: list[BranchEntry]
    failures: list[BranchEntry]
    """Failures with no keep between them and the parents."""
    base: BranchEntry | None
    """The best keep."""
    best: BranchEntry | None
    """The best value, kept or not."""


class Context(Response):
    tag: str
    selection_id: str | None
    base_commit_sha: str | None
    """The code to check out."""
    branch: Under
    siblings: list[BranchEntry]
    """Tried beside the branch, failures too."""
    global_best: BranchEntry | None
    """The tag's best now."""


@function("trace::context", role="agent")
async def context(request: ReadContext, traces: Traces) -> Context:
    """A branch's ancestors, keeps, newest failures, base and best, and the siblings tried beside it."""
    of_all = request.search_type == "all"
    facts = await traces.context_facts(
        request.tag,
        request.selection_id or request.parent_ids,
        most_ancestors=ANCESTORS_READ,
        most_beside=BESIDE_READ if request.siblings != "never" else 0,
        newest={"keep": request.max_keep, **dict.fromkeys(FAILED, request.max_failed)} if of_all else {},
    )
    if facts.selection is None:
        check_parents(request.tag, request.parent_ids, facts.ancestors)
    elif facts.selection.tag != request.tag:
        raise other_tag(facts.selection)
    main = main_key(facts.tag)
    shown = {"max_keep": request.max_keep, "max_failed": request.max_failed}
    under = branch(facts.parent_ids, facts.ancestors, facts.tag.direction, main, **shown)
    return _told(request, facts, under)


def _told(request: ReadContext, facts: ContextFacts, under: BranchHistory) -> Context:
    kept, failures = under.kept, under.failures
    if request.search_type == "all":
        kept = list(facts.newest["keep"])
        failures = sorted((e for status in FAILED for e in facts.newest[status]), key=lambda e: e.number)
        failures = failures[max(0, len(failures) - request.max_failed) :]
    until = facts.selection.finished_until if facts.selection else None
    beside = siblings(under, facts.beside, request.siblings, finished_until=until, most=request.max_failed)
    commit = facts.selection.base_commit_sha if facts.selection else None
    return Context(
        tag=request.tag,
        selection_id=request.selection_id,
        base_commit_sha=commit or (under.base.commit_sha if under.base else facts.tag.base_commit),
        branch=Under(
            parent_ids=list(facts.parent_ids),
            ancestors=[e.experiment_id for e in under.ancestors],
            is_whole=facts.is_whole,
            kept=[entry(e) for e in kept] if request.return_type != "failed" else [],
            failures=[entry(e) for e in failures] if request.return_type != "kept" else [],
            base=entry(under.base) if under.base else None,
            best=entry(under.best) if under.best else None,
        ),
        siblings=[entry(e) for e in beside],
        global_best=entry(facts.best) if facts.best else None,
    )


def entry(e: Experiment) -> BranchEntry:
    """An experiment with shortened texts."""
    return view_of(
        BranchEntry,
        e,
        id=e.experiment_id,
        claimed=e.is_claim,
        parent_id=e.parent_ids[0] if e.parent_ids else None,
        description=short(e.description, TEXT),
        hypothesis=short(e.hypothesis, TEXT),
        diff_summary=short(e.diff_summary, TEXT),
        error=short(e.error, TEXT) if e.error else None,
    )
