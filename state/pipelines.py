"""Pipelines: the program that is drafted for a tag's next batch, and how its drafts have fared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from state import best_config
from state.belief_facts import BeliefFacts, StoredEvidence
from state.change import Change, Read, hmget
from state.client import time_of
from state.hypotheses import EVIDENCE, beliefs_in, reading_beliefs
from state.indexes import fields_in, members, read_as, records
from state.moves import Arg
from state.noise import spread_at, spread_of
from state.pipeline_facts import EarlyFacts, OutlierRun, PipelineFacts, PipelineState, PipelineStep
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
        """The last confirmed draft with its text; None: none was confirmed. One round trip.

        One round trip.
        """
        key, read = self._keys("pipeline", tag), ("confirmed", "confirmed_text")
        stored, text = await self._lab.command("HMGET", key, *read)
        return None if stored is None or text is None else (ConfirmedDraft.model_validate_json(stored), text)

    async def stand(self, tag: str) -> PipelineState:
        """State of a pipeline; one round trip of a few fields."""
        return _stand(await self._lab.read(self._of_pipeline(tag)))

    async def facts(self, tag: str) -> PipelineFacts:
        """Facts for its next step; one round trip. Raises NotFound: no such tag."""
        ended = members(self._lab, self._keys("finished", tag), limit=NEWEST, newest=True, fields=OutlierRun)
        reads = {**self._of_pipeline(tag), **reading_beliefs(self._lab, tag), "ended": ended}
        found = await self._lab.read(reads)
        return PipelineFacts(
            _stand(found), BeliefFacts(**beliefs_in(tag, found)), read_as(OutlierRun, found["ended"])
        )

    async def early(self, tag: str) -> EarlyFacts:
        """Facts to predict the end of the running batch; one round trip. Raises NotFound: no such tag."""
        keys, lab = self._keys, self._lab
        found = await lab.read(
            {
                **reading_beliefs(lab, tag),
                "best_config": best_config.reading(lab, tag),
                "references": ("LRANGE", keys("references", tag), 0, -1),
                "noise": spread_at(keys, tag, None),
                "reprieved": ("HGETALL", keys("reprieved", tag)),
                **{family: ("HGETALL", keys(family, tag)) for family in EVIDENCE},
                "running": members(lab, keys.status(tag, "running", "")[0], limit=RUNNING),
                "finished": members(lab, keys("finished", tag), limit=FINISHED, newest=True),
            }
        )
        beliefs = beliefs_in(tag, found)
        return EarlyFacts(
            **beliefs,
            best_config=best_config.read_from(found["best_config"]),
            references=found["references"],
            noise=spread_of(found["noise"]),
            reprieved=found["reprieved"],
            kept={
                h.hypothesis_id: StoredEvidence(*(found[family].get(h.hypothesis_id) for family in EVIDENCE))
                for h in beliefs["open"]
            },
            running=_experiments(found["running"]),
            ended=_experiments(found["finished"]),
        )

    async def take(self, tag: str, choose: Choose) -> PipelineStep | None:
        """Take the step that is chosen for the pipeline as it is; answers it.

        The text of a draft goes with it. The text that was confirmed last stays until another one is confirmed: it
        may not be adopted yet.
        """
        key = self._keys("pipeline", tag)

        async def decide(change: Change) -> PipelineStep | None:
            step = await choose(_stand(await change.read(self._of_pipeline(tag))))
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

    def _of_pipeline(self, tag: str) -> dict[str, Read[Any] | Sequence[Arg]]:
        """The reads of `PipelineState`."""
        keys = self._keys
        return {
            "now": ("TIME",),
            "pipeline": hmget(keys("pipeline", tag), *fields_in(Pipeline)),
            "results": ("HGET", keys("beliefs", tag), "results"),
            "ticks": ("HGET", keys.tag(tag), "ticks"),
            "programs": ("LLEN", keys("programs", tag)),
        }


def _stand(found: Mapping[str, Any]) -> PipelineState:
    return PipelineState(
        now=time_of(found["now"]),
        pipeline=Pipeline.parse(found["pipeline"]),
        results=int(found["results"] or 0),
        ticks=int(found["ticks"] or 0),
        has_program=int(found["programs"]) > 0,
    )


def _experiments(answer: Sequence[Any]) -> list[Experiment]:
    return [e for fields in records(answer).values() if (e := Experiment.found(fields)) is not None]
