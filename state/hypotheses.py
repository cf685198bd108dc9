"""Hypotheses, the beliefs about them, their populations and the journal: checkpoints, appended and never changed."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import accumulate
from typing import Any

from pydantic import TypeAdapter

from state import reads
from state.belief_facts import (
    BeliefFacts,
    BeliefSnapshot,
    JournalFacts,
    Learning,
    LearningFacts,
    Pages,
    ProposalFacts,
    StoredEvidence,
)
from state.change import NOW, Asked, Change, Reader, clock, hgetall, hmget, loosely, size
from state.client import Lab
from state.dimensions import dimensions_in
from state.errors import NotFound
from state.reads import Store, experiment_in
from state.records import Evidence, Hypothesis
from state.refusals import no_hypothesis

REFERENCES = 300
"""Newest runs of reference configs that further runs are compared with."""
CHECKPOINT_EVERY = 100
"""Number of results between two checkpoints of the journal."""
EVIDENCE = ("hypothesis_evidence", "unpaired", "used_references", "part_sums")
"""Families of `StoredEvidence`, in the order of its fields."""
PROPOSED = {"hypothesis_id", "statement", "source", "importance", "rationale"}
"""Fields of a hypothesis in the event of its proposal."""
_EVIDENCE = TypeAdapter(list[Evidence])


class Hypotheses(Store):
    async def all(self, tag: str, change: Change | None = None) -> ProposalFacts:
        """Every hypothesis of a tag, without evidence, held by a `change`. Raises NotFound: no such tag."""
        more: dict[str, Asked] = {
            "archived": reads.models(Hypothesis, self._keys("archived_hypotheses", tag)).to(by_age),
            "best_config": reads.best_config(self._lab, tag),
        }
        return ProposalFacts(**await read_beliefs(change or self._lab, self._lab, tag, more))

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
            change.emit("hypothesis.proposed", tag, h.hypothesis_id, h.model_dump(include=PROPOSED))

    async def learning_facts(self, change: Change, experiment_id: str, tag: str) -> LearningFacts:
        """Facts for learning from a finished run. Raises NotFound: no such tag, or no such experiment."""
        keys = self._keys
        more = {"run": hgetall(keys.experiment(experiment_id)), **evidence_reads(self._lab, tag)}
        found = await read_beliefs(change, self._lab, tag, more)
        stored = found.pop("run")
        run = experiment_in(stored, experiment_id)
        return LearningFacts(**found, run=run, is_learned="learned_at" in stored)

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


@dataclass(frozen=True)
class StoredGraphSummary:
    """A summary of a graph of hypotheses that a language model wrote."""

    text: str
    author: str
    digest: str
    """Digest of the summarised beliefs."""


class GraphSummaries(Store):
    async def find(self, tag: str) -> StoredGraphSummary | None:
        stored = await self._lab.hash(self._lab.keys("told_graph", tag))
        return StoredGraphSummary(**stored) if stored else None

    async def tell(self, tag: str, told: StoredGraphSummary) -> None:
        async def decide(change: Change) -> None:
            change.hset(self._keys("told_graph", tag), vars(told))
            change.emit("graph.told", tag, tag, {"author": told.author, "digest": told.digest})

        await self._lab.change(decide)


async def read_beliefs(
    reader: Reader, lab: Lab, tag: str, more: Mapping[str, Asked | None]
) -> dict[str, Any]:
    """The fields of `BeliefFacts`, and more, in one round trip. Raises NotFound: no such tag.

    Each change of beliefs has another version, which is read before them.
    """
    keys = lab.keys
    found = await reader.read(
        {
            "now": clock(),
            "tag": reads.tag(keys, tag),
            "policy": reads.policy(keys, tag),
            "dimensions_version": hmget(keys("dimensions", tag), "version"),
            "dimensions": loosely("HGET", keys("dimensions", tag), "values", to=dimensions_in),
            "beliefs": hmget(keys("beliefs", tag), "version", "results", "allocated_at", "allocations"),
            "open": reads.models(Hypothesis, keys("hypotheses", tag)).to(by_age),
            "populations": ("HGETALL", keys("populations", tag)),
            "active_workers": reads.active_workers(lab, tag),
            **more,
        }
    )
    del found["dimensions_version"]
    counters = found.pop("beliefs")
    return found | {name: int(count or 0) for name, count in counters.items()}


def evidence_reads(lab: Lab, tag: str) -> dict[str, Asked]:
    """The reads of the further fields of `EvidenceFacts`."""
    keys = lab.keys
    return {
        "best_config": reads.best_config(lab, tag),
        "references": ("LRANGE", keys("references", tag), 0, -1),
        "noise": reads.noise(keys, tag, None),
        "reprieved": ("HGETALL", keys("reprieved", tag)),
    }


def with_evidence(hypothesis: Hypothesis, text: str | None) -> Hypothesis:
    """A hypothesis with what is kept of its evidence."""
    return hypothesis.model_copy(update={"evidence": _EVIDENCE.validate_json(text) if text else []})


def _text(hypothesis: Hypothesis) -> str:
    return hypothesis.model_dump_json(exclude={"evidence"}, exclude_none=True)


def by_age(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    return sorted(hypotheses, key=lambda h: (h.created_at, h.hypothesis_id))


MOST_BYTES = 256 * 1024
"""Checkpoints that are read at once: more only where one alone is longer."""
MOST_TEXTS = 64
"""The same by number."""


class Journal(Store):
    async def facts(self, tag: str, change: Change | None = None) -> JournalFacts:
        """Facts for a checkpoint, held by a `change`. Raises NotFound: no such tag."""
        keys = self._keys
        found = await (change or self._lab).read(
            {
                "now": clock(),
                "tag": reads.tag(keys, tag),
                "beliefs": hmget(keys("beliefs", tag), "version", "results", "references"),
                "count": size(keys("journal", tag)),
                "open": reads.models(Hypothesis, keys("hypotheses", tag)),
                "archived": reads.models(Hypothesis, keys("archived_hypotheses", tag)),
                "populations": ("HGETALL", keys("populations", tag)),
                "assigned": ("HGETALL", keys("assigned", tag)),
                "before": loosely("GET", keys("last_checkpoint", tag), to=BeliefSnapshot.read),
            }
        )
        del found["tag"], found["count"]  # it is there, and another checkpoint is another decision
        known = by_age([*found.pop("open"), *found.pop("archived")])
        beliefs: dict[str, Any] = {name: int(text or 0) for name, text in found.pop("beliefs").items()}
        return JournalFacts(**found, **beliefs, hypotheses=known)

    async def last_evidence(self, tag: str, hypothesis_ids: Sequence[str]) -> dict[str, Evidence]:
        """The newest evidence of these hypotheses, of those that have some; one round trip."""
        if not hypothesis_ids:
            return {}
        key = self._keys("hypothesis_evidence", tag)
        texts = await self._lab.command("HMGET", key, *hypothesis_ids)
        kept = {
            name: _EVIDENCE.validate_json(text)
            for name, text in zip(hypothesis_ids, texts, strict=True)
            if text
        }
        return {name: evidence[-1] for name, evidence in kept.items() if evidence}

    def append(
        self, change: Change, tag: str, now: BeliefSnapshot, text: str, written: Mapping[str, Any]
    ) -> None:
        """Append a checkpoint. `now` is what the next one is compared with."""
        change.rpush(self._keys("journal", tag), text)
        change.set(self._keys("last_checkpoint", tag), now.text())
        change.emit("journal.written", tag, tag, written)

    async def read(self, tag: str, first: int | None = None) -> Pages:
        """The newest checkpoints, or those from number `first` on, as many as fit; one round trip."""
        journal, most = self._keys("journal", tag), MOST_TEXTS
        begin, end = (first - 1, first + most - 2) if first else (-most, -1)
        count, texts = await self._lab.pipeline([("LLEN", journal), ("LRANGE", journal, begin, end)])
        ends = [*accumulate(len(text.encode()) for text in (texts if first else texts[::-1]))]
        fitting = max(1, bisect(ends, MOST_BYTES))
        texts = texts[:fitting] if first else texts[-fitting:]
        return Pages(int(count), first or int(count) - len(texts) + 1, texts)
