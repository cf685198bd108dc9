"""What the results of a tag say once its running batch has decided what it is predicted to."""

from __future__ import annotations

from dataclasses import replace

from functions.rules.program.findings import Findings
from state.belief_facts import BeliefFacts
from state.program_facts import ProgramVersion
from state.records import Confirmed, Draft


def foreseen(findings: Findings, draft: Draft, beliefs: BeliefFacts) -> Findings:
    """The findings of now, with the strategy and the leading claim that the draft predicts."""
    leading = next((h for h in beliefs.open if h.hypothesis_id == draft.predicted.hypothesis_id), None)
    claim = "a claim that is settled by now" if leading is None else leading.statement
    return replace(findings, strategy=draft.predicted.strategy, why=f"most workers test the claim `{claim}`")


def confirmed_version(drafted: ProgramVersion, confirmed: Confirmed) -> ProgramVersion:
    """A draft as it was confirmed: it is written for what most workers did then, which may be another strategy."""
    return replace(drafted, at=confirmed.at, strategy=confirmed.strategy)


def is_news(confirmed: ProgramVersion, current: ProgramVersion) -> bool:
    """Whether a confirmed draft says more than the current version, which may be itself, or one of later results."""
    if confirmed.reason == current.reason or current.at >= confirmed.at:
        return False
    return confirmed.strategy != current.strategy or confirmed.results >= current.results
