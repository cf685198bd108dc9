"""Experiments, ended: the one way into a final status, and what retests change afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from state.decisions import Finish, Growth, Settled
from state.experiments.reading import Reading
from state.records import Best, Experiment, SelectionStatus, Status, flatten

EVIDENCE_KEPT = 100


class Ending(Reading):
    """Part of `Experiments`."""

    async def finish(self, f: Finish) -> bool:
        """Commit a final status; False where what the decision was made on has changed: read and decide again."""
        e, keys = f.experiment, self._keys
        fields = flatten({**f.fields, "answer": f.answer})
        event = {
            "experiment_id": e.experiment_id,
            "number": e.number,
            "status": f.status,
            "category": e.category,
            "val_bpb": f.fields.get("val_bpb"),
            "delta": f.fields.get("delta"),
            "p_better": f.fields.get("p_better"),
            "description": e.description,
            "agent": e.agent,
            "gpu_id": e.gpu_id,
            "error_kind": f.fields.get("error_kind"),
            "reason": f.reason,
            "retest_of": e.retest_of,
            "trust": f.fields.get("trust"),
        }
        crashes = keys("crashes", e.tag)
        answer = await self._lab.run(
            "finish_experiment",
            [
                keys.experiment(e.experiment_id),
                keys.tag(e.tag),
                keys.best(e.tag, f.other_key),
                keys("near_misses", e.tag),
                keys("finished", e.tag),
                keys("categories", e.tag),
                crashes,
                *keys.indexes(e, e.status),
                *keys.indexes(e, f.status),
                keys("open"),
                keys.attempts(e.experiment_id),
                keys.queue(e.pinned_gpu),
                keys("starting"),
                keys.gpu(e.gpu_id) if e.gpu_id else crashes,
                keys("events"),
                keys("queue_clock"),
                keys("idle_gpus"),
                keys.parked(e.tag, e.pinned_gpu),
                f.repeat.key if f.repeat else crashes,
                keys("forest", e.tag),
                *(self._of_trace(e)),
                keys("open_selections", e.tag),
                keys("live_traces", e.tag),
                keys("traces", e.tag),
                *(keys.trace(source.trace_id) for source in (f.growth.ends if f.growth else ())),
            ],
            [
                e.experiment_id,
                e.number,
                e.tag,
                e.category,
                e.status,
                e.attempt,
                e.fence,
                f.best_version,
                f.crashes_before,
                f.key_version,
                f.status,
                json.dumps(fields),
                _best_fields(f.new_best) if f.new_best else "",
                f.near_miss_score,
                json.dumps(flatten(f.tag_fields)) if f.tag_fields else "",
                f.training_seconds,
                f.crash_count,
                json.dumps({k: v for k, v in event.items() if v is not None}, allow_nan=False),
                e.traceparent,
                _best_event(f.new_best, f.other_key)
                if f.new_best and f.new_best.experiment_id == e.experiment_id
                else "",
                f.breaker.crash_limit if f.breaker else None,
                f.breaker.cooldown_s if f.breaker else None,
                f.breaker.longest_s if f.breaker else None,
                *(
                    (f.repeat.code, f.repeat.before, f.repeat.after, f.repeat.squares)
                    if f.repeat
                    else [None] * 4
                ),
                *_growth(f.growth),
                _ending(f),
                json.dumps([str(source.version) for source in f.growth.ends]) if f.growth else "",
            ],
        )
        return bool(answer == "ok")

    def _of_trace(self, e: Experiment) -> tuple[str, str]:
        """Its trace and its selection; itself where it has none."""
        keys, own = self._keys, self._keys.experiment(e.experiment_id)
        return (
            keys.trace(e.trace_id) if e.trace_id else own,
            keys.selection(e.selection_id) if e.selection_id else own,
        )

    async def settle(self, s: Settled) -> bool:
        """Commit what retests said; False where the experiment or the best has changed: read and decide again."""
        e, keys = s.experiment, self._keys
        event = {"experiment_id": e.experiment_id, "number": e.number, "val_bpb": e.val_bpb, "agent": e.agent}
        answer = await self._lab.run(
            "settle_experiment",
            [
                keys.experiment(e.experiment_id),
                keys.tag(e.tag),
                keys.best(e.tag, e.best_key),
                keys("near_misses", e.tag),
                keys("categories", e.tag),
                *keys.indexes(e, e.status),
                *keys.indexes(e, s.status),
                keys("events"),
                *(keys.trace(growth.trace.trace_id) for growth in s.growths),
            ],
            [
                e.experiment_id,
                e.number,
                e.tag,
                e.category,
                e.status,
                s.status,
                s.best.version,
                json.dumps(flatten(s.fields)),
                _best_fields(s.after),
                s.near_miss_score,
                s.verdict,
                json.dumps(event | dict(s.facts), allow_nan=False),
                e.traceparent,
                _best_event(s.after, e.best_key) if s.after.experiment_id != s.best.experiment_id else "",
                json.dumps([json.dumps(flatten(growth.fields)) for growth in s.growths]),
                json.dumps([str(growth.trace.version) for growth in s.growths]),
            ],
        )
        return bool(answer == "ok")

    async def keep_evidence(self, experiment_id: str, digest: str, result: Mapping[str, Any]) -> None:
        """Keep a result that came too late to count, unless there are a hundred of them."""
        await self._lab.move(
            "keep_evidence",
            keys={"evidence": self._keys("evidence", experiment_id)},
            args={
                "digest": digest,
                "result": json.dumps(dict(result), allow_nan=False),
                "most": EVIDENCE_KEPT,
            },
        )

    async def close_forgotten(self) -> dict[str, Status]:
        """End as lost whose own agent never reported; a late report still counts."""
        closed: dict[str, Status] = {}
        for e in await self.forgotten():
            reason = f"its agent was not heard of for {e.patience_s:g} s"
            if e.status == "registered" and await self.finish(
                Finish(e, "lost", {"error": reason}, reason=reason)
            ):
                closed[e.experiment_id] = "lost"
        return closed


def _ending(f: Finish) -> SelectionStatus | None:
    """How the selection ends with its experiment; None where it has none."""
    if f.experiment.selection_id is None:
        return None
    if f.growth is not None:
        return "committed"
    return "expired" if f.status == "lost" else "released"


def _growth(growth: Growth | None) -> tuple[str | int | None, ...]:
    """Fields of the trace, its expected version, the expected epoch, what it becomes and why."""
    if growth is None:
        return (None,) * 5
    fields = json.dumps(flatten(growth.fields))
    return fields, growth.trace.version, growth.epoch, growth.status, growth.why


def _best_fields(best: Best) -> str:
    return json.dumps(flatten(best.model_dump(exclude={"updated_at", "version"})))


def _best_event(best: Best, other_key: str | None) -> str:
    return json.dumps(
        {
            "experiment_id": best.experiment_id,
            "val_bpb": best.val_bpb,
            "commit_sha": best.commit_sha,
            "key": other_key,
        },
        allow_nan=False,
    )
