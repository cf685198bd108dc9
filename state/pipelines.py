"""Pipelines: the program that is drafted for a tag's next batch, and how its drafts have fared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from state import reads
from state.belief_facts import BeliefFacts, StoredEvidence
from state.change import Asked, Change, clock, hmget
from state.hypotheses import EVIDENCE, evidence_reads, read_beliefs
from state.program_facts import EarlyFacts, OutlierRun, PipelineFacts, PipelineState, PipelineStep
from state.reads import fields_in
from state.records import ConfirmedDraft, Experiment, Pipeline
from state.store import Store

NEWEST: Final = 20
"""Number of newest results that are searched for outliers."""
RUNNING: Final = 100
"""Runs whose ends are predicted, at most."""
FINISHED: Final = 100
"""Newest finished runs that these are compared with."""

Choose = Callable[[PipelineState], Awaitable[PipelineStep | None]]
"""Chooses the next step of a pipeline; None: none is due."""


class Pipelines(Store):
    async def read(self, tag: str) -> tuple[Pipeline, str | None]:
        """State of a tag's pipeline with the text of its draft; one round trip.

        An unknown tag, or one without a pipeline, has one that has not begun.
        """
        stored = await self._lab.hash(self._keys("pipeline", tag))
        return Pipeline.parse(stored), stored.get("text")

    async def confirmed(self, tag: str) -> tuple[ConfirmedDraft, str] | None:
        """The last confirmed draft with its text; None: none was confirmed. One round trip."""
        key, read = self._keys("pipeline", tag), ("confirmed", "confirmed_text")
        stored, text = await self._lab.command("HMGET", key, *read)
        return None if stored is None or text is None else (ConfirmedDraft.model_validate_json(stored), text)

    async def stand(self, tag: str) -> PipelineState:
        """State of a pipeline; one round trip of a few fields."""
        return PipelineState(**await self._lab.read(self._of_pipeline(tag)))

    async def facts(self, tag: str) -> PipelineFacts:
        """Facts for its next step; one round trip. Raises NotFound: no such tag."""
        finished, of_pipeline = self._keys("finished", tag), self._of_pipeline(tag)
        ended = reads.rows(self._lab, OutlierRun, finished, limit=NEWEST, newest=True)
        found = await read_beliefs(self._lab, self._lab, tag, {**of_pipeline, "ended": ended})
        newest = found.pop("ended")
        own = {name: found.pop(name) for name in ("pipeline", "ticks", "has_program")}
        beliefs = BeliefFacts(**found)
        return PipelineFacts(PipelineState(now=beliefs.now, results=beliefs.results, **own), beliefs, newest)

    async def early(self, tag: str) -> EarlyFacts:
        """Facts to predict the end of the running batch; one round trip. Raises NotFound: no such tag."""
        keys, lab = self._keys, self._lab
        running, finished = keys.status(tag, "running", "")[0], keys("finished", tag)
        more: dict[str, Asked] = {
            **evidence_reads(lab, tag),
            **{family: ("HGETALL", keys(family, tag)) for family in EVIDENCE},
            "running": reads.records(lab, Experiment, running, limit=RUNNING),
            "ended": reads.records(lab, Experiment, finished, limit=FINISHED, newest=True),
        }
        found = await read_beliefs(lab, lab, tag, more)
        texts = [found.pop(family) for family in EVIDENCE]
        kept = {
            h.hypothesis_id: StoredEvidence(*(of_each.get(h.hypothesis_id) for of_each in texts))
            for h in found["open"]
        }
        return EarlyFacts(**found, kept=kept)

    async def take(self, tag: str, choose: Choose) -> PipelineStep | None:
        """Take the step that is chosen for the pipeline as it is; answers it.

        The text of a draft goes with it. The text that was confirmed last stays until another one is confirmed: it
        may not be adopted yet.
        """
        key = self._keys("pipeline", tag)

        async def decide(change: Change) -> PipelineStep | None:
            step = await choose(PipelineState(**await change.read(self._of_pipeline(tag))))
            if step is None:
                return None
            fields = step.after.flat() | ({} if step.text is None else {"text": step.text})
            if step.kind == "confirmed":
                (kept,) = await change.read(hmget(key, "text"))
                fields |= {name: kept["text"] for name in ("text", "confirmed_text") if kept["text"]}
            change.hset(key, fields)
            if gone := {*fields_in(Pipeline), "text"} - fields.keys():
                change.hdel(key, *sorted(gone))
            if step.data:
                change.emit(f"pipeline.{step.kind}", tag, step.data["spec_id"], step.data)
            return step

        return await self._lab.change(decide)

    def _of_pipeline(self, tag: str) -> dict[str, Asked]:
        """The reads of `PipelineState`."""
        keys = self._keys
        return {
            "now": clock(),
            "pipeline": hmget(keys("pipeline", tag), *fields_in(Pipeline)).to(Pipeline.parse),
            "results": reads.number("HGET", keys("beliefs", tag), "results"),
            "ticks": reads.number("HGET", keys.tag(tag), "ticks"),
            "has_program": reads.number("LLEN", keys("programs", tag)).to(bool),
        }
