"""Transfers: a keep and its reference run in pairs at a longer budget, in a tag of their own."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import Field

from functions.experiments.rules.entering import scripts_of_run
from functions.experiments.views.hints import alive
from functions.formats.constants import lengthened
from functions.kernel.clone import Code, WholeCode, scripts_of
from functions.kernel.contract import Call, Command, On, Response, function
from functions.kernel.off_loop import Children
from functions.trust.rules.certifying import begun, reference_of
from functions.trust.rules.transferring import certificate_of, ended, judged, planned, why_not
from state.errors import Conflict, Invalid
from state.experiments import Experiments
from state.facts import TrainFacts
from state.ids import ExperimentId
from state.ids import Tag as TagName
from state.noise import unseeded
from state.policy import Policy
from state.records import NO_CHANGE, OPEN, Experiment, Tag, Transfer
from state.settings import Settings
from state.tags import Tags
from state.trust import Certificates, Transfers

log = logging.getLogger(__name__)

# -- Code of a tag that runs again in a tag of its own, under the same conditions: for transfers and distillations.

POLICY = {
    "keep_rule": "strict",
    "baseline_first": False,
    "baseline_repeats": 0,
    "max_retests": 0,
    "traces.mode": "single",
    "stopping.rule": "none",
    "on_abort": "advise",
}
"""Differences from the policy of the tag: each run has its whole time, and none is repeated by itself."""


async def free_name(tag: str, what: str, taken: Collection[str], tags: Tags) -> str:
    """The name of a new tag beside this one."""
    nth = 1
    while (name := f"{tag[:28]}-{what}{nth}") in taken or await tags.existing(name) is not None:
        nth += 1
    return name


SAME = {"base_commit", "evaluator", "evaluator_files", "evaluator_command", "hidden_split"}
"""Fields of a tag that the one beside it shares."""


async def open_beside(into: str, tag: Tag, policy: Policy, call: Call) -> None:
    """Open the tag of the runs, unless it is open."""
    body = {
        "tag": into,
        "metric": {"name": tag.metric, "direction": tag.direction},
        **tag.model_dump(include=SAME),
        "policy": policy.model_dump(mode="json"),
    }
    try:
        await call.invoke("experiment::setup", body)
    except Conflict:
        log.info("%s is open already", into)


async def codes_of(found: Sequence[Experiment], experiments: Experiments) -> dict[str, WholeCode]:
    """The code of each of these experiments. Raises Invalid: a patch is lost."""
    patches = await experiments.patches_named([e.diff_id for e in found])
    codes = dict[str, WholeCode]()
    for e, patch in zip(found, patches, strict=True):
        if patch is None and (e.diff_id is None or not e.is_unpatched):
            raise Invalid(
                f"the patch of {e.experiment_id} is not in the lab", hint="retract it, or restore it"
            )
        slots = (await experiments.train_facts(e.experiment_id)).slots if e.config_delta else ()
        scripts = next(iter(scripts_of_run(slots, (), e.gpu_id)), ()) if e.config_delta else ()
        codes[e.experiment_id] = WholeCode(
            patch or NO_CHANGE, unseeded(e.config_delta) or {}, scripts or ("train.py",)
        )
    return codes


async def submit_beside(into: str, code: WholeCode, what: str, of: Mapping[str, Any], call: Call) -> str:
    """The experiment of some code, the same however often it is asked for. Each has a seed of its own.

    `of`: fields that its submission has otherwise.
    """
    digest = hashlib.sha1(what.encode() + code.patch, usedforsecurity=False).hexdigest()
    body = {
        "tag": into,
        "hypothesis": "The score stays the same.",
        "category": "ablation",
        "commit_sha": digest,
        "diff_summary": what,
        "diff": code.patch.decode(),
        "config_delta": dict(code.constants) or None,
        "seed": int(digest[:7], 16),
        "agent": "distil",
        "request_id": f"{into}.{digest}",
        **of,
    }
    return str((await call.invoke("experiment::submit", body))["experiment_id"])


@dataclass(frozen=True)
class Transferring:
    transfers: Transfers
    certificates: Certificates
    experiments: Experiments
    tags: Tags
    settings: Settings


class TransferKeep(Command):
    experiment_id: ExperimentId
    budget: str = Field(
        "4x",
        pattern=r"^[0-9]{1,9}(\.[0-9]{1,9})?x?$",
        description="seconds of a run, or a multiple of the keep's own budget",
        examples=["4x", "1200"],
    )
    against: ExperimentId | None = Field(
        None,
        description="the reference experiment; default: the tag's baseline, else what it was compared with",
        examples=["mar11-1"],
    )
    begin: bool = Field(False, description="begin it; otherwise only the plan with its budget is answered")


class TransferShown(Response):
    transfer: Transfer
    hours: float
    """Hours for all runs on one GPU, at most."""


@function("trust::transfer", role="operator", writes=True)
async def transfer(
    request: TransferKeep, call: Call, transferring: Transferring, children: Children
) -> TransferShown:
    """Plan or begin runs of a keep and its reference at a longer budget, or show them; safe to repeat."""
    experiments, transfers = transferring.experiments, transferring.transfers
    facts = await experiments.train_facts(request.experiment_id)
    e = facts.experiment
    against = request.against or reference_of(e, facts.tag)
    reference, known = (await experiments.train_facts(against)).experiment, await transfers.all()
    into = await free_name(e.tag, "transfer", [one.into for one in known], transferring.tags)
    one = planned(e, reference, facts.tag, request.budget, known, into)
    if one.state == "planned":
        _slot(facts, transferring.settings)
    if request.begin and one.state == "planned":
        await transfers.put(None, one.model_copy(update={"state": "running"}))
        one = await transfers.get(one.into)
    if request.begin:
        one = await _go_on(one, call, transferring, children)
    return TransferShown(transfer=one, hours=one.most_runs * one.budget_s / 3600)


class FollowTransfers(Command):
    tag: TagName


class FollowedTransfers(Response):
    running: list[str]
    """Keeps whose transfer is undecided."""


@function(
    "trust::follow_transfers",
    On(
        *("transfer.begun", "experiment.finished", "experiment.lost", "experiment.retracted"),
        "certificate.decided",
        debounce="tag",
    ),
    role="operator",
    writes=True,
)
async def follow_transfers(
    request: FollowTransfers, call: Call, transferring: Transferring, children: Children
) -> FollowedTransfers:
    """Take the steps that ended runs allow transfers: the first pair, its test, or a label. Safe to repeat."""
    running = []
    for one in await transferring.transfers.all():
        if request.tag in (one.tag, one.into):
            one = await _go_on(one, call, transferring, children)
            if one.state == "running":
                running.append(one.experiment_id)
    return FollowedTransfers(running=running)


def _slot(facts: TrainFacts, settings: Settings) -> str | None:
    """The slot that both codes wait for: it has the keep's class of GPU. None: all slots have it.

    Raises:
        Conflict: no live worker has that class.
    """
    e, workers = facts.experiment, alive(facts.slots, facts.now, settings.stale_s)
    slots = [slot for slot in facts.slots if slot.gpu_id in workers]
    fit = [s for s in slots if s.gpu_name == e.gpu_class and (s.is_confined or not facts.tag.hidden_split)]
    if not fit:
        raise Conflict(
            f"no worker of the lab serves the class {e.gpu_class!r}, on which {e.experiment_id} was measured",
            hint="start one there: ./nightjar worker",
        )
    return None if len(fit) == len(slots) else fit[0].gpu_id


async def _go_on(one: Transfer, call: Call, transferring: Transferring, children: Children) -> Transfer:
    """Take every step of a transfer until runs are awaited. A label is taken back with a retracted run."""
    while one.state in ("running", "transfers"):
        after = await _after(one, call, transferring, children)
        if after == one:
            return one
        await transferring.transfers.put(one, after)
        one = await transferring.transfers.get(one.into)
    return one


async def _after(one: Transfer, call: Call, transferring: Transferring, children: Children) -> Transfer:
    """The transfer after its next step; unchanged: runs are awaited."""
    experiments, certificates = transferring.experiments, transferring.certificates
    compared = await experiments.many([one.experiment_id, one.against])
    known = await certificates.all(one.into)
    if gone := next((e.experiment_id for e in compared if e.status == "retracted"), None):
        copies = [name for name in (one.candidate, one.reference) if name and one.state == "running"]
        for e in await experiments.many(copies):
            of_it = {"experiment_id": e.experiment_id, "reason": f"{gone} was retracted"}
            with suppress(Conflict):  # it has ended otherwise
                await call.invoke(f"experiment::{'stop' if e.status in OPEN else 'retract'}", of_it)
        return ended(one, f"{gone} was retracted")
    if one.candidate is None or one.reference is None:
        return await _submitted(one, compared, call, transferring, children)
    if known:
        return judged(one, known[0])
    candidate, reference = await experiments.many([one.candidate, one.reference])
    if candidate.status in OPEN or reference.status in OPEN:
        return one
    if (why := why_not(one, candidate, reference)) is not None:
        return ended(one, why)
    asked = certificate_of(one, candidate, reference, await transferring.tags.get(one.into))
    return judged(one, await certificates.begin(one.candidate, one.reference, partial(begun, asked)))


async def _submitted(
    one: Transfer, compared: list[Experiment], call: Call, transferring: Transferring, children: Children
) -> Transfer:
    """Open the tag of the runs, and submit the code of both, the reference first."""
    facts = await transferring.experiments.train_facts(one.experiment_id)
    # a longest time that the policy names is one of the shorter budget
    longer = {"budgets.base_s": one.budget_s, "budgets.max_timeout_s": None}
    submissions = []
    try:
        slot, codes = _slot(facts, transferring.settings), await codes_of(compared, transferring.experiments)
        for e in reversed(compared):
            code = await _lengthened(one, e, codes[e.experiment_id], facts, transferring, children)
            what = f"{e.experiment_id} at {one.budget_s:g} s, beside {one.experiment_id}"
            of = {"commit_sha": e.commit_sha, "hypothesis": what, "agent": "transfer", "gpu_id": slot}
            submissions.append((code, what, of))
        await open_beside(one.into, facts.tag, facts.policy.changed(POLICY | longer), call)
        reference, candidate = [
            await submit_beside(one.into, code, what, of, call) for code, what, of in submissions
        ]
    except (Conflict, Invalid) as problem:
        return ended(one, problem.detail)
    return one.model_copy(update={"candidate": candidate, "reference": reference})


async def _lengthened(
    one: Transfer,
    e: Experiment,
    code: WholeCode,
    facts: TrainFacts,
    transferring: Transferring,
    children: Children,
) -> WholeCode:
    """The code with the longer budget in the constants that hold one. Others read NIGHTJAR_BUDGET_S."""
    scripts = scripts_of_run(facts.slots, (), e.gpu_id) - {()}
    clone = transferring.settings.clone
    if clone is None or not scripts:
        return code
    found = await scripts_of(
        clone,
        children,
        Code(e.commit_sha, facts.tag.base_commit, code.patch, code.constants, scripts=scripts),
    )
    constants, times = dict(code.constants), one.budget_s / one.own_budget_s
    for text in found:
        constants |= await asyncio.to_thread(lengthened, text, code.constants, times)
    return WholeCode(code.patch, constants, code.scripts)
