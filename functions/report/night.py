"""report::night is the report of a night: progress, kept changes and failures."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pydantic import Field

from functions.children import Children
from functions.contract import Request, Response, function
from functions.report._git_diff import own_changes
from functions.rules.keeps.gains import ChainStep, chain
from functions.rules.keeps.noise import near_scores
from functions.views.night_markdown import markdown
from functions.views.nights import NightView, night_view
from state.experiments import Experiments
from state.ids import Tag
from state.records import NO_CHANGE
from state.reports import Reports

MOST_CHANGES = 20
"""Keeps whose own change is shown: the last ones."""


class ReadNight(Request):
    tag: Tag
    changes: bool = Field(True, description="show what each keep changed beside the one it was made from")
    picture: str | None = Field(
        None,
        max_length=200,
        pattern=r"^[A-Za-z0-9._/-]+$",
        description="the file of the plot that the Markdown names; without it a chart of the keeps is drawn",
        examples=["progress.png"],
    )


class Night(Response, NightView):
    markdown: str
    """All of it as a report, fit for a pull request."""


@dataclass(frozen=True)
class NightStores:
    """Stores of the report."""

    reports: Reports
    experiments: Experiments


@function("report::night", role="viewer", costly=True)
async def night(request: ReadNight, stores: NightStores, children: Children) -> Night:
    """The night's progress, its chain of keeps with the change of each, and its failures."""
    facts = await stores.reports.night(request.tag)
    best_id = facts.best.experiment.experiment_id if facts.best else None
    steps = chain(best_id, facts.keeps)
    compared = {step.keep.experiment_id for step in steps} | {facts.tag.baseline_id or ""}
    shown = steps[-MOST_CHANGES:] if request.changes else []
    near, runs, changes = await asyncio.gather(
        stores.reports.nearest(facts, near_scores),
        stores.experiments.runs(sorted(compared)),
        _changes(shown, stores.experiments, children),
    )
    seen = night_view(facts, near, steps, runs, changes)
    return Night(**dict(seen), markdown=markdown(seen, request.picture))


async def _changes(
    steps: list[ChainStep], experiments: Experiments, children: Children
) -> dict[str, str | None]:
    """Each keep's own change, by its id."""
    new = [step for step in steps if not step.keep.baseline]
    keeps = [step.keep for step in steps] + [step.above for step in steps[:1] if step.above]
    names = {keep.diff_id for keep in keeps}
    patches = dict(zip(names, await experiments.patches_named([*names]), strict=True))
    found = await own_changes([(_above(step, patches), patches[step.keep.diff_id]) for step in new], children)
    return {step.keep.experiment_id: change for step, change in zip(new, found, strict=True)}


def _above(step: ChainStep, patches: dict[str | None, bytes | None]) -> bytes | None:
    """The patch of the keep that it changed: empty for the base commit, None if it is not known."""
    return NO_CHANGE if step.above is None or step.above.baseline else patches[step.above.diff_id]
