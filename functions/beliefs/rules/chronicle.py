"""Changes of a tag's beliefs since the newest checkpoint of its journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from functions.beliefs.rules.evidence import ARCHIVED
from functions.swarm.rules.populations import Population
from state.belief_facts import BeliefSnapshot, JournalBelief, JournalFacts, Staff
from state.records import Hypothesis

UNKNOWN = 0.5
"""P of a hypothesis before its first result, by the prior Beta(2, 2)."""


@dataclass(frozen=True)
class Chapter:
    """The content of a checkpoint."""

    before: BeliefSnapshot
    now: BeliefSnapshot
    moved: Sequence[tuple[Hypothesis, float]]
    """Hypotheses with their P at the last checkpoint, the largest movement first."""
    eliminated: Sequence[Hypothesis]
    """Those that lost their workers because they are refuted or irrelevant."""
    proposed: Sequence[Hypothesis]
    """Those that were proposed or reopened."""
    restaffed: Sequence[str]
    """Ids of populations whose workers, target or strategy have changed: present ones, then those that ended."""


def is_due(facts: JournalFacts, results: int | None) -> bool:
    """Whether to write a checkpoint: something is new, and no checkpoint covers this many results."""
    return facts.version > facts.before.version and (results is None or facts.before.results < results)


def snapshot(facts: JournalFacts) -> BeliefSnapshot:
    """The present state of the tag, for comparison with the next checkpoint."""
    return BeliefSnapshot(
        number=facts.before.number + 1,
        at=facts.now,
        version=facts.version,
        results=facts.results,
        references=facts.references,
        beliefs={h.hypothesis_id: _stand(h) for h in facts.hypotheses},
        populations=_staffs(facts),
    )


def chapter(facts: JournalFacts) -> Chapter:
    """The content of the next checkpoint."""
    before, now = facts.before, snapshot(facts)
    earlier = {h.hypothesis_id: before.beliefs.get(h.hypothesis_id) for h in facts.hypotheses}
    shown = [
        h
        for h in facts.hypotheses
        if h.settled not in ARCHIVED or earlier[h.hypothesis_id] != now.beliefs[h.hypothesis_id]
    ]
    moved = [(h, then.posterior_mean if (then := earlier[h.hypothesis_id]) else UNKNOWN) for h in shown]
    staffed = [*now.populations, *(name for name in before.populations if name not in now.populations)]
    return Chapter(
        before,
        now,
        sorted(moved, key=lambda m: -round(abs(now.beliefs[m[0].hypothesis_id].posterior_mean - m[1]), 6)),
        eliminated=[h for h in shown if h.settled in ARCHIVED],
        proposed=[h for h in facts.hypotheses if _is_new(h, earlier[h.hypothesis_id])],
        restaffed=[name for name in staffed if before.populations.get(name) != now.populations.get(name)],
    )


def _is_new(h: Hypothesis, earlier: JournalBelief | None) -> bool:
    """Whether it was proposed or reopened since the last checkpoint."""
    return earlier is None or (earlier.settled in ARCHIVED and h.settled not in ARCHIVED)


def _stand(h: Hypothesis) -> JournalBelief:
    return JournalBelief(h.probability, h.n_experiments, h.status, h.settled)


def _staffs(facts: JournalFacts) -> dict[str, Staff]:
    workers: dict[str, list[str]] = {name: [] for name in facts.populations}
    for worker, population in sorted(facts.assigned.items()):
        if population in workers:
            workers[population].append(worker)
    given = ((name, Population.read(text)) for name, text in facts.populations.items())
    return {name: Staff(p.statement, p.strategy, p.target, workers[name]) for name, p in given}
