"""Experiments, ranked: what the runs of a tag had at the same point of their way, and what each was told there.

A pool holds one value for each run: that of its first tick within a bucket's tolerance. A run that is trained again,
because its worker was lost, replaces what it had. The pools fill while early stopping is switched on.
"""

from __future__ import annotations

import json
from typing import Literal

from state.experiments.reading import Reading, experiment_in
from state.facts import Peers, RankFacts
from state.keys import Keys
from state.noise import class_id
from state.policy import read_policy
from state.records import Experiment
from state.tags import tag_in

Told = Literal["continue", "stop", "extend"]


class Ranking(Reading):
    """Part of `Experiments`."""

    async def rank_facts(self, e: Experiment) -> RankFacts:
        """What is known of a run that has reached a bucket, its peers aside; one round trip.

        Raises:
            NotFound: no such experiment.
        """
        keys = self._keys
        found = await self._lab.read(
            {
                "experiment": ("HGETALL", keys.experiment(e.experiment_id)),
                "tag": ("HGETALL", keys.tag(e.tag)),
                "policy": ("HGET", keys("policy", e.tag), "values"),
                "gpu_class": ("HGET", keys.gpu(e.gpu_id), "gpu_name") if e.gpu_id else None,
            }
        )
        return RankFacts(
            experiment=experiment_in(found["experiment"], e.experiment_id),
            tag=tag_in(found["tag"], e.tag),
            policy=read_policy(found["policy"]),
            gpu_class=found["gpu_class"] or "",
        )

    async def peers(self, e: Experiment, gpu_class: str, bucket: float, value: float) -> Peers:
        """How a value compares with what other runs had at the same point; one round trip, O(log n)."""
        pool, own = ranks_at(self._keys, e.tag, gpu_class, bucket), repr(value)
        lower, equal, runs, before = await self._lab.pipeline(
            [
                ("ZCOUNT", pool, "-inf", f"({own}"),
                ("ZCOUNT", pool, own, own),
                ("ZCARD", pool),
                ("ZSCORE", pool, e.experiment_id),
            ]
        )
        if before is None:
            return Peers(lower, equal, runs)
        return Peers(lower - (float(before) < value), equal - (float(before) == value), runs - 1)

    async def tell(
        self,
        e: Experiment,
        told: Told,
        *,
        gpu_class: str,
        bucket: float,
        tick: tuple[float, float],
        reason: str | None = None,
        extra_s: float | None = None,
        facts: dict[str, float],
    ) -> Told | Literal["lost"]:
        """Enter a running attempt's (metric, progress) at a bucket, and answer what it is told there.

        That is the first answer, if there is one. `reason` says why it is stopped, `extra_s` what it is given more;
        its event has the `facts` that the decision was made of.
        """
        value, progress = tick
        said = {"experiment_id": e.experiment_id, "bucket": bucket, "metric": value, "progress": progress}
        said |= {"told": told, **facts} | ({} if extra_s is None else {"extra_s": extra_s})
        answer: Told | Literal["lost"] = await self._lab.move(
            "rank_run",
            keys={
                "experiment": self._keys.experiment(e.experiment_id),
                "ranks": ranks_at(self._keys, e.tag, gpu_class, bucket),
            },
            args={
                "id": e.experiment_id,
                "tag": e.tag,
                "attempt": e.attempt,
                "fence": e.fence,
                "bucket": bucket,
                "class_id": class_id(gpu_class),
                "gpu_class": gpu_class,
                "value": value,
                "progress": progress,
                "told": told,
                "reason": reason,
                "extra_s": extra_s,
                "event_data": json.dumps(said, allow_nan=False),
                "experiment_traceparent": e.traceparent,
            },
        )
        return answer


def ranks_at(keys: Keys, tag: str, gpu_class: str, bucket: float) -> str:
    """Where the values stand that runs of a tag had at a bucket on this class of GPU."""
    return keys("ranks", tag, class_id(gpu_class), repr(bucket))
