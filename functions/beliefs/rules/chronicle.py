"""Changes of a tag's beliefs since the newest checkpoint of its journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from functions.beliefs.rules.evidence import ARCHIVED
from functions.beliefs.rules.posterior import posterior
from functions.swarm.rules.populations import Population
from state.belief_facts import BeliefSnapshot, JournalBelief, JournalFacts, Staff
from state.records import Evidence, Hypothesis

UNKNOWN = 0.5
"""P of a hypothesis before its first result, by the prior Beta(2, 2)."""


@dataclass(frozen=True)
class Movement:
    """The belief in a hypothesis, now and at the last checkpoint."""

    statement: str
    prior: float
    now: JournalBelief

    @property
    def delta(self) -> float:
        return self.now.posterior_mean - self.prior


@dataclass(frozen=True)
class Elimination:
    """A hypothesis that lost its workers because it is refuted or irrelevant."""

    statement: str
    verdict: str
    evidence: Evidence | None
    """The newest evidence; None: none is kept."""


@dataclass(frozen=True)
class Restaffing:
    """A population whose workers, target or strategy have changed; `before` or `now` is None if it did not exist."""

    population_id: str
    before: Staff | None
    now: Staff | None

    @property
    def statement(self) -> str:
        staff = self.now or self.before
        return staff.statement if staff else ""

    @property
    def came(self) -> int:
        return len(self._workers(self.now) - self._workers(self.before))

    @property
    def left(self) -> int:
        return len(self._workers(self.before) - self._workers(self.now))

    @staticmethod
    def _workers(staff: Staff | None) -> set[str]:
        return set(staff.workers) if staff else set()


@dataclass(frozen=True)
class Chapter:
    """The content of a checkpoint."""

    before: BeliefSnapshot
    now: BeliefSnapshot
    movements: Sequence[Movement]
    """The largest first."""
    eliminated: Sequence[Elimination]
    proposed: Sequence[Hypothesis]
    restaffed: Sequence[Restaffing]


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


def eliminated(facts: JournalFacts) -> list[Hypothesis]:
    """Hypotheses archived since the last checkpoint."""
    before = facts.before.beliefs
    archived = (h for h in facts.hypotheses if h.settled in ARCHIVED)
    return [h for h in archived if h.hypothesis_id not in before or before[h.hypothesis_id] != _stand(h)]


def chapter(facts: JournalFacts, evidence: Mapping[str, Evidence]) -> Chapter:
    """The content of the next checkpoint; `evidence` is the newest for each of the `eliminated` hypotheses."""
    before, now = facts.before, snapshot(facts)
    archived_now = eliminated(facts)
    shown = [h for h in facts.hypotheses if h.settled not in ARCHIVED or h in archived_now]
    movements = [_movement(h, before, now) for h in shown]
    return Chapter(
        before=before,
        now=now,
        movements=sorted(movements, key=lambda m: -round(abs(m.delta), 6)),
        eliminated=[
            Elimination(h.statement, str(h.settled), evidence.get(h.hypothesis_id)) for h in archived_now
        ],
        proposed=[h for h in facts.hypotheses if _is_new(h, before)],
        restaffed=_restaffed(before.populations, now.populations),
    )


def _movement(h: Hypothesis, before: BeliefSnapshot, now: BeliefSnapshot) -> Movement:
    earlier = before.beliefs.get(h.hypothesis_id)
    return Movement(h.statement, earlier.posterior_mean if earlier else UNKNOWN, now.beliefs[h.hypothesis_id])


def _is_new(h: Hypothesis, before: BeliefSnapshot) -> bool:
    """Whether it was proposed or reopened since the last checkpoint."""
    earlier = before.beliefs.get(h.hypothesis_id)
    return earlier is None or (earlier.settled in ARCHIVED and h.settled not in ARCHIVED)


def _stand(h: Hypothesis) -> JournalBelief:
    return JournalBelief(posterior(h).posterior_mean, h.n_experiments, h.status, h.settled)


def _staffs(facts: JournalFacts) -> dict[str, Staff]:
    workers: dict[str, list[str]] = {name: [] for name in facts.populations}
    for worker, population in sorted(facts.assigned.items()):
        if population in workers:
            workers[population].append(worker)
    given = ((name, Population.read(text)) for name, text in facts.populations.items())
    return {name: Staff(p.statement, p.strategy, p.target, workers[name]) for name, p in given}


def _restaffed(before: Mapping[str, Staff], now: Mapping[str, Staff]) -> list[Restaffing]:
    """Changed populations: present ones, then those that ended."""
    names = [*now, *(name for name in before if name not in now)]
    pairs = ((name, before.get(name), now.get(name)) for name in names)
    return [Restaffing(name, then, after) for name, then, after in pairs if then != after]
