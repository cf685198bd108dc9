"""Swarms: workers that pull configs, the configs that wait for them, and the leaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from state import reads
from state.change import NOW, Asked, Change, Read, Reader, clock, get, hgetall, hmget, size, zscore
from state.client import Lab
from state.dimensions import dimensions_of
from state.errors import NotFound, TooManyRequests
from state.experiments.ranking import all_ranks_at
from state.policy import BUCKETS, FIFTHS, read_policy
from state.reads import Store
from state.records import Experiment, HeardWorker, Leader, SwarmWorker, flatten
from state.swarm_facts import (
    ActiveRun,
    JudgedRun,
    NextFacts,
    Observed,
    RefillFacts,
    Replenishing,
    SwarmFacts,
)
from state.token_values import Proof, Token, check_free, issue, issuing, rotate, rotating

LOOKED_AT = 32
"""A worker's config is drawn from so many that wait first: workers that ask at once rarely collide."""
REMEMBERED = 10_000
"""Most workers that a process remembers."""
OBSERVED = 1000
"""Newest results that the next configs are made of; and newest stopped runs."""


PERCENTILES = (25, 50, 75, 90)


JOINS_PER_S = 2.0
JOINS_BURST = 200
"""Most workers of a lab that join with the team's secret or an invitation: so many at once, then so many a second."""


class Swarms(Store):
    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self._last: dict[str, SwarmWorker] = {}

    async def worker(self, worker_id: str) -> SwarmWorker | None:
        """A worker; None where none of this name has joined."""
        return SwarmWorker.found(await self._lab.hash(self._keys("swarm_workers", worker_id)))

    async def join(
        self, said: Mapping[str, Any], by: str, enrolling: Token | None, *, is_limited: bool = False
    ) -> tuple[SwarmWorker, str]:
        """A new worker with the text of its own token. `said` has worker_id, tag, gpu_type, baseline_bpb and contact.

        Raises:
            Conflict: the name is taken, or reserved. Unauthenticated: no use of the enroll token is left.
            TooManyRequests: it `is_limited`, and as many as may have joined.
        """
        name, tag, keys = str(said["worker_id"]), str(said["tag"]), self._keys
        fields = {"name": name, "role": "worker", "kind": "access", "issued_by": by}
        check_free(name)

        async def decide(change: Change) -> tuple[SwarmWorker, str]:
            joining, count, is_swarm, *found = await change.read(
                get(keys("joining")),
                size(keys("swarm_members", tag)),
                zscore(keys("swarms"), tag),
                *issuing(keys, name, enrolling),
            )
            now = found[1]
            empty_at = max(float(joining or 0), now) + 1 / JOINS_PER_S
            wait_s = empty_at - now - JOINS_BURST / JOINS_PER_S
            if is_limited and wait_s > 1e-6:
                raise _too_many_joins(round(wait_s, 3))
            issued = issue(change, fields, *found, is_new=True)
            if is_limited:
                change.set(keys("joining"), empty_at, lasts_s=empty_at - now + 0.001)
            stored = flatten({**said, "token_id": issued.token.id, "number": count + 1, "joined_at": now})
            change.hset(keys("swarm_workers", name), stored)
            if is_swarm is None:
                change.zadd(keys("swarms"), {tag: now})
            change.zadd(keys("swarm_members", tag), {name: count + 1})
            change.zadd(keys("swarm_seen", tag), {name: now})
            change.emit("worker.joined", tag, name, _joined(said))
            self.remember(worker := SwarmWorker.parse(stored))
            return worker, issued.text

        return await self._lab.change(decide, in_turn="joining")

    async def rejoin(
        self, worker: SwarmWorker, said: Mapping[str, Any], shown: Proof | None, overlap_s: float
    ) -> tuple[SwarmWorker, str]:
        """A known worker with a new baseline, and the text of its new token.

        The token that it calls with stays valid for `overlap_s` seconds.

        Raises:
            Conflict: its token was revoked, or rotated meanwhile.
        """
        name, keys = worker.worker_id, self._keys
        token = Token.parse(await self._lab.hash(keys("tokens", worker.token_id)))

        async def decide(change: Change) -> tuple[SwarmWorker, str]:
            found = await change.read(*rotating(keys, token))
            issued = rotate(change, token, overlap_s, shown, *found)
            change.hset(keys("swarm_workers", name), flatten(said))
            change.zadd(keys("swarm_seen", worker.tag), {name: NOW})
            change.emit("worker.joined", worker.tag, name, _joined(said))
            return SwarmWorker.parse(worker.flat() | flatten(said)), issued.text

        return await self._lab.change(decide)

    async def known(self, worker_id: str) -> SwarmWorker:
        """A worker that has joined. Raises NotFound: none of this name has."""
        worker = await self.worker(worker_id)
        if worker is None:
            raise unknown_worker(worker_id)
        return worker

    async def remembered(self, worker_id: str) -> SwarmWorker:
        """A worker as this process saw it last; tag, population and run may be others. Raises NotFound."""
        return self._last.get(worker_id) or await self.known(worker_id)

    def remember(self, worker: SwarmWorker) -> None:
        if len(self._last) >= REMEMBERED:
            self._last.clear()
        self._last[worker.worker_id] = worker

    async def find(self, tag: str) -> SwarmFacts | None:
        try:
            return await self.facts(tag)
        except NotFound:
            return None

    async def facts(self, tag: str) -> SwarmFacts:
        """A swarm's tag, in one round trip. Raises NotFound: no such tag."""
        return SwarmFacts(**await self._of_tag(self._lab, tag, {}))

    async def results(self, tag: str) -> int:
        """Runs of a tag that ended with a value, or were stopped. Raises NotFound: no such tag."""
        (found,) = await self._lab.read(reads.tag(self._keys, tag))
        return found.results

    async def next_facts(self, worker: SwarmWorker, population_id: str, change: Change) -> NextFacts:
        """Facts for a worker's next config, and the configs that wait for this population, as its own may be another.

        One round trip, and one more if the worker has another run now. The change holds with the worker's run.

        Raises:
            NotFound: no such tag or worker.
        """
        keys, tag, name = self._keys, worker.tag, worker.worker_id

        def run_of(worker: SwarmWorker) -> Read[Experiment | None]:
            deciding = ("status", "handed_out", "stopping")
            return hgetall(keys.experiment(worker.run_id or "none"), *deciding, to=Experiment.found)

        registered = keys.status(tag, "registered", "")[0]
        found = await self._of_tag(
            change,
            tag,
            {
                # whether the swarm hands out configs, and by what policy: guarded
                "gate": hmget(keys.tag(tag), "paused_at"),
                "version": hmget(keys("policy", tag), "version"),
                "worker": hgetall(keys("swarm_workers", name), "run_id", to=SwarmWorker.found),
                "run": run_of(worker) if worker.run_id else None,
                "waiting": ("ZRANGE", keys("proposals", tag, population_id), 0, LOOKED_AT - 1),
                "retests": reads.records(self._lab, Experiment, registered, limit=LOOKED_AT),
                "best_config": reads.best_config(self._lab, tag),
            },
        )
        newest: SwarmWorker | None = found["worker"]
        if newest is None:
            raise unknown_worker(name)
        self.remember(newest)
        if newest.tag != tag:
            return await self.next_facts(newest, population_id, change)
        if newest.run_id is None:
            found["run"] = None
        elif newest.run_id != worker.run_id:
            found |= await change.read({"run": run_of(newest)})
        del found["gate"], found["version"]
        return NextFacts(**found, waiting_for=population_id)

    async def tags(self) -> list[str]:
        """Tags that have a swarm, those whose first worker joined first at the front."""
        found: list[str] = await self._lab.command("ZRANGE", self._keys("swarms"), 0, -1)
        return found

    async def populations(self, tag: str) -> list[str] | None:
        """Ids of a swarm's populations, empty while everyone is in one; None where no worker has joined."""
        joined, found = await self._lab.pipeline(
            [("ZSCORE", self._keys("swarms"), tag), ("HKEYS", self._keys("populations", tag))]
        )
        return None if joined is None else list(found)

    async def refill_facts(
        self, tag: str, population_ids: Sequence[str], change: Change | None = None
    ) -> RefillFacts:
        """Facts for new configs of these populations; one round trip. A `change` holds with the dimensions."""
        keys = self._keys
        indexes = (keys("finished", tag), *(keys.status(tag, s, "")[0] for s in ("stopped", "running")))
        found = await self._of_tag(
            change or self._lab,
            tag,
            {
                "best_config": reads.best_config(self._lab, tag),
                **{i: reads.rows(self._lab, Observed, i, limit=OBSERVED, newest=True) for i in indexes},
                **{f"of {name}": ("ZRANGE", keys("proposals", tag, name), 0, -1) for name in population_ids},
            },
        )
        observed = [run for index in indexes for run in found.pop(index)]
        waiting = {name: found.pop(f"of {name}") for name in population_ids}
        return RefillFacts(**found, observed=observed, waiting=waiting)

    def refill(self, change: Change, tag: str, changes: Mapping[str, Replenishing]) -> None:
        """Change the configs that wait, by population."""
        for name, new in changes.items():
            proposals = self._keys("proposals", tag, name)
            change.zrem(proposals, *new.dropped)
            change.zadd(proposals, {text: -priority for text, priority in new.added})

    async def waiting_count(self, tag: str, population_ids: Sequence[str]) -> int:
        places = [self._keys("proposals", tag, name) for name in population_ids]
        return sum(await self._lab.pipeline([("ZCARD", place) for place in places]))

    async def workers(self, tag: str, offset: int, limit: int) -> tuple[list[HeardWorker], int]:
        """A page of a tag's workers by number, and the number of all; two round trips."""
        keys = self._keys
        index = keys("swarm_members", tag)
        stored, total = await self._lab.read(
            reads.members(self._lab, index, keys("swarm_workers", ""), limit=limit, offset=offset),
            reads.number("ZCARD", index),
        )
        heard = await self._lab.pipeline([("ZSCORE", keys("swarm_seen", tag), name) for name in stored])
        found = [
            HeardWorker.parse({**fields, "heard_at": at})
            for fields, at in zip(stored.values(), heard, strict=True)
        ]
        return found, total

    async def leaders(self, tag: str, most: int) -> list[Leader]:
        """Workers with their best runs, best first; without those whose only run was just taken back."""
        keys = self._keys
        names = await self._lab.command("ZRANGE", keys("leaders", tag), 0, most - 1)
        found = await self._lab.pipeline(
            [
                *(("HGETALL", keys("swarm_workers", name)) for name in names),
                *(("ZRANGE", keys("worker_runs", name), 0, 0) for name in names),
            ]
        )
        leading = [
            (stored, ids[0])
            for stored, ids in zip(found[: len(names)], found[len(names) :], strict=True)
            if ids
        ]
        bests = await self._lab.pipeline(
            [("HMGET", keys.experiment(best), "delta_bpb", "config_delta") for _, best in leading]
        )
        return [
            Leader.parse({**stored, "best_delta_bpb": delta, "best_config_delta": config or "{}"})
            for (stored, _), (delta, config) in zip(leading, bests, strict=True)
        ]

    async def best_runs(self, tag: str, most: int) -> list[JudgedRun]:
        """A tag's best runs under its main key, so many kept ones and as many others."""
        kept, others = await self._lab.read(
            reads.rows(self._lab, JudgedRun, self._keys.keeps(tag), limit=most),
            reads.rows(self._lab, JudgedRun, self._keys.beaten(tag), limit=most),
        )
        return kept + others

    async def active_runs(self, tag: str) -> tuple[float, list[ActiveRun]]:
        """Redis' clock, and every run of a tag that its worker has not ended, the oldest first."""
        keys = self._keys
        running = keys.status(tag, "running", "")[0]
        now, runs = await self._lab.read(clock(), reads.rows(self._lab, ActiveRun, running, limit=-1))
        return now, [run for run in runs if run.worker_id is not None]

    async def stopped_at(self, tag: str) -> dict[float, int]:
        """How many runs were stopped at each bucket, for their rank."""
        classes = await self._lab.command("HKEYS", self._keys("rank_classes", tag))
        names = [f"{bucket!r}:stopped" for bucket in BUCKETS]
        found = await self._lab.pipeline(
            [("HMGET", self._keys("trends", tag, name), *names) for name in classes]
        )
        counts = [sum(int(count or 0) for count in counts) for counts in zip(*found, strict=True)]
        return dict(zip(BUCKETS, counts, strict=False))

    async def pools(self, tag: str) -> dict[float, tuple[int, dict[int, float]]]:
        """Number of runs at each fifth of their way, and `PERCENTILES` of their values; O(log n) each."""
        pools = {bucket: all_ranks_at(self._keys, tag, bucket) for bucket in FIFTHS}
        counts = await self._lab.pipeline([("ZCARD", pool) for pool in pools.values()])
        runs = {bucket: int(count) for bucket, count in zip(pools, counts, strict=True)}
        asked = [(bucket, percent) for bucket in FIFTHS if runs[bucket] for percent in PERCENTILES]
        places = [min(runs[bucket] - 1, runs[bucket] * percent // 100) for bucket, percent in asked]
        rows = await self._lab.pipeline(
            [
                ("ZRANGE", pools[bucket], at, at, "WITHSCORES")
                for (bucket, _), at in zip(asked, places, strict=True)
            ]
        )
        found: dict[float, dict[int, float]] = {bucket: {} for bucket in FIFTHS}
        for (bucket, percent), row in zip(asked, rows, strict=True):
            found[bucket][percent] = float(row[1])
        return {bucket: (runs[bucket], found[bucket]) for bucket in FIFTHS}

    async def _of_tag(self, reader: Reader, tag: str, more: Mapping[str, Asked | None]) -> dict[str, Any]:
        """The fields of `SwarmFacts`, and more, in one round trip. Raises NotFound: no such tag."""
        keys = self._keys
        finished = keys("finished", tag)
        found = await reader.read(
            {
                **more,
                "now": clock(),
                "tag": reads.tag(keys, tag),
                "policy": ("HMGET", keys("policy", tag), "values", "version"),
                "dimensions": dimensions_of(keys, tag),
                "active_workers": reads.active_workers(self._lab, tag),
                "populations": ("HVALS", keys("populations", tag)),
                "in_flight": ("HGETALL", keys("in_flight", tag)),
                "best": reads.best(keys, tag),
                "newest": reads.members(self._lab, finished, limit=1, newest=True, fields=("finished_at",)),
            }
        )
        policy, policy_version = found.pop("policy")
        dimensions, version = found.pop("dimensions")
        newest = next((float(at) for (at,) in found.pop("newest").values() if at), found["tag"].created_at)
        return {
            **found,
            "policy": read_policy(policy),
            "policy_version": int(policy_version),
            "dimensions": dimensions,
            "dimensions_version": version,
            "in_flight": {name: int(count) for name, count in found["in_flight"].items()},
            "newest_at": newest,
        }


def unknown_worker(worker_id: str) -> NotFound:
    return NotFound(f"there is no worker {worker_id!r}", hint="join the swarm first: POST /register")


def _joined(said: Mapping[str, Any]) -> dict[str, Any]:
    """Data of the event. The owner's contact stays in the record."""
    return {name: said[name] for name in ("worker_id", "tag", "gpu_type", "baseline_bpb")}


def _too_many_joins(wait_s: float) -> TooManyRequests:
    return TooManyRequests(
        f"more than {JOINS_BURST} workers have joined at once, or than {JOINS_PER_S:g} a second",
        hint="register again after Retry-After; workers that have joined go on",
        retry_after=wait_s,
    )
