"""Whole tags and the whole pool, read for the audit; never on a request's path."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from state.change import Change, loosely
from state.client import Lab
from state.derived import COUNTED, Books, Derived, books_of
from state.experiments import PAGE_BYTES, Experiments, Window
from state.experiments.ranking import ends_at, ranks_at, trends_at
from state.policy import BUCKETS
from state.records import OPEN, STATUSES, Experiment, ForestRecords, SwarmWorker, Trace
from state.tokens import Tokens
from state.traces import Traces

T = TypeVar("T")

PAGE = 1000


class Snapshots:
    """Reads everything of a lab, page by page."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._experiments = Experiments(lab)
        self._traces = Traces(lab)

    async def experiments(self, tag: str) -> list[Experiment]:
        found: list[Experiment] = []
        cursor: int | None = None
        while True:
            page = await self._experiments.page(
                Window(tag, PAGE, cursor=cursor, newest=False, most_bytes=PAGE_BYTES)
            )
            found += page.experiments
            cursor = page.following
            if cursor is None:
                return found

    async def retests(self, experiments: Sequence[Experiment]) -> list[Experiment]:
        found: list[Experiment] = []
        for page in _pages([e for e in experiments if e.retests]):
            found += [r for its in await self._experiments.retests(page) for r in its]
        return found

    async def lost_patches(self, experiments: Sequence[Experiment]) -> dict[str, str]:
        """Patches that neither Redis nor the archive has, by the experiment that needs it."""
        lost: dict[str, str] = {}
        keys = self._lab.keys
        named = [(e.experiment_id, e.diff_id) for e in experiments if e.diff_id]
        for page in _pages(named):
            here = await self._lab.pipeline([("EXISTS", keys("diffs", digest)) for _, digest in page])
            gone = [found for found, is_here in zip(page, here, strict=True) if not is_here]
            there = await self._lab.pipeline([("ZSCORE", keys("archived"), digest) for _, digest in gone])
            lost |= dict(found for found, since in zip(gone, there, strict=True) if since is None)
        return lost

    async def operators(self) -> list[str]:
        """Ids of the access tokens that operators were ever issued."""
        return [t.id for t in await Tokens(self._lab).all() if t.role == "operator" and t.kind == "access"]

    async def closed_at(self) -> str | None:
        """When the lab was closed, as text; None: it is open."""
        found: str | None = await self._lab.command("GET", self._lab.keys("closed"))
        return found

    async def derived(self, tag: str, also: Derived) -> Derived:
        """Counters and indexes of a tag that follow from its records, and those that `also` names."""
        keys, found = self._lab.keys, Derived()
        workers = await self._scores(keys("swarm_members", tag))
        named = [f"{name}:{tag}" for name in ("keeps", "beaten", "near_misses", "finished", "retests")]
        named += [f"status:{tag}:{status}" for status in STATUSES] + [f"worker_runs:{w}" for w in workers]
        sets = sorted({*named, *(key for key, _ in also.scores)})
        for page in _pages(sets):
            rows = await self._lab.pipeline([("ZRANGE", keys(key), 0, -1, "WITHSCORES") for key in page])
            for key, row in zip(page, rows, strict=True):
                found.scores |= {(key, m): float(score) for m, score in zip(row[::2], row[1::2], strict=True)}
        named = [f"{name}:{tag}" for name in ("tags", "categories", "configs")]
        named += [f"swarm_workers:{w}" for w in workers]
        named += [key for key, _ in also.counts if not key.startswith("trace:")]
        for key, stored in (await self.hashes(named)).items():
            derived = stored.keys() & COUNTED.get(key.partition(":")[0], stored.keys())
            found.counts.update({(key, name): int(stored[name]) for name in derived})
        return found

    async def hashes(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Hashes by their keys without the lab."""
        found = dict[str, dict[str, str]]()
        for page in _pages(sorted({*names})):
            stored = await self._lab.hashes([self._lab.keys(name) for name in page])
            found |= dict(zip(page, stored, strict=True))
        return found

    async def ranked(
        self, tag: str
    ) -> tuple[dict[float, frozenset[str]], frozenset[str], dict[float, float]]:
        """Runs that are ranked at each bucket; those of them that ended with a value; runs in each trend."""
        keys = self._lab.keys
        classes = (await self._lab.hash(keys("rank_classes", tag))).values()
        ranks = {
            bucket: await self._members_of([ranks_at(keys, tag, name, bucket) for name in classes])
            for bucket in BUCKETS
        }
        ends = await self._members_of([ends_at(keys, tag, name) for name in classes])
        trends = await self._lab.hashes([trends_at(keys, tag, name) for name in classes])
        told = {b: sum(float(sums.get(f"{b!r}:runs", 0)) for sums in trends) for b in BUCKETS}
        return ranks, ends, told

    async def _scores(self, key: str) -> dict[str, float]:
        rows = await self._lab.command("ZRANGE", key, 0, -1, "WITHSCORES", withscores=True)
        return {str(member): float(value) for member, value in rows}

    async def swarm_workers(self, tag: str) -> list[SwarmWorker]:
        names = await self._scores(self._lab.keys("swarm_members", tag))
        stored = await self.hashes(f"swarm_workers:{name}" for name in names)
        return [SwarmWorker.parse(fields) for fields in stored.values() if fields]

    async def leaders(self, tag: str) -> dict[str, float]:
        return await self._scores(self._lab.keys("leaders", tag))

    async def forest(self, tag: str) -> ForestRecords:
        found: list[Trace] = []
        below: int | None = None
        while True:
            page, _ = await self._traces.page(tag, PAGE, below)
            found = [*page, *found]
            if len(page) < PAGE:
                break
            below = page[0].number
        still_open = await self._traces.open_selections(tag)
        records = await self._traces.selections(sorted(still_open))
        live = await self._lab.command("ZRANGE", self._lab.keys("live_traces", tag), 0, -1)
        made_for = await self._lab.pipeline(
            [("ZRANGE", self._lab.keys.of_trace(trace.trace_id), 0, -1) for trace in found]
        )
        return ForestRecords(
            traces=found,
            live=frozenset(live),
            made_for={t.trace_id: frozenset(ids) for t, ids in zip(found, made_for, strict=True)},
            open=still_open,
            selections={s.selection_id: s for s in records},
        )

    async def members(self, index: str) -> frozenset[str]:
        """Members of an index of the lab: idle_gpus, leases, starting, open or paused."""
        return await self._members_of([self._lab.keys(index)])

    async def owned_gpus(self) -> dict[tuple[str, bool], int]:
        """Number of GPUs of each owner; True: registered as an agent, for itself."""
        of_agents, of_workers = await self._lab.hashes(
            [self._lab.keys(n) for n in ("agent_gpus", "worker_gpus")]
        )
        counted = {(owner, True): int(count) for owner, count in of_agents.items()}
        return counted | {(owner, False): int(count) for owner, count in of_workers.items()}

    async def waiting(self) -> frozenset[str]:
        """Members of the common wait queue and of every GPU's own."""
        return await self._members_of(
            [self._lab.keys.queue(), *[key async for key in self._lab.scan("queue:*")]]
        )

    async def parked(self) -> frozenset[str]:
        """Experiments that wait aside because their tag is paused."""
        return await self._members_of([key async for key in self._lab.scan("parked:*")])

    async def _members_of(self, indexes: Sequence[str]) -> frozenset[str]:
        members = await self._lab.read(*(loosely("ZRANGE", key, 0, -1) for key in indexes))
        return frozenset(i for group in members for i in group)

    async def books(self, experiments: Sequence[Experiment]) -> Books:
        """Sum of what these experiments have spent and reserved."""
        total = Books()
        for page in _pages(experiments):
            attempts = await self._experiments.attempts_of([e.experiment_id for e in page])
            total = sum((books_of(e, its) for e, its in zip(page, attempts, strict=True)), total)
        return total

    async def open_experiments(self, tags: Iterable[str], also: Iterable[str]) -> dict[str, Experiment]:
        """Experiments that are open in these tags, and the named ones."""
        keys = [self._lab.keys.status(tag, status, "")[0] for tag in tags for status in sorted(OPEN)]
        ids = await self._members_of(keys) | set(also)
        return {e.experiment_id: e for e in await self._experiments.many(sorted(ids))}

    async def finishes(self) -> dict[str, Counter[str]] | None:
        """Per tag: number of events about each experiment's end; None if the stream was trimmed."""
        counted: dict[str, Counter[str]] = {}
        after = "-"
        while True:
            rows = await self._lab.command("XRANGE", self._lab.keys("events"), after, "+", "COUNT", PAGE)
            for _, fields in rows:
                if fields["type"] in ("experiment.finished", "experiment.lost"):
                    subject = json.loads(fields["data"])["experiment_id"]
                    counted.setdefault(fields["tag"], Counter())[subject] += 1
            if len(rows) < PAGE:
                break
            after = f"({rows[-1][0]}"
        return counted if await self._is_whole() else None

    async def _is_whole(self) -> bool:
        """Whether the stream still holds every event since the lab began."""
        key = self._lab.keys("events")
        length, facts = await self._lab.pipeline([("XLEN", key), ("EXISTS", key)])
        if not facts:
            return True
        info = await self._lab.command("XINFO STREAM", key)
        return int(info["entries-added"]) == int(length)

    async def report(self, violations: Sequence[str]) -> None:
        """Write down that an audit found something, as an event."""
        told = {"violations": list(violations[:20]), "count": len(violations)}

        async def decide(change: Change) -> None:
            change.emit("lab.audit_failed", None, "lab", told)

        await self._lab.change(decide)


def _pages(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items, at most PAGE at a time."""
    return (items[begin : begin + PAGE] for begin in range(0, len(items), PAGE))
