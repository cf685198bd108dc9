"""The parent of a new experiment: where it names another one than its commit is built on, that one is taken."""

from __future__ import annotations

from pathlib import Path

from functions.children import Children
from functions.experiment._clone import line_to_base
from functions.views.budgets import obstacle
from state.experiments import Experiments
from state.records import Idea, Tag


async def with_found_parent(
    idea: Idea, clone: Path | None, children: Children, experiments: Experiments
) -> tuple[Idea, str | None]:
    """The idea, and a sentence where it has another parent than it named.

    The parent that its commit shows is the experiment whose commit is the nearest below it in the lab's clone. A
    parent that is named stands where the clone lacks one of the commits, and where the idea is a patch.

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
    """That its parent is another one than it named, and why its run would not begin now."""
    return " ".join(filter(None, (moved, obstacle(tag)))) or None
