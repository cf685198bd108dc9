"""Hypotheses, the beliefs about them, and the populations that test them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

from pydantic import TypeAdapter

from state import best_config
from state.belief_facts import BeliefFacts, Learning, LearningFacts, ProposalFacts, StoredEvidence
from state.change import NOW, Asked, Change, hgetall, hmget
from state.client import Lab, time_of
from state.dimensions import dimensions_in
from state.errors import NotFound
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
EVIDENCE = ("hypothesis_evidence", "unpaired", "used_references", "part_sums")
"""Families of `StoredEvidence`, in the order of its fields."""
_EVIDENCE = TypeAdapter(list[Evidence])


class Hypotheses(Store):
    async def all(self, tag: str, change: Change | None = None) -> ProposalFacts:
        """Every hypothesis of a tag, without evidence, held by a `change`. Raises NotFound: no such tag."""
        reads = {
            **reading_beliefs(self._lab, tag),
            "archived": ("HVALS", self._keys("archived_hypotheses", tag)),
            "best_config": best_config.reading(self._lab, tag),
        }
        found = await (change or self._lab).read(reads)
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
        """A hypothesis with its newest evidence. Raises NotFound: there is none."""
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

    def propose(
        self,
        change: Change,
        facts: BeliefFacts,
        new: Sequence[Hypothesis],
        populations: Mapping[str, str] | None = None,
        *,
        changed: Sequence[Hypothesis] = (),
    ) -> None:
        """Enter hypotheses and their populations, texts by id.

        An archived hypothesis starts again. `changed` are other open hypotheses with new values.
        """
        tag, ids = facts.tag.name, [h.hypothesis_id for h in new]
        self._share_out(change, facts, populations, facts.results)
        change.hset(self._keys("hypotheses", tag), {h.hypothesis_id: _text(h) for h in (*changed, *new)})
        change.hdel(self._keys("archived_hypotheses", tag), *ids)
        change.hdel(self._keys("hypothesis_evidence", tag), *ids)
        for h in new:
            change.emit("hypothesis.proposed", tag, h.hypothesis_id, _proposed(h))

    async def learning_facts(self, change: Change, experiment_id: str, tag: str) -> LearningFacts:
        """Facts for learning from a finished run. Raises NotFound: no such tag, or no such experiment."""
        keys = self._keys
        found = await change.read(
            {
                **reading_beliefs(self._lab, tag),
                "run": hgetall(keys.experiment(experiment_id)),
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
            is_learned="learned_at" in found["run"],
            best_config=best_config.read_from(found["best_config"]),
            references=found["references"],
            noise=spread_of(found["noise"]),
            reprieved=found["reprieved"],
        )

    async def kept(self, tag: str, hypothesis_ids: Sequence[str]) -> dict[str, StoredEvidence]:
        """Stored texts of these hypotheses, beside their records; one round trip."""
        if not hypothesis_ids:
            return {}
        rows = await self._lab.pipeline([("HMGET", self._keys(f, tag), *hypothesis_ids) for f in EVIDENCE])
        return {name: StoredEvidence(*texts) for name, *texts in zip(hypothesis_ids, *rows, strict=True)}

    def learn(
        self, change: Change, facts: LearningFacts, learning: Learning, batch_every: int | None = None
    ) -> None:
        """Change the beliefs, once for each run; an event ends each batch of `batch_every` results (None: never)."""
        keys, tag = self._keys, facts.tag.name
        changed, gone, results = learning.changed, learning.archived, facts.results + 1
        change.hset(keys.experiment(facts.run.experiment_id), {"learned_at": NOW})
        change.hincrby(keys("beliefs", tag), "results")
        if facts.run.is_reference:
            change.hincrby(keys("beliefs", tag), "references")
        texts = {name: _text(h) for name, (h, _) in changed.items()}
        change.hset(keys("hypotheses", tag), {n: text for n, text in texts.items() if n not in gone})
        change.hdel(keys("hypotheses", tag), *gone)
        change.hset(keys("archived_hypotheses", tag), {name: texts[name] for name in gone})
        stored = {
            name: StoredEvidence(kept.evidence) if name in gone else kept
            for name, (_, kept) in changed.items()
        }
        for nth, family in enumerate(EVIDENCE):
            found: dict[str, str | None] = {name: astuple(kept)[nth] for name, kept in stored.items()}
            change.hset(keys(family, tag), {name: text for name, text in found.items() if text})
            change.hdel(keys(family, tag), *(name for name, text in found.items() if not text))
        if learning.reference is not None:
            change.rpush(keys("references", tag), learning.reference)
            change.ltrim(keys("references", tag), REFERENCES)
        change.hset(keys("reprieved", tag), learning.reprieved)
        self._share_out(change, facts, learning.populations, results)
        for name, data in learning.believed.items():
            change.emit("hypothesis.believed", tag, name, data)
        for name, data in learning.settled.items():
            change.emit("hypothesis.settled", tag, name, data)
        if results % CHECKPOINT_EVERY == 0:
            change.emit("journal.due", tag, tag, {"results": results})
        if batch_every is not None and results % batch_every == 0:
            change.emit("pipeline.due", tag, tag, {"results": results})

    def _share_out(
        self, change: Change, facts: BeliefFacts, populations: Mapping[str, str] | None, results: int
    ) -> None:
        """Count a change of the beliefs, and replace the populations; None: they stay."""
        keys, tag = self._keys, facts.tag.name
        change.hincrby(keys("beliefs", tag), "version")
        if populations is None:
            return
        ended = [keys("proposals", tag, name) for name in facts.populations if name not in populations]
        change.delete(keys("populations", tag), *ended)
        change.hset(keys("populations", tag), populations)
        change.hset(keys("beliefs", tag), {"allocated_at": results})
        change.hincrby(keys("beliefs", tag), "allocations")


def reading_beliefs(lab: Lab, tag: str) -> dict[str, Asked]:
    """The reads of `BeliefFacts`. Each change of beliefs has another version, which is read before them."""
    keys = lab.keys
    return {
        "now": ("TIME",),
        "tag": ("HGETALL", keys.tag(tag)),
        "policy": ("HMGET", keys("policy", tag), "values", "version"),
        "dimensions_version": hmget(keys("dimensions", tag), "version"),
        "dimensions": ("HGET", keys("dimensions", tag), "values"),
        "beliefs": hmget(keys("beliefs", tag), "version", "results", "allocated_at", "allocations"),
        "open": ("HVALS", keys("hypotheses", tag)),
        "populations": ("HGETALL", keys("populations", tag)),
        "seen": lab.reading(
            "count_seen", keys={"index": keys("swarm_seen", tag)}, args={"within_s": ACTIVE_S}
        ),
    }


def with_evidence(hypothesis: Hypothesis, text: str | None) -> Hypothesis:
    """A hypothesis with what is kept of its evidence."""
    return hypothesis.model_copy(update={"evidence": _EVIDENCE.validate_json(text) if text else []})


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
    """The fields of `BeliefFacts`, of the answers to `reading_beliefs`. Raises NotFound: no such tag."""
    version, results, allocated_at, allocations = (int(text or 0) for text in found["beliefs"].values())
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
