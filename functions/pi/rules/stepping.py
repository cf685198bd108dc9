"""Life of the draft of a tag's next program, and the trust in drafts.

    none -> drafting -> ready -> confirmed      what was predicted is what its batch decided
                     \\-> flushed               by a mismatch, a flip, an outlier, its age, or an operator

A draft that is not ready when its batch ends is dropped. It counts as neither a hit nor a flush.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from functions.beliefs.rules.sharing import is_over
from functions.pi.rules.findings import Findings, strategy_of_most
from functions.pi.rules.predicting import Prediction, decided
from functions.swarm.rules.populations import Population
from state.belief_facts import BeliefFacts
from state.program_facts import PipelineFacts, PipelineState, PipelineStep, ProgramVersion
from state.records import (
    BatchDecision,
    ConfirmedDraft,
    Draft,
    Expected,
    FlushReason,
    Hypothesis,
    Pipeline,
    score,
)

CONFIRMED_ADDS: Final = 0.08
FLUSHED_TAKES: Final = 0.20
SIGMAS: Final = 4.0
"""Distance of an outlier from the value that its hypothesis' runs predict."""
ENOUGH_EFFECTS: Final = 10
"""Runs of a hypothesis that a prediction needs."""

DRAFT_AFTER = 10
"""Progress reports of a batch, at a tenth and each fifth of a run, after which its draft begins."""
OLDEST_S = 600.0
"""Seconds after which the draft of an unfinished batch is flushed."""


@dataclass(frozen=True)
class PipelineTerms:
    enabled: bool = False
    auto_deploy: bool = False
    batch_every: int = 20
    """Results of a batch."""
    least_confidence: float = 0.65
    """Least confidence, 0 to 1, of a draft that is deployed before it is confirmed."""
    least_bank: float = 0.70
    """Least trust in drafts, 0 to 1, for such a deployment."""


# -- state


def may_deploy(p: Pipeline, terms: PipelineTerms) -> bool:
    """Whether workers may follow the draft at once."""
    return (
        terms.enabled
        and terms.auto_deploy
        and p.draft is not None
        and p.draft.state in ("ready", "confirmed")
        and p.draft.confidence >= terms.least_confidence
        and p.bank >= terms.least_bank
    )


def hit_rate(p: Pipeline) -> float | None:
    """Share of the drafts that were confirmed; None: none was confirmed or flushed."""
    judged = p.confirmed_count + p.flush_count
    return p.confirmed_count / judged if judged else None


# -- when a step is due


def is_due(stand: PipelineState, terms: PipelineTerms) -> bool:
    """Whether there may be a step: a batch has ended, a draft is open, or one should begin."""
    p = stand.pipeline
    if batch_of(stand.results, terms) != p.batch_id:
        return True
    return open_draft(p) is not None or wants_draft(stand, terms)


def wants_draft(stand: PipelineState, terms: PipelineTerms) -> bool:
    """Whether the running batch has enough ticks for a draft."""
    p = stand.pipeline
    return (
        stand.has_program
        and batch_of(stand.results, terms) == p.batch_id
        and open_draft(p) is None
        and stand.ticks - p.ticks_drafted >= DRAFT_AFTER
    )


def open_draft(p: Pipeline) -> Draft | None:
    """The draft that waits for its batch's end; None: there is none, or it was confirmed."""
    return None if p.draft is None or p.draft.state == "confirmed" else p.draft


def batch_of(results: int, terms: PipelineTerms) -> int:
    """Batches that have ended after so many results."""
    return results // terms.batch_every


def left_of(results: int, terms: PipelineTerms) -> int:
    """Results until the end of the batch."""
    return terms.batch_every - results % terms.batch_every


def present_decision(facts: PipelineFacts) -> BatchDecision | None:
    """The decision of the batch if it ended now."""
    opened = {h.hypothesis_id: h for h in facts.beliefs.open if not is_over(h)}
    return decided(
        map(Population.read, facts.beliefs.populations.values()), opened, facts.stand.pipeline.decided
    )


# -- steps


def next_step(facts: PipelineFacts, terms: PipelineTerms) -> PipelineStep | None:
    """The next step other than a new draft, or None. Ask again after it."""
    p, now = facts.stand.pipeline, present_decision(facts)
    draft = open_draft(p)
    if draft is not None and (far := _outlier(facts, draft)) is not None:
        return flushed(p, facts.stand, "outlier", far)
    has_ended = batch_of(facts.stand.results, terms) != p.batch_id
    if draft is not None and not has_ended:
        if facts.stand.now - draft.created_at > OLDEST_S:
            return flushed(p, facts.stand, "age")
        known = {d.hypothesis_id for d in (draft.decided, draft.predicted) if d is not None}
        if now is None or now.hypothesis_id not in known:  # a hypothesis leads that none expected
            return flushed(p, facts.stand, "hypothesis_flip", _named(now))
    if not has_ended:
        return None
    if draft is None or draft.state == "drafting":
        return PipelineStep("batch", p, _after(p, **_new_batch(facts.stand, now, terms), draft=None), {})
    if now is not None and now == draft.predicted:
        return _confirmed(draft, facts, now, terms)
    flush = flushed(p, facts.stand, "mismatch", _named(now))
    return replace(flush, after=flush.after.model_copy(update=_new_batch(facts.stand, now, terms)))


def drafted(facts: PipelineFacts, prediction: Prediction) -> PipelineStep:
    """Begin a draft."""
    p, stand = facts.stand.pipeline, facts.stand
    draft = Draft(
        number=p.specs + 1,
        spec_id=f"{facts.beliefs.tag.name}-spec-{p.specs + 1}",
        batch_id=p.batch_id,
        state="drafting",
        predicted=prediction.decision,
        decided=present_decision(facts),
        confidence=prediction.confidence,
        created_at=stand.now,
        expected=expectations(facts.beliefs.open),
    )
    after = _after(p, draft=draft, specs=p.specs + 1)
    return PipelineStep(
        "drafting", p, after, _event_data(draft, hypothesis_id=prediction.decision.hypothesis_id)
    )


def written(p: Pipeline, number: int, text: str) -> PipelineStep | None:
    """The draft is ready; None: no draft of this number is being written."""
    if p.draft is None or p.draft.number != number or p.draft.state != "drafting":
        return None
    draft = p.draft.model_copy(update={"state": "ready"})
    return PipelineStep("ready", p, _after(p, draft=draft), _event_data(draft), text)


def flushed(
    p: Pipeline, stand: PipelineState, reason: FlushReason, more: Mapping[str, Any] | None = None
) -> PipelineStep:
    """Drop the draft, because its prediction no longer holds. The next one waits for as many ticks as the first."""
    assert p.draft is not None
    after = _after(
        p,
        draft=None,
        bank=max(0.0, round(p.bank - FLUSHED_TAKES, 4)),
        flush_count=p.flush_count + 1,
        last_flush_token=p.draft.spec_id,
        ticks_drafted=stand.ticks,
    )
    return PipelineStep(
        "flushed", p, after, _event_data(p.draft, reason=reason, bank=after.bank, **(more or {}))
    )


def expectations(hypotheses: Sequence[Hypothesis]) -> dict[str, Expected]:
    """The expected value of the next run of each hypothesis that has enough runs.

    The standard deviation of a new value from the mean of n is sigma sqrt(1 + 1/n). Sigma is estimated from few runs,
    so large deviations are more frequent, by Student's t with n - 1 degrees of freedom. The `sigma` of the answer is
    scaled, so that 4 sigma are as improbable as under a normal distribution.
    """
    return {
        h.hypothesis_id: Expected(
            mean=h.effect_mu,
            sigma=_heavier(h.effects - 1) * math.sqrt(h.effect_m2 / (h.effects - 1) * (1 + 1 / h.effects)),
        )
        for h in hypotheses
        if h.effects >= ENOUGH_EFFECTS
    }


def _heavier(df: int) -> float:
    # scipy takes a while to import, and few processes need it
    from scipy.special import ndtr, stdtrit

    return float(-stdtrit(df, ndtr(-SIGMAS)) / SIGMAS)


def _confirmed(draft: Draft, facts: PipelineFacts, now: BatchDecision, terms: PipelineTerms) -> PipelineStep:
    p, stand = facts.stand.pipeline, facts.stand
    strategy = strategy_of_most(facts.beliefs.populations.values(), otherwise=now.strategy)
    after = _after(
        p,
        **_new_batch(stand, now, terms),
        draft=draft.model_copy(update={"state": "confirmed"}),
        bank=min(1.0, round(p.bank + CONFIRMED_ADDS, 4)),
        confirmed=ConfirmedDraft(spec_id=draft.spec_id, at=stand.now, strategy=strategy),
        confirmed_count=p.confirmed_count + 1,
    )
    return PipelineStep("confirmed", p, after, _event_data(draft, bank=after.bank, **_named(now)))


def _new_batch(stand: PipelineState, now: BatchDecision | None, terms: PipelineTerms) -> dict[str, Any]:
    """Changes of a pipeline when a batch begins."""
    return {
        "batch_id": batch_of(stand.results, terms),
        "ticks_before": stand.ticks,
        "ticks_drafted": stand.ticks,
        "decided": now,
    }


def _outlier(facts: PipelineFacts, draft: Draft) -> dict[str, Any] | None:
    """The first outlier since the draft began, as data of an event; None: there is none."""
    for e in reversed(facts.ended):
        expected = draft.expected.get(e.hypothesis_id or "")
        is_own = not e.is_reference and e.retest_of is None and (e.finished_at or 0.0) >= draft.created_at
        if expected is None or not is_own or e.delta_bpb is None:
            continue
        off = abs(score(e.delta_bpb, facts.direction) - expected.mean)
        if expected.sigma > 0 and off > SIGMAS * expected.sigma:
            return {"experiment_id": e.experiment_id, "sigmas": round(off / expected.sigma, 1)}
    return None


def _after(p: Pipeline, **changes: Any) -> Pipeline:
    return p.model_copy(update={"version": p.version + 1, **changes})


def _named(now: BatchDecision | None) -> dict[str, Any]:
    return {} if now is None else {"hypothesis_id": now.hypothesis_id, "strategy": now.strategy}


def _event_data(draft: Draft, **more: Any) -> dict[str, Any]:
    """Data of an event."""
    return {
        "number": draft.number,
        "spec_id": draft.spec_id,
        "batch_id": draft.batch_id,
        "confidence": draft.confidence,
        "predicted": draft.predicted.model_dump(),
        **more,
    }


# -- the text of a draft


def foreseen(findings: Findings, draft: Draft, beliefs: BeliefFacts) -> Findings:
    """The present findings with the strategy and the leading claim that the draft predicts."""
    leading = next((h for h in beliefs.open if h.hypothesis_id == draft.predicted.hypothesis_id), None)
    claim = "a claim that is settled by now" if leading is None else leading.statement
    return replace(findings, strategy=draft.predicted.strategy, why=f"most workers test the claim `{claim}`")


def confirmed_version(drafted: ProgramVersion, confirmed: ConfirmedDraft) -> ProgramVersion:
    """A draft as a version of the program, with the strategy of most workers when it was confirmed."""
    return replace(drafted, at=confirmed.at, strategy=confirmed.strategy)


def is_news(confirmed: ProgramVersion, current: ProgramVersion) -> bool:
    """Whether a confirmed draft is newer than the current version, which may be itself or one of later results."""
    if confirmed.reason == current.reason or current.at >= confirmed.at:
        return False
    return confirmed.strategy != current.strategy or confirmed.results >= current.results
