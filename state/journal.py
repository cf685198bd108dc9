"""The journals of swarms: checkpoints in Markdown, appended and never changed."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from pydantic import TypeAdapter

from state.change import Change, hmget, size
from state.client import time_of
from state.journal_facts import BeliefSnapshot, JournalFacts, Pages
from state.records import Evidence, Hypothesis
from state.store import Store
from state.tags import tag_in

MOST_BYTES = 256 * 1024
"""Checkpoints that are read at once: more only where one alone is longer."""
MOST_TEXTS = 64
"""The same by number."""
_EVIDENCE = TypeAdapter(list[Evidence])


class Journal(Store):
    async def facts(self, tag: str, change: Change | None = None) -> JournalFacts:
        """Facts for a checkpoint, held by a `change`. Raises NotFound: no such tag."""
        keys = self._keys
        found = await (change or self._lab).read(
            {
                "now": ("TIME",),
                "tag": ("HGETALL", keys.tag(tag)),
                "beliefs": hmget(keys("beliefs", tag), "version", "results", "references"),
                "count": size(keys("journal", tag)),
                "open": ("HVALS", keys("hypotheses", tag)),
                "archived": ("HVALS", keys("archived_hypotheses", tag)),
                "populations": ("HGETALL", keys("populations", tag)),
                "assigned": ("HGETALL", keys("assigned", tag)),
                "before": ("GET", keys("last_checkpoint", tag)),
            }
        )
        version, results, references = (int(text or 0) for text in found["beliefs"].values())
        known = [Hypothesis.model_validate_json(text) for text in (*found["open"], *found["archived"])]
        return JournalFacts(
            tag=tag_in(found["tag"], tag).name,
            now=time_of(found["now"]),
            version=version,
            results=results,
            references=references,
            hypotheses=sorted(known, key=lambda h: (h.created_at, h.hypothesis_id)),
            populations=found["populations"],
            assigned=found["assigned"],
            before=BeliefSnapshot.read(found["before"]),
        )

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
