"""Hypotheses, the beliefs about them, and the populations that test them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter

from state import best_config
from state.belief_facts import BeliefFacts, Learning, LearningFacts, ProposalFacts, StoredEvidence
from state.client import Lab, time_of
from state.dimensions import dimensions_in
from state.errors import NotFound
from state.moves import Arg
from state.noise import spread_at, spread_of
from state.policy import read_policy
from state.records import Evidence, Experiment, Hypothesis
from state.refusals import no_hypothesis
from state.store import Store
from state.swarms import ACTIVE_S
from state.tags import tag_in

REFERENCES = 300
"""Newest runs of reference configs that further runs are compared with."""
CHECKPOINT_EVERY = 100
"""Number of results between two checkpoints of the journal."""
_EVIDENCE = TypeAdapter(list[Evidence])


class Hypotheses(Store):
    """The hypotheses of all tags."""

    async def all(self, tag: str) -> ProposalFacts:
        """Every hypothesis of a tag, without its evidence; one round trip.

        Raises:
            NotFound: no such tag.
        """
        reads = {
            **reading_beliefs(self._lab, tag),
            "archived": ("HVALS", self._keys("archived_hypotheses", tag)),
            "best_config": best_config.reading(self._lab, tag),
        }
        found = await self._lab.read(reads)
        return ProposalFacts(
            **beliefs_in(tag, found),
            archived=_read(found["archived"]),
            best_config=best_config.read_from(found["best_config"]),
        )

    async def find(self, tag: str) -> ProposalFacts | None:
        """The same; None for an unknown tag."""
        try:
            return await self.all(tag)
        except NotFound:
            return None

    async def get(self, tag: str, hypothesis_id: str) -> Hypothesis:
        """A hypothesis with its newest evidence.

        Raises:
            NotFound: there is none.
        """
        keys = self._keys
        opened, archived, evidence = await self._lab.pipeline(
            [
                ("HGET", keys("hypotheses", tag), hypothesis_id),
                ("HGET", keys("archived_hypotheses", tag), hypothesis_id),
                ("HGET", keys("hypothesis_evidence", tag), hypothesis_id),
            ]
        )
        if (text := opened or archived) is None:
            raise no_hypothesis(hypothesis_id, tag)
        return with_evidence(Hypothesis.model_validate_json(text), evidence)

    async def learned_at(self, evidence: Sequence[Evidence]) -> list[float | None]:
        """When each piece of evidence was learned, by Redis' clock: as the later run of the comparison was."""
        pairs = [(e.experiment_id, e.reference_id or e.experiment_id) for e in evidence]
        names = sorted({name for pair in pairs for name in pair})
        stored = await self._lab.pipeline([("HGET", self._keys.experiment(n), "learned_at") for n in names])
        times = {name: float(at) for name, at in zip(names, stored, strict=True) if at is not None}
        return [max((times[n] for n in pair if n in times), default=None) for pair in pairs]

    async def propose(
        self,
        facts: BeliefFacts,
        new: Sequence[Hypothesis],
        shared_out: Mapping[str, str] | None = None,
        *,
        changed: Sequence[Hypothesis] = (),
    ) -> bool:
        """Enter hypotheses and their populations. False if the beliefs have changed.

        An archived hypothesis starts again. `changed` are other open hypotheses with new values.
        """
        answer = await self._lab.move(
            "propose_hypotheses",
            keys=self._ended(facts, shared_out),
            args={
                "tag": facts.tag.name,
                "version": facts.version,
                "ids": [h.hypothesis_id for h in new],
                "texts": [_text(h) for h in new],
                "proposed": [json.dumps(_proposed(h), allow_nan=False) for h in new],
                "changed_ids": [h.hypothesis_id for h in changed],
                "changed_texts": [_text(h) for h in changed],
                **_shared_out(shared_out),
            },
        )
        return bool(answer == "ok")

    async def learning_facts(self, experiment_id: str, tag: str) -> LearningFacts:
        """Facts for learning from a finished run; one round trip.

        Raises:
            NotFound: no such tag, or no such experiment.
        """
        keys = self._keys
        found = await self._lab.read(
            {
                **reading_beliefs(self._lab, tag),
                "run": ("HGETALL", keys.experiment(experiment_id)),
                "learned": ("HEXISTS", keys.experiment(experiment_id), "learned_at"),
                "references": ("LRANGE", keys("references", tag), 0, -1),
                "noise": spread_at(keys, tag, None),
                "reprieved": ("HGETALL", keys("reprieved", tag)),
                "best_config": best_config.reading(self._lab, tag),
            }
        )
        run = Experiment.found(found["run"])
        if run is None:
            raise NotFound(f"there is no experiment {experiment_id!r}", hint="GET /api/experiment/history")
        return LearningFacts(
            **beliefs_in(tag, found),
            run=run,
            is_learned=bool(found["learned"]),
            best_config=best_config.read_from(found["best_config"]),
            references=found["references"],
            noise=spread_of(found["noise"]),
            reprieved=found["reprieved"],
        )

    async def kept(self, tag: str, hypothesis_ids: Sequence[str]) -> dict[str, StoredEvidence]:
        """Stored texts of these hypotheses, beside their records; one round trip."""
        if not hypothesis_ids:
            return {}
        families = ("hypothesis_evidence", "unpaired", "used_references", "part_sums")
        rows = await self._lab.pipeline([("HMGET", self._keys(f, tag), *hypothesis_ids) for f in families])
        return {name: StoredEvidence(*texts) for name, *texts in zip(hypothesis_ids, *rows, strict=True)}

    async def learn(self, facts: LearningFacts, learning: Learning, batch_every: int | None = None) -> str:
        """Change the beliefs, once for each run. Answers ok, learned (a repeat), or stale.

        Every `batch_every` results, an event reports the end of a batch; None: never.
        """
        changed = learning.changed
        answer: str = await self._lab.move(
            "learn_from_run",
            keys={
                "experiment": self._keys.experiment(facts.run.experiment_id),
                **self._ended(facts, learning.populations),
            },
            args={
                "tag": facts.tag.name,
                "version": facts.version,
                "ids": list(changed),
                "texts": [_text(h) for h, _ in changed.values()],
                "evidence": [kept.evidence or "" for _, kept in changed.values()],
                "unpaired": [kept.unpaired or "" for _, kept in changed.values()],
                "used": [kept.used or "" for _, kept in changed.values()],
                "blocks": [kept.blocks or "" for _, kept in changed.values()],
                "archived": list(learning.archived),
                "reference": learning.reference,
                "most": REFERENCES,
                **_shared_out(learning.populations),
                "bands": list(learning.reprieved),
                "sums": list(learning.reprieved.values()),
                "believed": list(learning.believed),
                "believed_data": [json.dumps(d, allow_nan=False) for d in learning.believed.values()],
                "settled": list(learning.settled),
                "settled_data": [json.dumps(d, allow_nan=False) for d in learning.settled.values()],
                "is_reference": 1 if facts.run.is_reference else None,
                "checkpoint_every": CHECKPOINT_EVERY,
                "batch_every": batch_every,
            },
        )
        return answer

    def _ended(self, facts: BeliefFacts, after: Mapping[str, str] | None) -> dict[str, list[str]]:
        """Keys of the config queues of populations that end."""
        ended = [name for name in facts.populations if after is not None and name not in after]
        return {"ended": [self._keys("proposals", facts.tag.name, name) for name in ended]}


def reading_beliefs(lab: Lab, tag: str) -> dict[str, Sequence[Arg]]:
    """The reads of `BeliefFacts`, for `Lab.read`."""
    keys = lab.keys
    return {
        "now": ("TIME",),
        "tag": ("HGETALL", keys.tag(tag)),
        "policy": ("HMGET", keys("policy", tag), "values", "version"),
        "dimensions": ("HGET", keys("dimensions", tag), "values"),
        "beliefs": ("HMGET", keys("beliefs", tag), "version", "results", "allocated_at", "allocations"),
        "open": ("HVALS", keys("hypotheses", tag)),
        "populations": ("HGETALL", keys("populations", tag)),
        "seen": lab.reading(
            "count_seen", keys={"index": keys("swarm_seen", tag)}, args={"within_s": ACTIVE_S}
        ),
    }


def with_evidence(hypothesis: Hypothesis, text: str | None) -> Hypothesis:
    """A hypothesis with what is kept of its evidence."""
    return hypothesis.model_copy(update={"evidence": _EVIDENCE.validate_json(text) if text else []})


def _shared_out(texts: Mapping[str, str] | None) -> dict[str, Arg | Sequence[Arg] | None]:
    """Populations as moves take them; None: they stay as they are."""
    if texts is None:
        return {}
    return {"shared_out": 1, "population_ids": list(texts), "population_texts": list(texts.values())}


def _text(hypothesis: Hypothesis) -> str:
    return hypothesis.model_dump_json(exclude={"evidence"}, exclude_none=True)


def _read(texts: Sequence[str]) -> list[Hypothesis]:
    found = [Hypothesis.model_validate_json(text) for text in texts]
    return sorted(found, key=lambda h: (h.created_at, h.hypothesis_id))


def _proposed(h: Hypothesis) -> dict[str, Any]:
    return {
        "hypothesis_id": h.hypothesis_id,
        "statement": h.statement,
        "source": h.source,
        "importance": h.importance,
        "rationale": h.rationale,
    }


def beliefs_in(tag: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of `BeliefFacts`, of the answers to `reading_beliefs`.

    Raises:
        NotFound: no such tag.
    """
    version, results, allocated_at, allocations = (int(text or 0) for text in found["beliefs"])
    return {
        "now": time_of(found["now"]),
        "tag": tag_in(found["tag"], tag),
        "policy": read_policy(found["policy"][0]),
        "dimensions": dimensions_in(found["dimensions"]),
        "version": version,
        "open": _read(found["open"]),
        "active_workers": int(found["seen"]),
        "populations": found["populations"],
        "results": results,
        "allocated_at": allocated_at,
        "allocations": allocations,
    }
