"""New experiments as agents send them, and the parent that their commit shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import to_json

from functions.children import Children
from functions.contract import Call, Category, Command, Line, Response
from functions.experiment._clone import line_to_base
from functions.formats.patches import LONGEST_PATCH
from functions.views.budgets import obstacle
from state.digests import patch_id
from state.entries import Entered
from state.errors import Invalid
from state.experiments import Experiments
from state.ids import AgentName, ExperimentId, GpuId, Id, SelectionId, Sha
from state.ids import Tag as TagName
from state.records import Experiment, Idea, Tag

LONGEST_DELTA = 64 * 1024
"""Bytes of the constants that an idea sets, as JSON."""


def _short(constants: dict[str, Any]) -> dict[str, Any]:
    if len(to_json(constants)) > LONGEST_DELTA:
        raise ValueError("is over 64 KiB as JSON: change train.py instead")
    return constants


class NewIdea(Command):
    """An idea with its parents, or with a selection that names them."""

    tag: TagName
    hypothesis: Line = Field(
        description="what is expected of the change, and why", examples=["A deeper model has a lower loss"]
    )
    category: Category = Field(description="what kind of change it is", examples=["architecture"])
    commit_sha: Sha = Field(description="the commit that holds the change")
    diff_summary: Line = Field(description="the change in a line", examples=["DEPTH = 8 -> 12"])
    description: Line | None = Field(
        None, description="default: the first line of diff_summary", examples=["increase depth 8 -> 12"]
    )
    diff: Annotated[str, Field(max_length=LONGEST_PATCH)] | None = Field(
        None,
        description="the whole patch (git diff --binary) against the tag's base_commit",
        examples=[
            "diff --git a/train.py b/train.py\n--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-DEPTH = 8\n+DEPTH = 12\n"
        ],
    )
    parent_id: ExperimentId | None = Field(None, description="the experiment that it is built on")
    parent_ids: list[ExperimentId] = Field(
        default_factory=list,
        max_length=16,
        description="the same, where there may be several",
        examples=[["mar11-41", "mar11-44"]],
    )
    selection_id: SelectionId | None = Field(
        None, description="what trace::select answered; it names the parents"
    )
    gpu_id: GpuId | None = Field(None, description="the only GPU that may train it; default: any")
    config_delta: Annotated[dict[str, Any], AfterValidator(_short)] | None = Field(
        None,
        description="top-level constants of train.py to set; as JSON 64 KiB at most",
        examples=[{"DEPTH": 12}],
    )
    hypothesis_id: Id | None = Field(
        None,
        description="the hypothesis of the tag that this tests: its result is evidence for it",
        examples=["hyp_0a1b2c"],
    )
    agent: AgentName | None = None
    seed: int | None = Field(None, description="the seed that it is trained with", examples=[1337])

    @model_validator(mode="after")
    def _one_way_to_name_parents(self) -> Self:
        if self.parent_id and self.parent_ids and self.parent_ids != [self.parent_id]:
            raise ValueError("parent_id and parent_ids disagree: send one of them")
        return self

    @property
    def patch(self) -> bytes | None:
        """The patch as it is stored.

        Raises:
            Invalid: it is too long.
        """
        patch = self.diff.encode() if self.diff is not None else None
        if patch is not None and len(patch) > LONGEST_PATCH:
            raise Invalid("diff is over 4 MiB", hint="leave data and binaries out of the commit")
        return patch

    def idea(self, call: Call) -> Idea:
        """The idea as this caller's."""
        return Idea(
            **{name: getattr(self, name) for name in AS_SENT},
            description=self.description or self.diff_summary.strip().split("\n")[0] or self.hypothesis,
            diff_id=patch_id(self.patch),
            owner=call.caller.owner,
            parent_ids=self.parent_ids or ([self.parent_id] if self.parent_id else []),
            pinned_gpu=self.gpu_id,
            traceparent=call.traceparent,
        )


AS_SENT = (Idea.model_fields.keys() & NewIdea.model_fields.keys()) - {"description", "parent_ids"}
"""Fields that an idea has as they were sent."""


class RegisteredExperiment(Response):
    FOR_AGENTS: ClassVar[tuple[str, ...]] = ("experiment_id", "status", "duplicate_of", "parent_id", "hint")

    experiment_id: str
    status: str
    number: int
    duplicate_of: str | None = None
    """The first experiment of the tag with the same patch or commit; null where both are new."""
    parent_id: str | None
    """The first of `parent_ids`."""
    parent_ids: list[str]
    """Its parents. The parent that its commit shows replaces a named one; without either it is the tip."""
    hint: str | None = None
    """Why its parent is not the named one, and why a run of its tag would not begin now."""


def answered(e: Entered | Experiment, status: str, hint: str | None) -> dict[str, Any]:
    """The fields of `RegisteredExperiment`."""
    return {
        "experiment_id": e.experiment_id,
        "status": status,
        "number": e.number,
        "duplicate_of": e.duplicate_of,
        "parent_id": next(iter(e.parent_ids), None),
        "parent_ids": [*e.parent_ids],
        "hint": hint,
    }


async def with_found_parent(
    idea: Idea, clone: Path | None, children: Children, experiments: Experiments
) -> tuple[Idea, str | None]:
    """The idea, and a sentence where it has another parent than it named.

    The parent is the experiment with the nearest ancestor commit in the lab's clone. A named parent is kept if the
    clone lacks one of the commits, or if the idea is a patch.

    Raises:
        Exhausted: too many others ask git.
    """
    if clone is None or not idea.parent_ids or idea.selection_id is not None:
        return idea, None
    base, parents = await experiments.commits_of(idea.tag, idea.parent_ids)
    if base is None or len(parents) < len(idea.parent_ids):
        return idea, None
    line = await line_to_base(clone, children, idea.commit_sha, base, parents)
    if line is None:
        return idea, None
    found, commit = await experiments.first_tried_of(idea.tag, line)
    if found in idea.parent_ids or any(commit.startswith(parent) for parent in parents):
        return idea, None
    named = " and ".join(idea.parent_ids)
    said = f"The commit {idea.commit_sha} is built on {found or 'the base commit'}, not on {named}."
    return idea.model_copy(update={"parent_ids": [found] if found else []}), said


def hint_of(moved: str | None, tag: Tag) -> str | None:
    """Why its parent is not the named one, and why its run would not begin now."""
    return " ".join(filter(None, (moved, obstacle(tag)))) or None
