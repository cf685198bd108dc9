"""Certificates: a candidate and its reference run in pairs until a sequential test decides. And the hidden split."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydantic import Field

from functions.experiments.rules.claiming import run_asked_for
from functions.experiments.rules.entering import scripts_of_run
from functions.kernel.clone import Code, check_trainable
from functions.kernel.contract import Call, Command, OfTag, On, Response, function
from functions.kernel.off_loop import Children
from functions.kernel.rules.access import check_own
from functions.trust.rules.certifying import MOST_PAIRS, begun, following, reference_of
from functions.trust.rules.hidden import Gains, gains_of
from state.decisions import Retest
from state.errors import BudgetExhausted
from state.experiments import Experiments
from state.ids import ExperimentId, named_by
from state.ids import Tag as TagName
from state.noise import code_of
from state.records import Certificate, Tag
from state.settings import Settings
from state.tags import Tags
from state.trust import Certificates, HiddenNumbers

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Certifying:
    certificates: Certificates
    experiments: Experiments
    numbers: HiddenNumbers
    tags: Tags
    settings: Settings


class Certify(Command):
    experiment_id: ExperimentId
    against: ExperimentId | None = Field(
        None,
        description="the reference experiment; default: the tag's baseline, else what it was compared with",
        examples=["mar11-1"],
    )
    min_gain: float = Field(0.0, ge=0, description="the gain has to exceed this", examples=[0.002])
    alpha: float = Field(
        0.01, ge=1e-6, le=0.2, description="largest probability of a certificate for a gain that does not"
    )


class CertificateShown(Response):
    certificate: Certificate


@function("trust::certify", role="agent", writes=True)
async def certify(
    request: Certify, call: Call, certifying: Certifying, children: Children
) -> CertificateShown:
    """Run an experiment and a reference in pairs, on fresh seeds, until a sequential test decides; safe to repeat."""
    experiments = certifying.experiments
    facts = await experiments.retest_facts(request.experiment_id)
    e = facts.experiment
    check_own(call.caller, e.owner, e.experiment_id)
    against = request.against or reference_of(e, facts.tag)
    asked = Certificate(
        experiment_id=e.experiment_id,
        against=against,
        direction=facts.tag.direction,
        min_gain=request.min_gain,
        alpha=request.alpha,
        most_pairs=MOST_PAIRS,
        gpu_class=e.gpu_class,
    )
    for each in (facts, await experiments.retest_facts(against)):
        again = run_asked_for(each)
        await check_again(again, each.tag, experiments, certifying.settings.clone, children)
    await certifying.certificates.begin(e.experiment_id, against, partial(begun, asked))
    return CertificateShown(certificate=await _go_on(asked, certifying))


async def check_again(
    again: Retest, tag: Tag, experiments: Experiments, clone: Path | None, children: Children
) -> None:
    """Refuse to run code again on a seed that it does not take.

    Raises:
        Invalid: its script does not take the seed. Exhausted: too many others are tried.
    """
    e = again.of
    slots = (await experiments.train_facts(e.experiment_id)).slots
    code = Code(
        e.commit_sha, tag.base_commit, None, {}, again.seed, scripts_of_run(slots, (), again.pinned_gpu)
    )
    await check_trainable(clone, children, code)


class FollowCertificates(Command):
    tag: TagName


class FollowedCertificates(Response):
    running: list[str]
    """Candidates whose certificates are undecided."""


@function(
    "trust::follow_certificates",
    On(
        *("certificate.begun", "experiment.retested", "experiment.retracted"),
        *("experiment.finished", "tag.budget_changed"),
        debounce="tag",
    ),
    role="operator",
    writes=True,
)
async def follow_certificates(request: FollowCertificates, certifying: Certifying) -> FollowedCertificates:
    """Take the steps that ended runs allow a tag's certificates: a verdict, or the next pair. Safe to repeat."""
    running = []
    for one in await certifying.certificates.all(request.tag):
        if one.state not in ("running", "certified"):
            continue
        try:
            one = await _go_on(one, certifying)
        except BudgetExhausted as problem:  # a run that ends, or another budget, goes on with it
            log.warning("%s: its certificate waits: %s", one.experiment_id, problem.detail)
        if one.state == "running":
            running.append(one.experiment_id)
    return FollowedCertificates(running=running)


async def _go_on(one: Certificate, certifying: Certifying) -> Certificate:
    """Take every step of a certificate until runs are awaited.

    Raises:
        BudgetExhausted: its next run has to wait until its tag's budget has room for it.
    """
    before = None
    while True:
        now = await certifying.certificates.go_on(
            one.experiment_id,
            one.against,
            lambda found, candidate, reference, runs, at: following(
                found, candidate, reference, runs, secrets.choice(("candidate", "reference")), at
            ),
        )
        if now == before or now.state != "running":
            return now
        for name in now.pairs[-1].in_order:
            await begin_run(name, certifying.experiments, certifying.numbers)
        before = now


async def begin_run(name: str, experiments: Experiments, numbers: HiddenNumbers | None = None) -> None:
    """Begin the retest of this id, unless it was begun or its experiment taken back.

    `numbers`: of the hidden splits, where it reads the test split.
    """
    first, _ = named_by(name)
    while True:
        facts = await experiments.retest_facts(first)
        e = facts.experiment
        if e.status == "retracted" or any(run.experiment_id == name for run in facts.retests):
            return
        if facts.tag.test_split and numbers is not None:
            await numbers.take_test(e, name)
        made = await experiments.begin_retest(run_asked_for(facts))
        if made is not None and made.experiment_id == name:
            return


# -- How much of the visible gains of a tag its hidden split confirms, for operators.

KEEPS_READ = 200
"""Newest keeps that are read."""


class Shrinkage(Response, Gains):
    tag: str
    hidden_split: bool


@function("trust::shrinkage", role="operator")
async def shrinkage(request: OfTag, certifying: Certifying) -> Shrinkage:
    """Compare the gains of a tag's newest keeps with their gains on the hidden split; means alone."""
    tag = await certifying.tags.get(request.tag)
    keeps = await certifying.experiments.by_number(tag.name, "keep", KEEPS_READ) if tag.hidden_split else []
    others = await certifying.experiments.many(sorted({e.compared_with for e in keeps if e.compared_with}))
    certified = await certifying.certificates.all(tag.name) if tag.test_split else []
    codes = [code_of(e, e.best_key) for e in (*keeps, *others)]
    known = {
        gpu_class: await certifying.numbers.seen(tag.name, gpu_class, codes)
        for gpu_class in {e.gpu_class for e in keeps}
    }
    tests = await certifying.numbers.tests(tag.name)
    found = gains_of(keeps, others, known, certified, tests, tag.direction)
    return Shrinkage(tag=tag.name, hidden_split=tag.hidden_split, **found.model_dump())
