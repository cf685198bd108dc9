"""Experiments, ranked: values of a tag's runs at the same progress, and the verdicts on them.

A pool holds one value for each run: that of its first tick within a bucket's tolerance. A run that is trained again,
after its worker was lost, replaces its value. The pools fill only while early stopping is on. Reported and printed
values are two quantities with separate pools.

Trends hold sums over the finished runs, so their size is constant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, fields, replace
from typing import Any

from state import reads
from state.change import NOW, Change, Joined, Read, Reader, clock, hgetall, loosely
from state.decisions import Rank
from state.experiments.reading import ExperimentReader
from state.facts import Peers, RankFacts, Trend
from state.ids import named_by
from state.keys import Keys
from state.noise import class_id
from state.policy import BUCKETS, TickSource
from state.reads import experiment_in
from state.records import Experiment, Tag, flatten

TICKS_KEPT = 500
REPORTED = (
    *("status", "attempt", "fence", "stopping", "told", "ranked", "places", "rank_class"),
    *("last_progress", "base_progress", "extended_s", "used_extension"),
)
"""Fields of a run that its reports change, or that decide about them."""
SUMS = tuple(sum_.name for sum_ in fields(Trend))
UNITS = [1 if name == "runs" else 10**9 for name in SUMS]
"""One, in each of the sums: only integers add up without losing bits."""


class Ranking(ExperimentReader):
    async def rank_facts(
        self,
        change: Change,
        experiment_id: str,
        gpu_id: str | None = None,
        source: TickSource = "report",
    ) -> RankFacts:
        """Facts of a run at a bucket, held by the change. Raises NotFound: no such experiment."""
        keys, (_, tag) = self._keys, named_by(experiment_id)
        found = await change.read(
            {
                "now": clock(),
                "experiment": hgetall(keys.experiment(experiment_id), *REPORTED),
                "policy": reads.policy(keys, tag),
                "gpu_class": ("HGET", keys.gpu(gpu_id), "gpu_name") if gpu_id else None,
            }
        )
        e = experiment_in(found["experiment"], experiment_id)
        gpu_class = found["gpu_class"] or e.gpu_type or ""
        return RankFacts(found["now"], e, found["policy"], rank_class(gpu_class, source), source)

    async def peers(
        self, reader: Reader, e: Experiment, rank_class: str, bucket: float, value: float
    ) -> tuple[Peers, Tag]:
        """Rank of a value among other runs at the same progress, O(log n). Raises NotFound: no such tag."""
        earlier = [f"{at!r}:stopped" for at in BUCKETS if at < bucket]
        sums = [f"{bucket!r}:{name}" for name in SUMS]
        *counts, known, tag = await reader.read(
            *counting(ranks_at(self._keys, e.tag, rank_class, bucket), e.experiment_id, value),
            loosely("HMGET", trends_at(self._keys, e.tag, rank_class), *sums, *earlier),
            reads.tag(self._keys, e.tag),
        )
        peers = replace(
            counted(counts, value),
            stopped=sum(int(n or 0) for n in known[len(sums) :]),
            trend=Trend(*(int(amount or 0) / unit for amount, unit in zip(known, UNITS, strict=False))),
        )
        return peers, tag

    def rank(self, change: Change, e: Experiment, rank: Rank) -> None:
        """Enter a run's value at a bucket among its peers, with what it is told there for the first time."""
        keys, bucket, run = self._keys, repr(rank.bucket), self._keys.experiment(e.experiment_id)
        ranked = [rank.facts["rank"], rank.facts["chance"]]
        fields: dict[str, Any] = {
            "told": {**(e.told or {}), f"{e.attempt}:{bucket}": rank.told},
            "ranked": {**(e.ranked or {}), bucket: ranked},
        }
        if rank.place is not None:
            before = e.places if e.rank_class == rank.rank_class else None
            fields |= {"places": {**(before or {}), bucket: rank.place}, "rank_class": rank.rank_class}
        if rank.told == "stop":
            fields |= {"stopping": True, "stop_reason": rank.reason}
            change.hincrby(trends_at(keys, e.tag, rank.rank_class), f"{bucket}:stopped")
        elif rank.told == "extend":
            fields["extended_s"] = rank.extra_s
            fields |= {"base_metric": rank.metric, "base_progress": rank.progress}
        change.hset(run, flatten(fields))
        for pool in (
            ranks_at(keys, e.tag, rank.rank_class, rank.bucket),
            all_ranks_at(keys, e.tag, rank.bucket),
        ):
            change.zadd(pool, {e.experiment_id: rank.value})
        change.hset(keys("rank_classes", e.tag), {class_id(rank.rank_class): rank.rank_class})
        change.hincrby(keys.tag(e.tag), "ticks")
        told = _said(e, rank)
        change.emit("run.ticked", e.tag, e.experiment_id, told, e.traceparent, published=False)
        if rank.told == "stop":
            change.emit("run.stopping", e.tag, e.experiment_id, told, e.traceparent)

    def keep_tick(
        self, change: Change, e: Experiment, tick: tuple[float, float], source: TickSource, *, is_base: bool
    ) -> None:
        """Keep a (metric, progress) that a run reports; `is_base`: within its own budget, before any extension.

        A run counts as extended from its first report beyond its budget, once however often it is begun.
        """
        run, (metric, progress) = self._keys.experiment(e.experiment_id), tick
        if is_base:
            self.keep_base(change, e, tick)
        elif e.extended_s is not None and not e.used_extension:
            change.hset(run, {"used_extension": "true"})
            change.hincrby(self._keys.tag(e.tag), "extended")
            told = {"metric": metric, "progress": progress, "extra_s": e.extended_s}
            told_of = {"experiment_id": e.experiment_id, **told}
            change.emit("run.extended", e.tag, e.experiment_id, told_of, e.traceparent)
        change.hset(run, {"last_metric": metric, "last_progress": progress, "tick_source": source})
        reports = self._keys("reports", e.experiment_id)
        change.rpush(reports, Joined(f"[{progress!r},{metric!r},", NOW, "]"))
        change.ltrim(reports, TICKS_KEPT)

    def keep_base(self, change: Change, e: Experiment, tick: tuple[float, float]) -> None:
        """Of a run that was given more time, keep the report nearest to the end of its own budget."""
        metric, progress = tick
        if e.base_progress is not None and abs(progress - 1) < abs(e.base_progress - 1):
            run = self._keys.experiment(e.experiment_id)
            change.hset(run, {"base_metric": metric, "base_progress": progress})


def _said(e: Experiment, rank: Rank) -> dict[str, Any]:
    """Data of the events of a run at a bucket."""
    return {
        "experiment_id": e.experiment_id,
        "bucket": rank.bucket,
        "metric": rank.metric,
        "progress": rank.progress,
        "told": rank.told,
        **rank.facts,
        **({} if rank.extra_s is None else {"extra_s": rank.extra_s}),
        **({} if rank.tick_source == "report" else {"tick_source": rank.tick_source}),
    }


def counting(pool: str, own_id: str, value: float) -> list[Read[Any]]:
    """Reads that count how a run's value compares with those of a pool; O(log n) each. `counted` reads them."""
    own = repr(value)
    return [
        loosely("ZCOUNT", pool, "-inf", f"({own}"),
        loosely("ZCOUNT", pool, own, own),
        loosely("ZCARD", pool),
        loosely("ZSCORE", pool, own_id),
    ]


def counted(counts: Sequence[Any], value: float) -> Peers:
    """The other runs of the pool."""
    lower, equal, runs, before = counts
    if before is None:
        return Peers(lower, equal, runs)
    return Peers(lower - (float(before) < value), equal - (float(before) == value), runs - 1)


def add_trends(change: Change, key: str, trends: Mapping[str, Trend], sign: int = 1) -> None:
    """Add to the sums of trends; `sign` -1 undoes it."""
    for bucket, trend in trends.items():
        for name, unit, amount in zip(SUMS, UNITS, astuple(trend), strict=True):
            change.hincrby(key, f"{bucket}:{name}", sign * round(amount * unit))


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
