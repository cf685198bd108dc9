"""Experiments, retracted: the facts around a result, and the move that takes it back."""

from __future__ import annotations

import json
from typing import Any

from state.codes import code_of, noise_entry
from state.decisions import Retraction
from state.experiments.ending import COUNTERS, best_event, best_fields, of_ends
from state.experiments.ranking import amounts, pools_at
from state.experiments.reading import ExperimentReader, experiment_in
from state.facts import RetractionFacts, Spread
from state.indexes import members, records
from state.noise import noise_args, noise_key, runs_at
from state.policy import read_policy
from state.records import Best, Experiment, flatten, words
from state.tags import tag_in

KEEPS_READ = 102
"""Number of best keeps that are read: more than one chain has, and the next one under it."""
BEATEN_READ = 500
"""Results that did not improve on the best, those with the best values first: so many are read."""


class Retracting(ExperimentReader):
    """Part of `Experiments`."""

    async def retracted(self, experiment_id: str) -> tuple[Experiment, dict[str, Any] | None]:
        """An experiment; where it was retracted, with {digest, answer} of the request.

        Raises:
            NotFound: no such experiment.
        """
        stored = await self._lab.hash(self._keys.experiment(experiment_id))
        said = stored.get("retraction")
        return experiment_in(stored, experiment_id), json.loads(said) if said else None

    async def retraction_facts(self, e: Experiment) -> RetractionFacts:
        """Facts for taking back a judged experiment's result, with the experiment as it is now; one round trip.

        Raises:
            NotFound: no such tag, or no such experiment.
        """
        keys, tag, other_key = self._keys, e.tag, e.best_key
        noise, code = noise_key(keys, tag, e.gpu_class), code_of(e, other_key)
        found = await self._lab.read(
            {
                "tag": ("HGETALL", keys.tag(tag)),
                "policy": ("HGET", keys("policy", tag), "values"),
                "best": ("HGETALL", keys.best(tag, other_key)),
                "noise": ("HMGET", noise, "squares", "df", code),
                # these may be newer than the values that the move compares, never older
                "experiment": ("HGETALL", keys.experiment(e.experiment_id)),
                "main_best": ("HGETALL", keys.best(tag)),
                "keeps": members(self._lab, keys.keeps(tag, other_key), limit=KEEPS_READ),
                "beaten": members(self._lab, keys.beaten(tag, other_key), limit=BEATEN_READ),
                "runs": members(self._lab, runs_at(noise, code), limit=-1),
                "rank_classes": ("HGETALL", keys("rank_classes", tag)),
            }
        )
        squares, df, kept = found["noise"]
        several = (
            tuple(Experiment.parse(fields) for fields in records(found[name]).values() if fields)
            for name in ("keeps", "beaten", "runs")
        )
        keeps, beaten, runs = several
        workers = sorted(
            {r.worker_id for r in runs if r.worker_id and e.experiment_id in (r.experiment_id, r.retest_of)}
        )
        theirs = await self._lab.pipeline([("HGET", noise, noise_entry(code, name)) for name in workers])
        return RetractionFacts(
            experiment=experiment_in(found["experiment"], e.experiment_id),
            tag=tag_in(found["tag"], tag),
            policy=read_policy(found["policy"]),
            best=Best.found(found["best"]),
            main_best=Best.found(found["main_best"]),
            keeps=keeps,
            beaten=beaten,
            runs=runs,
            noise=Spread(float(squares or 0), int(df or 0), (kept or "", *(text or "" for text in theirs))),
            noise_workers=tuple(workers),
            rank_classes=tuple(found["rank_classes"].values()),
        )

    async def retract(self, retraction: Retraction) -> bool:
        """Commit it; False where what the decision used has changed: read and decide again."""
        e, keys, best, after = (
            retraction.facts.experiment,
            self._keys,
            retraction.facts.best,
            retraction.after,
        )
        noise, code = noise_key(keys, e.tag, e.gpu_class), code_of(e, e.best_key)
        is_new = after is not None and (best is None or after.experiment_id != best.experiment_id)
        is_baseline = e.baseline and e.status == "keep"
        left, risen, growths = retraction.left, retraction.risen, retraction.growths
        answer = await self._lab.move(
            "retract_experiment",
            keys={
                "experiment": keys.experiment(e.experiment_id),
                "best": keys.best(e.tag, e.best_key),
                "standing": keys.standing(e.tag, e.best_key, e.status, improved=e.improved),
                "beaten": keys.beaten(e.tag, e.best_key),
                "keeps": keys.keeps(e.tag, e.best_key),
                "noise": noise,
                "same_code": runs_at(noise, code),
                "corrected": [keys.experiment(c.experiment_id) for c in retraction.corrected],
                "risen": keys.experiment(risen.experiment.experiment_id) if risen else None,
                "risen_listed": list(
                    keys.relisted(risen.experiment, risen.experiment.status, "keep").values()
                )
                if risen
                else [],
                "traces": [keys.trace(growth.trace.trace_id) for growth in growths],
                "ranks": pools_at(keys, e.tag, retraction.facts.rank_classes),
                **(of_ends(keys, e) if retraction.learnt else {}),
                "swarm_worker": keys("swarm_workers", e.worker_id) if e.worker_id else None,
                "worker_runs": keys("worker_runs", e.worker_id) if e.worker_id else None,
                **keys.relisted(e, e.status, "retracted"),
            },
            args={
                "time_classes": e.time_classes,
                "id": e.experiment_id,
                "number": e.number,
                "tag": e.tag,
                "category": e.category,
                "worker_id": e.worker_id,
                "status_before": e.status,
                "branches": e.branches,
                "finishes": retraction.facts.tag.finishes,
                "best_version": best.version if best else 0,
                "fields": words(flatten(retraction.fields)),
                "counter": "claimed" if e.is_claim else "baselines" if is_baseline else COUNTERS[e.status],
                "is_claim": 1 if e.is_claim else None,
                "is_baseline": 1 if is_baseline else None,
                "tag_fields": words(flatten(retraction.tag_fields)),
                "event_data": json.dumps(dict(retraction.told), allow_nan=False),
                "experiment_traceparent": e.traceparent,
                **(noise_args(left) if left else {}),
                "leaving": retraction.leaving,
                "trend_sums": amounts(retraction.learnt, sign=-1),
                "corrected_ids": [c.experiment_id for c in retraction.corrected],
                "corrected_fields": [json.dumps(flatten(c.fields)) for c in retraction.corrected],
                "corrected_scores": [c.score for c in retraction.corrected],
                "corrected_near": ["yes" if c.is_near else "no" for c in retraction.corrected],
                **(
                    {
                        "risen_id": risen.experiment.experiment_id,
                        "risen_was_discard": 1 if risen.was_discard else None,
                        "risen_number": risen.experiment.number,
                        "risen_category": risen.experiment.category,
                        "risen_fields": words(flatten(risen.fields)),
                        "risen_score": risen.score,
                    }
                    if risen
                    else {}
                ),
                "best_fields": best_fields(after) if after else [],
                "best_event": best_event(after, e.best_key) if after and is_new else None,
                "best_id": after.experiment_id if after else None,
                "trace_fields": [json.dumps(flatten(growth.fields)) for growth in growths],
                "trace_versions": [growth.trace.version for growth in growths],
            },
        )
        return bool(answer == "ok")
