"""Experiments, ranked: values of a tag's runs at the same progress, and the verdicts on them.

A pool holds one value for each run: that of its first tick within a bucket's tolerance. A run that is trained again,
after its worker was lost, replaces its value. The pools fill only while early stopping is on. Reported and printed
values are two quantities with separate pools.

Trends hold sums over the finished runs, so their size is constant.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, fields, replace
from typing import Any, Literal

from state.client import time_of
from state.decisions import Rank, Told
from state.experiments.reading import ExperimentReader, experiment_in
from state.facts import Peers, RankFacts, Trend
from state.ids import named_by
from state.keys import Keys
from state.moves import Arg
from state.noise import class_id
from state.policy import BUCKETS, TickSource, read_policy
from state.records import Experiment
from state.tags import tag_in

SUMS = tuple(sum_.name for sum_ in fields(Trend))


class Ranking(ExperimentReader):
    """Part of `Experiments`."""

    async def rank_facts(
        self, experiment_id: str, gpu_id: str | None = None, source: TickSource = "report"
    ) -> RankFacts:
        """Facts of a run at a bucket, without its peers; one round trip.

        Raises:
            NotFound: no such experiment.
        """
        keys, (_, tag) = self._keys, named_by(experiment_id)
        found = await self._lab.read(
            {
                "now": ("TIME",),
                "experiment": ("HGETALL", keys.experiment(experiment_id)),
                "tag": ("HGETALL", keys.tag(tag)),
                "policy": ("HGET", keys("policy", tag), "values"),
                "gpu_class": ("HGET", keys.gpu(gpu_id), "gpu_name") if gpu_id else None,
            }
        )
        e = experiment_in(found["experiment"], experiment_id)
        return RankFacts(
            now=time_of(found["now"]),
            experiment=e,
            tag=tag_in(found["tag"], tag),
            policy=read_policy(found["policy"]),
            rank_class=rank_class(found["gpu_class"] or e.gpu_type or "", source),
            tick_source=source,
        )

    async def peers(self, e: Experiment, rank_class: str, bucket: float, value: float) -> Peers:
        """Rank of a value among those of other runs at the same progress; one round trip, O(log n)."""
        earlier = [f"{at!r}:stopped" for at in BUCKETS if at < bucket]
        sums = [f"{bucket!r}:{name}" for name in SUMS]
        *counts, known = await self._lab.pipeline(
            [
                *counting(ranks_at(self._keys, e.tag, rank_class, bucket), e.experiment_id, value),
                ("HMGET", trends_at(self._keys, e.tag, rank_class), *sums, *earlier),
            ]
        )
        found, stopped = known[: len(sums)], known[len(sums) :]
        return replace(
            counted(counts, value),
            stopped=sum(int(n or 0) for n in stopped),
            trend=Trend(*(float(amount or 0) for amount in found)),
        )

    async def tell(self, e: Experiment, rank: Rank) -> Told | Literal["lost"]:
        """Enter a running attempt's value at a bucket, and answer its verdict. The first verdict stays."""
        keys, args = ranking(self._keys, e, rank)
        answer: Told | Literal["lost"] = await self._lab.move(
            "rank_run",
            keys={"experiment": self._keys.experiment(e.experiment_id), **keys},
            args={**args, "id": e.experiment_id, "tag": e.tag, "attempt": e.attempt, "fence": e.fence},
        )
        return answer


def ranking(
    keys: Keys, e: Experiment, rank: Rank
) -> tuple[dict[str, str | list[str]], dict[str, Arg | None]]:
    """Arguments of the part `_rank.lua`, besides the run's own names."""
    said = {
        "experiment_id": e.experiment_id,
        "bucket": rank.bucket,
        "metric": rank.metric,
        "progress": rank.progress,
        "told": rank.told,
        **rank.facts,
        **({} if rank.extra_s is None else {"extra_s": rank.extra_s}),
        **({} if rank.tick_source == "report" else {"tick_source": rank.tick_source}),
    }
    return {
        "ranks": [
            ranks_at(keys, e.tag, rank.rank_class, rank.bucket),
            all_ranks_at(keys, e.tag, rank.bucket),
        ],
        "trends": trends_at(keys, e.tag, rank.rank_class),
    }, {
        "bucket": rank.bucket,
        "class_id": class_id(rank.rank_class),
        "rank_class": rank.rank_class,
        "value": rank.value,
        "metric": rank.metric,
        "progress": rank.progress,
        "rank": rank.facts.get("rank"),
        "chance": rank.facts.get("chance"),
        "place": rank.place,
        "told": rank.told,
        "reason": rank.reason,
        "extra_s": rank.extra_s,
        "tick_data": json.dumps(said, allow_nan=False),
        "experiment_traceparent": e.traceparent,
    }


def counting(pool: str, own_id: str, value: float) -> list[tuple[str, ...]]:
    """Commands that count how a run's value compares with those of a pool; O(log n) each. `counted` reads them."""
    own = repr(value)
    return [
        ("ZCOUNT", pool, "-inf", f"({own}"),
        ("ZCOUNT", pool, own, own),
        ("ZCARD", pool),
        ("ZSCORE", pool, own_id),
    ]


def counted(counts: Sequence[Any], value: float) -> Peers:
    """The other runs of the pool."""
    lower, equal, runs, before = counts
    if before is None:
        return Peers(lower, equal, runs)
    return Peers(lower - (float(before) < value), equal - (float(before) == value), runs - 1)


def amounts(trends: Mapping[str, Trend], sign: int = 1) -> list[str]:
    """Increments of the trends' sums, as pairs of a field and an amount; `sign` -1 undoes them."""
    return [
        word
        for bucket, trend in trends.items()
        for name, amount in zip(SUMS, astuple(trend), strict=True)
        for word in (f"{bucket}:{name}", repr(sign * amount))
    ]


def rank_class(gpu_class: str, source: TickSource) -> str:
    """Runs that are ranked among each other: of one class of GPU, by ticks from one source."""
    return gpu_class if source == "report" else f"{gpu_class} ({source})"


def ends_at(keys: Keys, tag: str, rank_class: str) -> str:
    """Key of the final values of runs that are ranked among each other."""
    return keys("ends", tag, class_id(rank_class))


def trends_at(keys: Keys, tag: str, rank_class: str) -> str:
    """Key of the trends of such runs."""
    return keys("trends", tag, class_id(rank_class))


def ranks_at(keys: Keys, tag: str, rank_class: str, bucket: float) -> str:
    """Key of the values of such runs at a bucket."""
    return keys("ranks", tag, class_id(rank_class), repr(bucket))


def all_ranks_at(keys: Keys, tag: str, bucket: float) -> str:
    """The values at a bucket of runs of every rank class. They are shown; no rule reads them."""
    return keys("ranks", tag, "all", repr(bucket))


def pools_at(keys: Keys, tag: str, rank_classes: Iterable[str]) -> list[str]:
    """Every pool that may have a value of a run of these classes."""
    of_classes = [ranks_at(keys, tag, name, bucket) for name in rank_classes for bucket in BUCKETS]
    return of_classes + [all_ranks_at(keys, tag, bucket) for bucket in BUCKETS]
