"""A tag's beliefs in memory, changed by the rules of hypothesis::learn and related functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functions.beliefs.rules.concluding import concerned, finished_run, learned
from functions.beliefs.rules.declaring import adapted, begun, irrelevant_dimension
from functions.beliefs.rules.sharing import shared_out, texts
from functions.swarm.rules.dimensions import frozen, with_one
from state.belief_facts import BeliefFacts, Learning, LearningFacts, ProposalFacts, StoredEvidence
from state.facts import Spread
from state.hypotheses import REFERENCES
from state.policy import Policy
from state.program_facts import EarlyFacts
from state.records import Dimension, Experiment, Hypothesis, Tag


class BeliefsInMemory:
    """Hypotheses, populations and dimensions of a tag."""

    def __init__(self, tag: Tag, policy: Policy, dimensions: Sequence[Dimension]) -> None:
        self.tag = tag
        self.policy = policy
        self.dimensions = [*dimensions]
        self.dimensions_version = 1
        self.open: dict[str, Hypothesis] = {}
        self.archived: dict[str, Hypothesis] = {}
        self.populations: dict[str, str] = {}
        """Their texts by id."""
        self.results = self.allocated_at = self.allocations = self.version = 0
        self._kept: dict[str, StoredEvidence] = {}
        self._references: list[str] = []

    @property
    def all(self) -> list[Hypothesis]:
        return [*self.open.values(), *self.archived.values()]

    def begin(self, claims: Sequence[Hypothesis] | None = None) -> None:
        """Do hypothesis::bootstrap, before any worker has joined; `claims` replace the default ones."""
        facts = ProposalFacts(**self._facts(0.0, 0), archived=[], best_config={})
        self.open = {h.hypothesis_id: h for h in (begun(facts) if claims is None else claims)}
        self._share_out(texts(shared_out(facts, [*self.open.values()], {})))

    def learn(
        self, run: Experiment, noise: Spread, best_config: dict[str, Any], workers: int, now: float
    ) -> Learning:
        """Learn from a run, as hypothesis::learn does; answers the changes."""
        if not self.open:
            return Learning()
        facts = LearningFacts(
            **self._facts(now, workers),
            run=run,
            is_learned=False,
            best_config=best_config,
            references=self._references,
            noise=noise,
            reprieved={},
        )
        ended = finished_run(run, facts)
        kept = {
            name: self._kept.get(name, StoredEvidence())
            for name in (concerned(ended, facts) if ended else [])
        }
        learning = learned(ended, facts, kept)
        self.results += 1
        for name, (after, its) in learning.changed.items():
            self.open[name], self._kept[name] = after, its
        for name in learning.archived:
            self.archived[name] = self.open.pop(name)
        if learning.reference is not None:
            self._references = [*self._references, learning.reference][-REFERENCES:]
        if learning.populations is not None:
            self._share_out(dict(learning.populations))
        for name in learning.settled:
            self._freeze((self.open | self.archived)[name], best_config, now)
        return learning

    def facts(self, workers: int, now: float) -> BeliefFacts:
        """The facts that state.hypotheses reads of a tag."""
        return BeliefFacts(**self._facts(now, workers))

    def early(
        self,
        running: Sequence[Experiment],
        ended: Sequence[Experiment],
        noise: Spread,
        best_config: dict[str, Any],
        workers: int,
        now: float,
    ) -> EarlyFacts:
        """The facts that state.programs reads for a prediction."""
        return EarlyFacts(
            **self._facts(now, workers),
            best_config=best_config,
            references=self._references,
            noise=noise,
            reprieved={},
            kept={name: self._kept.get(name, StoredEvidence()) for name in self.open},
            running=running,
            ended=ended,
        )

    def _share_out(self, populations: dict[str, str]) -> None:
        self.populations, self.allocated_at = populations, self.results
        self.allocations += 1

    def _freeze(self, h: Hypothesis, best_config: dict[str, Any], now: float) -> None:
        """Freeze an irrelevant dimension, as dimension::freeze_irrelevant and hypothesis::bootstrap do."""
        name = irrelevant_dimension(h)
        before = next((d for d in self.dimensions if d.name == name and not d.frozen), None)
        if name is None or before is None:
            return
        after = frozen(before, h.reference_config[name], by="nightjar", at=now, reason="it is irrelevant")
        assert after is not None
        self.dimensions = with_one(self.dimensions, after)
        self.dimensions_version += 1
        facts = ProposalFacts(
            **self._facts(now, 0), archived=[*self.archived.values()], best_config=best_config
        )
        self.open |= {each.hypothesis_id: each for each in adapted(facts)}

    def _facts(self, now: float, workers: int) -> dict[str, Any]:
        return {
            "now": now,
            "tag": self.tag,
            "policy": self.policy,
            "dimensions": self.dimensions,
            "version": self.version,
            "open": [*self.open.values()],
            "active_workers": workers,
            "populations": self.populations,
            "results": self.results,
            "allocated_at": self.allocated_at,
            "allocations": self.allocations,
        }
