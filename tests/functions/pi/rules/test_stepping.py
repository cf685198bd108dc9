"""What becomes of a draft, and how far drafts are trusted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from functions.experiments.rules.opening import swarm_tag
from functions.pi.rules.predicting import Prediction
from functions.pi.rules.stepping import (
    PipelineTerms,
    confirmed_version,
    drafted,
    is_news,
    may_deploy,
    next_step,
    wants_draft,
    written,
)
from functions.swarm.rules.populations import Population
from state.belief_facts import BeliefFacts
from state.policy import Policy
from state.program_facts import OutlierRun, PipelineFacts, PipelineState, PipelineStep, ProgramVersion
from state.records import BatchDecision, ConfirmedDraft, Hypothesis, Pipeline

TERMS = PipelineTerms(enabled=True, auto_deploy=True)
LR = BatchDecision(hypothesis_id="lr", strategy="investigate")


def hypothesis(name: str, **fields: Any) -> Hypothesis:
    return Hypothesis(hypothesis_id=name, tag="t", statement=f"{name} matters", created_at=0.0, **fields)


OUTLIER = OutlierRun(experiment_id="t-9", hypothesis_id="lr", delta_bpb=0.03, finished_at=1001.0)
HYPOTHESES = (hypothesis("lr", effects=100, effect_mu=-0.02, effect_m2=0.0099), hypothesis("depth"))
"""The runs of lr spread by 0.01 around -0.02; depth has none."""


def facts(
    p: Pipeline,
    *,
    results: int = 105,
    ticks: int = 0,
    now: float = 1000.0,
    targets: tuple[int, int] = (5, 3),
    strategy: Any = "investigate",
    ended: tuple[OutlierRun, ...] = (),
) -> PipelineFacts:
    """A tag with two hypotheses, whose populations have these targets."""
    populations = [
        Population(h.hypothesis_id, strategy, h.hypothesis_id, "", target=n)
        for h, n in zip(HYPOTHESES, targets, strict=True)
    ]
    counts: dict[str, Any] = {"results": results, "active_workers": 8, "allocated_at": 0, "allocations": 1}
    stored = {each.population_id: each.text() for each in populations}
    tag: dict[str, Any] = {
        "now": now,
        "tag": swarm_tag("t"),
        "policy": Policy(),
        "dimensions": [],
        "version": 1,
    }
    beliefs = BeliefFacts(**tag, **counts, open=HYPOTHESES, populations=stored)
    return PipelineFacts(PipelineState(now, p, results, ticks, has_program=True), beliefs, ended)


def running(**fields: Any) -> Pipeline:
    """A pipeline in its sixth batch, without a draft."""
    return Pipeline(**{"batch_id": 5, "decided": LR, **fields})


def drafting(confidence: float = 0.9, predicted: BatchDecision = LR, p: Pipeline | None = None) -> Pipeline:
    return drafted(facts(p or running()), Prediction(predicted, confidence)).after


def ready(confidence: float = 0.9, predicted: BatchDecision = LR, p: Pipeline | None = None) -> Pipeline:
    p = drafting(confidence, predicted, p)
    assert p.draft is not None
    step = written(p, p.draft.number, "the program")
    assert step is not None
    return step.after


def step_of(p: Pipeline, **stands: Any) -> PipelineStep:
    step = next_step(facts(p, **stands), TERMS)
    assert step is not None
    return step


def test_a_draft_begins_after_ten_ticks_of_a_batch_and_not_before() -> None:
    p = running(ticks_drafted=70)
    assert not wants_draft(facts(p, ticks=79).stand, TERMS)
    assert wants_draft(facts(p, ticks=80).stand, TERMS)


def test_a_draft_that_came_true_is_confirmed_as_its_batch_ends_and_adds_trust() -> None:
    step = step_of(ready(), results=120, ticks=33)
    assert (step.kind, step.after.batch_id, step.after.confirmed_count) == ("confirmed", 6, 1)
    assert step.after.bank == pytest.approx(0.58)
    assert step.after.draft is not None
    assert step.after.draft.state == "confirmed"
    assert (step.after.ticks_before, step.after.ticks_drafted) == (33, 33)


@pytest.mark.parametrize(
    ("stands", "reason"),
    [
        ({"results": 120, "strategy": "exploit"}, "mismatch"),
        ({"results": 120, "targets": (3, 5)}, "mismatch"),
        ({"targets": (3, 5)}, "hypothesis_flip"),
        ({"now": 1601.0}, "age"),
        ({"ended": (OUTLIER,)}, "outlier"),
    ],
)
def test_a_draft_that_does_not_hold_is_flushed_and_takes_trust(stands: dict[str, Any], reason: str) -> None:
    step = step_of(ready(p=running(bank=0.9)), **stands)
    assert (step.kind, step.data["reason"]) == ("flushed", reason)
    assert step.after.draft is None
    assert (step.after.last_flush_token, step.after.flush_count) == ("t-spec-1", 1)
    assert step.after.bank == pytest.approx(0.7)


@pytest.mark.parametrize("hypothesis_id", ["lr", "depth"])
def test_a_hypothesis_that_leads_as_predicted_or_as_before_is_no_flip(hypothesis_id: str) -> None:
    p = ready(predicted=BatchDecision(hypothesis_id="depth", strategy="investigate"))
    targets = (5, 3) if hypothesis_id == "lr" else (3, 5)
    assert next_step(facts(p, targets=targets), TERMS) is None


def outlier(delta: float | None = 0.5, at: float = 1001.0, of: str = "lr", **more: Any) -> OutlierRun:
    its = {"hypothesis_id": of, "delta_bpb": delta, "finished_at": at, **more}
    return OUTLIER.model_copy(update=its)


BEFORE, REFERENCE = outlier(at=999.0), outlier(is_reference=True)


@pytest.mark.parametrize(
    "ended",
    [outlier(0.019), BEFORE, REFERENCE, outlier(of="depth"), outlier(None)],
    ids=["within 4 sigma", "before the draft", "of the reference", "of a claim without runs", "crashed"],
)
def test_what_no_runs_contradict_is_no_outlier(ended: OutlierRun) -> None:
    assert next_step(facts(ready(), ended=(ended,)), TERMS) is None


def test_a_text_for_another_draft_or_a_second_one_is_not_taken() -> None:
    assert written(drafting(), 2, "of another one") is None
    assert written(ready(), 1, "again") is None
    assert written(running(), 1, "flushed") is None


def test_trust_stays_between_0_and_1() -> None:
    assert step_of(ready(p=running(bank=0.97)), results=120).after.bank == 1.0
    assert step_of(ready(p=running(bank=0.1)), now=2000.0).after.bank == 0.0


def test_three_confirmed_drafts_are_enough_trust_to_deploy_the_next_one() -> None:
    p, results = running(), 100
    for _ in range(3):
        results += 20
        p = step_of(ready(p=p), results=results).after
    assert p.bank == pytest.approx(0.74)
    assert may_deploy(p, TERMS)
    assert may_deploy(ready(p=p), TERMS)
    assert not may_deploy(drafting(p=p), TERMS)


@pytest.mark.parametrize(
    ("p", "terms"),
    [
        (ready(p=running(bank=0.69)), TERMS),
        (ready(0.64, p=running(bank=0.9)), TERMS),
        (ready(p=running(bank=0.9)), replace(TERMS, enabled=False)),
        (ready(p=running(bank=0.9)), replace(TERMS, auto_deploy=False)),
        (running(bank=0.9), TERMS),
    ],
    ids=["little trust", "little confidence", "switched off", "not asked for", "no draft"],
)
def test_nothing_is_deployed_with(p: Pipeline, terms: PipelineTerms) -> None:
    assert not may_deploy(p, terms)


def version(results: int, strategy: str, at: float, reason: str = "50 results came") -> ProgramVersion:
    return ProgramVersion(1, at, "templates", reason, results, strategy, "text", "digest")


DRAFTED = version(110, "exploit", 500.0, "drafted ahead as t-spec-1")
CONFIRMED = confirmed_version(DRAFTED, ConfirmedDraft(spec_id="t-spec-1", at=1000.0, strategy="falsify"))
"""Drafted after 110 results, and confirmed as most workers had begun to falsify."""


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        (version(100, "falsify", 400.0), True),
        (version(115, "exploit", 900.0), True),
        (version(115, "falsify", 900.0), False),
        (version(121, "converge", 1001.0), False),
    ],
    ids=["before the draft", "with the strategy of before", "with the one of now", "after the confirmation"],
)
def test_a_confirmed_draft_is_news_over(current: ProgramVersion, expected: bool) -> None:
    assert is_news(CONFIRMED, current) is expected
