"""Distilling: the smallest patch with the score of a tag's best, found by leaving out one keep's change at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from functions.experiments.rules.gains import chain
from functions.experiments.rules.opening import is_base_code
from functions.formats.patches import text_of
from functions.kernel.clone import WholeCode, lacks, lines_between, recombined
from functions.kernel.contract import Call, Command, On, Request, Response, function
from functions.kernel.off_loop import Children, statistics_loaded
from functions.trust.certificates import begin_run
from functions.trust.rules.distilling import (
    Finish,
    LeaveOut,
    RepeatRun,
    dropped,
    finished,
    following,
    left_out,
    most_runs,
)
from functions.trust.rules.noise import near_margin
from functions.trust.transferring import POLICY, codes_of, free_name, open_beside, submit_beside
from state.errors import Conflict, Invalid, Unavailable
from state.experiments import Experiments
from state.ids import Tag as TagName
from state.records import NO_CHANGE, ChainChange, Distillation
from state.reports import NightFacts, Reports
from state.settings import Settings
from state.tags import Policies, Tags
from state.trust import Distillations

log = logging.getLogger(__name__)
T = TypeVar("T")

BASE = WholeCode(NO_CHANGE, {})


@dataclass(frozen=True)
class Distilling:
    distillations: Distillations
    experiments: Experiments
    reports: Reports
    tags: Tags
    policies: Policies
    settings: Settings


class Distil(Command):
    tag: TagName
    begin: bool = Field(False, description="begin it; otherwise only the plan with its budget is answered")


class DistillationShown(Response):
    distillation: Distillation
    runs: int
    """Runs that were begun."""
    hours: float
    """Estimated hours for all runs on one GPU."""


@function("trust::distil", role="operator", writes=True, costly=True)
async def distil(
    request: Distil, call: Call, distilling: Distilling, children: Children
) -> DistillationShown:
    """Plan or begin the distillation of a tag's chain of keeps, or show the one of its best; safe to repeat."""
    known, night = await asyncio.gather(
        distilling.distillations.all(request.tag), distilling.reports.night(request.tag)
    )
    best_id = night.best.experiment.experiment_id if night.best else None
    one = next((one for one in reversed(known) if one.best == best_id and one.state != "stopped"), None)
    if one is None:
        one = await _planned(night, distilling, children)
    if request.begin and one.state == "planned":
        if under_way := [each.into for each in known if each.state == "running"]:
            raise Conflict(
                f"an older chain of {request.tag!r} is being distilled in {under_way[0]}", hint="wait for it"
            )
        one = one.model_copy(update={"state": "running"})
        await distilling.distillations.put(None, one)
        one = await distilling.distillations.get(one.into)
    if request.begin:
        one = await _go_on(one, call, distilling, children)
    return DistillationShown(distillation=one, runs=one.runs, hours=one.most_runs * one.run_s / 3600)


class ReadDistilled(Request):
    tag: TagName


class Distilled(Response):
    distillation: Distillation | None
    """The newest one; null: there is none."""
    commit_of: str | None
    """The experiment whose code is the smallest patch; null: it is not known yet."""
    patches: list[str]
    """One patch against the base commit for each of `parts`."""


@function("trust::distilled", role="viewer", costly=True)
async def distilled(request: ReadDistilled, distilling: Distilling, children: Children) -> Distilled:
    """The newest distillation of a tag, with a patch for each independent change."""
    await distilling.tags.get(request.tag)  # NotFound, if there is none
    known = await distilling.distillations.all(request.tag)
    one, patches = known[-1] if known else None, list[str]()
    if one is not None and one.parts:
        code = await _chain_code(one, distilling, children)
        patches = [text_of(await code.patch(BASE, code.changes(part))) or "" for part in one.parts]
    smallest = one.smallest if one is not None and one.state == "done" else None
    return Distilled(distillation=one, commit_of=smallest, patches=patches)


class FollowDistilling(Command):
    tag: TagName


class FollowedDistilling(Response):
    running: bool
    """Whether runs of this tag belong to a distillation that goes on."""


@function(
    "trust::follow_distilling",
    On(*("distil.begun", "experiment.finished", "experiment.retested", "experiment.lost"), debounce="tag"),
    role="operator",
    writes=True,
)
async def follow_distilling(
    request: FollowDistilling, call: Call, distilling: Distilling, children: Children
) -> FollowedDistilling:
    """Take the steps that ended runs allow a distillation: leave out the next change, or end it. Safe to repeat."""
    for one in await distilling.distillations.all():
        if request.tag in (one.tag, one.into) and one.state == "running":
            return FollowedDistilling(
                running=(await _go_on(one, call, distilling, children)).state == "running"
            )
    return FollowedDistilling(running=False)


async def _planned(night: NightFacts, distilling: Distilling, children: Children) -> Distillation:
    """The distillation of the tag's best, before its first run.

    Raises:
        Conflict: there is no chain, or it cannot be taken apart. Invalid: the lab has no clone with the base commit.
    """
    tag, best = night.tag, night.best.experiment if night.best else None
    if best is not None and (best.worker_id is not None or not best.was_trained_here):
        raise Conflict(
            f"{best.experiment_id} was not trained by a worker of this lab",
            hint="only such chains can be run",
        )
    steps = chain(best.experiment_id if best else None, night.keeps)
    found = await distilling.experiments.many([step.keep.experiment_id for step in steps])
    of_base = {
        e.experiment_id
        for e in found
        if e.baseline or is_base_code(tag, e.commit_sha, e.config_delta, is_unpatched=e.is_unpatched)
    }
    steps = [step for step in steps if step.keep.experiment_id not in of_base]
    if best is None or not steps:
        raise Conflict(
            f"{tag.name!r} has no keep yet beside its baseline", hint="distil it after its first keep"
        )
    taken = [one.into for one in await distilling.distillations.all()]
    one = Distillation(
        tag=tag.name,
        into=await free_name(tag.name, "distil", taken, distilling.tags),
        best=best.experiment_id,
        direction=tag.direction,
        most_runs=most_runs(len(steps)),
        run_s=best.wall_seconds or best.budget_s or 0.0,
        changes=tuple(
            ChainChange(
                experiment_id=step.keep.experiment_id,
                above=above.experiment_id
                if (above := step.above) and above.experiment_id not in of_base
                else None,
                description=step.keep.description,
                lines=0,
            )
            for step in steps
        ),
    )
    code = await _chain_code(one, distilling, children)
    if await lacks(code.clone, children, code.base):
        raise Invalid(
            f"the lab's clone {code.clone} does not have the tag's base commit {code.base}",
            hint="fetch it there: distilling takes the chain apart with git",
        )
    pairs = code.changes([change.experiment_id for change in one.changes])
    lines = _told(await lines_between(code.clone, children, code.base, pairs))
    changes = tuple(
        change.model_copy(update={"lines": count}) for change, count in zip(one.changes, lines, strict=True)
    )
    return one.model_copy(update={"changes": changes})


@dataclass(frozen=True)
class ChainCode:
    """The code of a chain of keeps, and git in the lab's clone."""

    above: Mapping[str, str | None]
    """The keep that each one changed; None: the base commit."""
    codes: Mapping[str | None, WholeCode]
    """Of each keep; that of None is the base commit."""
    base: str
    clone: Path
    children: Children

    def changes(self, names: Sequence[str]) -> list[tuple[WholeCode, WholeCode]]:
        """The codes before and after each keep's own change."""
        return [(self.codes[self.above[name]], self.codes[name]) for name in names]

    async def patch(self, onto: WholeCode, changes: Sequence[tuple[WholeCode, WholeCode]]) -> bytes:
        """The patch of a code after changes. Raises Conflict: one does not apply. Unavailable: git is silent."""
        return _told(await recombined(self.clone, self.children, self.base, onto, changes))


async def _chain_code(one: Distillation, distilling: Distilling, children: Children) -> ChainCode:
    """The code of a distilled chain. Raises Invalid: the lab has no clone, or a patch is lost."""
    tag, clone = await distilling.tags.get(one.tag), distilling.settings.clone
    if clone is None or tag.base_commit is None:
        raise Invalid(
            "this lab has no clone of the project with a base commit: distilling takes the chain apart with git",
            hint="start it with `up --repo`, or set NIGHTJAR_CLONE",
        )
    keeps = await distilling.experiments.many([change.experiment_id for change in one.changes])
    codes: dict[str | None, WholeCode] = {None: BASE}
    codes.update(await codes_of(keeps, distilling.experiments))
    above = {change.experiment_id: change.above for change in one.changes}
    return ChainCode(above, codes, tag.base_commit, clone, children)


async def _go_on(one: Distillation, call: Call, distilling: Distilling, children: Children) -> Distillation:
    """Take every step of a distillation until runs are awaited."""
    while one.state == "running":
        after = await _after(one, call, distilling, children)
        if after is None:
            return one
        if after != one:
            await distilling.distillations.put(one, after)
        one = await distilling.distillations.get(one.into)
    return one


async def _after(
    one: Distillation, call: Call, distilling: Distilling, children: Children
) -> Distillation | None:
    """The state after the next step; None: runs are awaited."""
    if one.reference is None:
        return await _begun(one, call, distilling)
    experiments, trying = distilling.experiments, one.trying
    names = {one.reference, one.smallest or one.reference, *([trying.without or ""] if trying else [])}
    facts = dict(
        zip(names, await asyncio.gather(*(experiments.retest_facts(name) for name in names)), strict=True)
    )
    runs = {name: [found.experiment, *found.retests] for name, found in facts.items()}
    first = runs[one.reference][0]
    spreads = [await experiments.spread(first.model_copy(update={"tag": tag})) for tag in (one.tag, one.into)]
    if any(spread.is_known for spread in spreads):
        await statistics_loaded()
    noise = spreads[0].with_(spreads[1]).noise
    policy, _ = await distilling.policies.get(one.tag)
    match following(one, runs, noise, near_margin(policy, noise)):
        case None:
            return None
        case Distillation() as after:
            return after
        case RepeatRun(name, count):
            for nth in range(len(runs[name]) + 1, count + 1):
                await begin_run(f"{name}.{nth}", experiments)
            return one
        case LeaveOut(change):
            return await _left_out(one, change, call, distilling, children)
        case Finish():
            return finished(one, runs, noise, await _parts(one, distilling, children))


async def _begun(one: Distillation, call: Call, distilling: Distilling) -> Distillation:
    """Open the tag of the runs, and submit the code of the whole chain."""
    tag = await distilling.tags.get(one.tag)
    policy, _ = await distilling.policies.get(one.tag)
    await open_beside(one.into, tag, policy.changed(POLICY), call)
    [best] = await distilling.experiments.many([one.best])
    code = (await codes_of([best], distilling.experiments))[one.best]
    name = await submit_beside(one.into, code, f"the whole chain of {one.best}", {}, call)
    return one.model_copy(update={"reference": name, "smallest": name})


async def _left_out(
    one: Distillation, change: ChainChange, call: Call, distilling: Distilling, children: Children
) -> Distillation:
    """Submit the smallest code without this change, if git can take it out."""
    code = await _chain_code(one, distilling, children)
    smallest = await distilling.experiments.many([one.smallest or ""])
    [now] = (await codes_of(smallest, distilling.experiments)).values()
    [(before, after)] = code.changes([change.experiment_id])
    try:
        patch = await code.patch(now, [(after, before)])
    except Conflict:
        return left_out(one, change, None)
    if patch == now.patch:
        return dropped(one, change, None, "the code is the same without it")
    what = f"without {change.experiment_id}: {change.description}"
    return left_out(one, change, await submit_beside(one.into, WholeCode(patch, {}), what[:200], {}, call))


async def _parts(one: Distillation, distilling: Distilling, children: Children) -> list[list[str]]:
    """The changes that stay, by independent change."""
    code = await _chain_code(one, distilling, children)

    async def applies(names: Sequence[str]) -> bool:
        try:
            await code.patch(BASE, code.changes(names))
        except Conflict:
            return False
        return True

    return await independent([change.experiment_id for change in one.changes if change.stays], applies)


async def independent(
    names: Sequence[str], applies: Callable[[Sequence[str]], Awaitable[bool]]
) -> list[list[str]]:
    """Changes, in their order, by parts that apply to the base commit alone.

    A change that does not apply alone joins the newest part that it applies on, else all parts are one. A change that
    applies to none of these is in the smallest patch only.
    """
    parts = list[list[str]]()
    for name in names:
        ways = ([], *([part] for part in reversed(parts)), parts)
        for others in ways:
            whole = [each for part in others for each in part] + [name]
            if await applies(whole):
                parts = [part for part in parts if part not in others] + [whole]
                break
    return parts


def _told(answer: T | None) -> T:
    """What git answered. Raises Unavailable: nothing."""
    if answer is None:
        raise Unavailable(
            "git did not answer in the lab's clone", hint="the lab's log says why; it is tried again"
        )
    return answer
