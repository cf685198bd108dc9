"""Experiments, retracted: the facts around a result, and the change that takes it back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from state import reads
from state.change import Change, hmget, loosely, size, zscore
from state.decisions import Retraction
from state.experiments.ranking import add_trends, ends_at, pools_at, trends_at
from state.experiments.reading import ExperimentReader
from state.experiments.writing import apply, are_as_read, grow, leave_noise, put_best, versions_of
from state.facts import RetractionFacts, Spread, Trend
from state.noise import code_of, noise_entry, noise_key, runs_at
from state.reads import experiment_in
from state.records import Experiment, flatten

KEEPS_READ = 102
"""Number of best keeps that are read: more than one chain has, and the next one under it."""
CONDITIONS = ("key_gpu_class", "key_noise", "key_evaluator_hash", "key_budget_seconds", "lab_measured")
"""Fields of a tag that its first result sets."""
BEATEN_READ = 500
"""Results that did not improve on the best, those with the best values first: so many are read."""


class Retracting(ExperimentReader):
    async def retracted(self, experiment_id: str) -> tuple[Experiment, dict[str, Any] | None]:
        """An experiment, with {digest, answer} of its retraction. Raises NotFound: no such experiment."""
        stored = await self._lab.hash(self._keys.experiment(experiment_id))
        said = stored.get("retraction")
        return experiment_in(stored, experiment_id), json.loads(said) if said else None

    async def retraction_facts(self, e: Experiment) -> RetractionFacts:
        """Facts for taking a judged result back; one round trip. Raises NotFound: no such tag or experiment."""
        lab, keys, tag, other_key = self._lab, self._keys, e.tag, e.best_key
        noise, code = noise_key(keys, tag, e.gpu_class), code_of(e, other_key)
        found = await lab.read(
            {
                "tag": reads.tag(keys, tag),
                "policy": reads.policy(keys, tag),
                "best": reads.best(keys, tag, other_key),
                "noise": ("HMGET", noise, "squares", "df", code),
                # these may be newer than the values that the move compares, never older
                "experiment": reads.experiment(keys, e.experiment_id),
                "main_best": reads.best(keys, tag),
                "keeps": reads.records(lab, Experiment, keys.keeps(tag, other_key), limit=KEEPS_READ),
                "beaten": reads.records(lab, Experiment, keys.beaten(tag, other_key), limit=BEATEN_READ),
                "runs": reads.records(lab, Experiment, runs_at(noise, code), limit=-1),
                "rank_classes": ("HVALS", keys("rank_classes", tag)),
            }
        )
        squares, df, kept = found.pop("noise")
        workers = sorted({r.worker_id for r in found["runs"] if r.worker_id})
        theirs = await lab.pipeline([("HGET", noise, noise_entry(code, name)) for name in workers])
        spread = Spread(int(df or 0), float(squares or 0), tuple(text or "" for text in (kept, *theirs)))
        return RetractionFacts(**found, noise=spread, noise_workers=workers)

    async def retract(self, retraction: Retraction) -> bool:
        """Commit it; False where what the decision used has changed: read and decide again."""
        e, keys, facts = retraction.facts.experiment, self._keys, retraction.facts
        best, after, left = facts.best, retraction.after, retraction.left
        record, tag, shift = keys.experiment(e.experiment_id), keys.tag(e.tag), retraction.shift
        categories, times = f"categories:{e.tag}", keys("reference_times", e.tag)
        noise, code = noise_key(keys, e.tag, e.gpu_class), code_of(e, e.best_key)
        entries = left.entries if left else {}
        total, kept = f"{e.category}:total", f"{e.category}:kept"

        async def decide(change: Change) -> bool:
            mine, best_now, of_tag, spread, counts, references, *traces = await change.read(
                hmget(record, "status", "branches"),
                hmget(keys.best(e.tag, e.best_key), "version"),
                hmget(tag, "finishes", "total", "crashed", "awaits_baseline"),
                hmget(noise, "df", "squares", *entries),
                hmget(keys(categories), total),
                hmget(times, *e.time_classes),
                *versions_of(keys, retraction.growths),
            )
            if (
                (mine["status"], int(mine["branches"] or 0)) != (e.status, e.branches)
                or int(best_now["version"] or 0) != (best.version if best else 0)
                or int(of_tag["finishes"] or 0) != facts.tag.finishes
                or any((spread[name] or "") != before for name, (before, _) in entries.items())
                or not are_as_read(retraction.growths, traces)
            ):
                return False
            leader = await self._next_run(change, e) if e.worker_id else None
            has_end = await self._has_end(change, e, retraction.learnt)

            change.hset(record, {"status": "retracted", **flatten(retraction.fields)})
            apply(change, keys, shift)
            if int(counts[total] or 0) + shift.counts[categories, total] == 0:  # nothing was tried in it
                change.hdel(keys(categories), total, kept)
            left_over = int(of_tag["total"] or 0) + shift.counts[f"tags:{e.tag}", "total"]
            change.hincrby(tag, "key_version")  # what is being judged with it is judged again
            change.hset(tag, flatten(retraction.tag_fields))
            if of_tag["total"] is not None and left_over == int(of_tag["crashed"] or 0):
                # it was the only result: the next one says under which conditions the tag is measured
                change.hdel(
                    tag, *CONDITIONS, *([] if of_tag["awaits_baseline"] == "true" else ["baseline_id"])
                )
            for pool in pools_at(keys, e.tag, facts.rank_classes):
                change.zrem(pool, e.experiment_id)
            if left is not None:
                leave_noise(change, noise, code, left, retraction.leaving, spread)
            if has_end:
                change.zrem(ends_at(keys, e.tag, e.rank_class or ""), e.experiment_id)
                add_trends(change, trends_at(keys, e.tag, e.rank_class or ""), retraction.learnt, -1)
            for name, text in references.items():  # the next run that is measured says how long runs take
                if text and json.loads(text).get("experiment_id") == e.experiment_id:
                    change.hdel(times, name)
            if leader is not None and e.worker_id:
                if leader:
                    change.zadd(keys("leaders", e.tag), {e.worker_id: leader[0]})
                else:
                    change.zrem(keys("leaders", e.tag), e.worker_id)
            for before, now in retraction.changed:
                fields = {name: "" if v is None else v for name, v in now if v != getattr(before, name)}
                change.hset(keys.experiment(now.experiment_id), flatten(fields))
            grow(change, keys, retraction.growths)
            told = dict(retraction.told)
            change.emit("experiment.retracted", e.tag, e.experiment_id, told, e.traceparent)
            if after is None:
                change.delete(keys.best(e.tag, e.best_key))
            else:
                is_new = best is None or after.experiment_id != best.experiment_id
                put_best(change, keys, e, after, e.best_key, is_new=is_new)
            return True

        return await self._lab.change(decide)

    async def _next_run(self, change: Change, e: Experiment) -> list[float] | None:
        """The worker's best run without this one: its value, or nothing; None where this one leads nobody."""
        runs = self._keys("worker_runs", e.worker_id or "")
        own, _, first = await change.read(
            zscore(runs, e.experiment_id), size(runs), loosely("ZRANGE", runs, "0", "1", "WITHSCORES")
        )
        if own is None:
            return None
        others = [name for name in first[::2] if name != e.experiment_id]
        if not others:
            return []
        (value,) = await change.read(zscore(runs, others[0]))
        return [] if value is None else [value]

    async def _has_end(self, change: Change, e: Experiment, learnt: Mapping[str, Trend]) -> bool:
        """Whether its end is among those that the trends have learnt from."""
        if not learnt:
            return False
        (end,) = await change.read(zscore(ends_at(self._keys, e.tag, e.rank_class or ""), e.experiment_id))
        return end is not None
