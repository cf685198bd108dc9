"""Swarms: workers that pull configs, the configs that wait for them, and the leaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from state import best_config
from state.change import NOW, Asked, Change, get, hgetall, hmget, size, zscore
from state.client import Lab, time_of
from state.dimensions import dimensions_in
from state.errors import NotFound, TooManyRequests
from state.experiments.ranking import all_ranks_at
from state.indexes import fields_in, members, read_as, records, values
from state.minting import check_free, issue, issuing, rotate, rotating
from state.moves import Arg
from state.policy import BUCKETS, FIFTHS, read_policy
from state.records import Best, Experiment, HeardWorker, Leader, SwarmWorker, flatten
from state.store import Store
from state.swarm_facts import (
    ActiveRun,
    BucketPool,
    NextFacts,
    Observed,
    RefillFacts,
    Replenishing,
    SwarmFacts,
)
from state.tags import tag_in
from state.token_values import Proof, Token

ACTIVE_S = 600.0
"""A worker counts as active so many seconds after it was last heard of."""
LOOKED_AT = 32
"""A worker's config is drawn from so many that wait first: workers that ask at once rarely collide."""
REMEMBERED = 10_000
"""Most workers that a process remembers."""
OBSERVED = 1000
"""Newest results that the next configs are made of; and newest stopped runs."""


PERCENTILES = (25, 50, 75, 90)


@dataclass(frozen=True)
class WorkerWithToken:
    """A worker with the text of its token, shown once."""

    worker: SwarmWorker
    text: str


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
    ) -> WorkerWithToken:
        """A new worker with its own token. `said` has worker_id, tag, gpu_type, baseline_bpb and contact.

        Raises:
            Conflict: the name is taken, or reserved. Unauthenticated: no use of the enroll token is left.
            TooManyRequests: it `is_limited`, and as many as may have joined.
        """
        name, tag, keys = str(said["worker_id"]), str(said["tag"]), self._keys
        fields = {"name": name, "role": "worker", "kind": "access", "issued_by": by}
        check_free(name)

        async def decide(change: Change) -> WorkerWithToken:
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
            return WorkerWithToken(worker, issued.text)

        return await self._lab.change(decide, in_turn="joining")

    async def rejoin(
        self, worker: SwarmWorker, said: Mapping[str, Any], shown: Proof | None, overlap_s: float
    ) -> WorkerWithToken:
        """A known worker with a new baseline and a new token. The token it calls with stays valid for `overlap_s`
        seconds.

        Raises:
            Conflict: its token was revoked, or rotated meanwhile.
        """
        name, keys = worker.worker_id, self._keys
        token = Token.parse(await self._lab.hash(keys("tokens", worker.token_id)))

        async def decide(change: Change) -> WorkerWithToken:
            found = await change.read(*rotating(keys, token))
            issued = rotate(change, token, overlap_s, shown, *found)
            change.hset(keys("swarm_workers", name), flatten(said))
            change.zadd(keys("swarm_seen", worker.tag), {name: NOW})
            change.emit("worker.joined", worker.tag, name, _joined(said))
            return WorkerWithToken(SwarmWorker.parse(worker.flat() | flatten(said)), issued.text)

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
        return _facts(tag, await self._lab.read(self._of_tag(tag)))

    async def results(self, tag: str) -> int:
        """Runs of a tag that ended with a value, or were stopped. Raises NotFound: no such tag."""
        return tag_in(await self._lab.hash(self._keys.tag(tag)), tag).results

    async def next_facts(self, worker: SwarmWorker, population_id: str, change: Change) -> NextFacts:
        """Facts for a worker's next config, and the configs that wait for this population, as its own may be another.

        One round trip, and one more if the worker has another run now. The change holds with the worker's run.

        Raises:
            NotFound: no such tag or worker.
        """
        keys, tag, name = self._keys, worker.tag, worker.worker_id
        deciding = ("status", "handed_out", "stopping")
        found = await change.read(
            {
                **self._of_hand_outs(tag),
                **self._of_tag(tag),
                "worker": hgetall(keys("swarm_workers", name), "run_id"),
                "run": hgetall(keys.experiment(worker.run_id), *deciding) if worker.run_id else None,
                "waiting": ("ZRANGE", keys("proposals", tag, population_id), 0, LOOKED_AT - 1),
                "retests": members(self._lab, keys.status(tag, "registered", "")[0], limit=LOOKED_AT),
                "best_config": best_config.reading(self._lab, tag),
            }
        )
        if not found["worker"]:
            raise unknown_worker(name)
        newest = SwarmWorker.parse(found["worker"])
        self.remember(newest)
        if newest.tag != tag:
            return await self.next_facts(newest, population_id, change)
        if newest.run_id is None:
            found["run"] = None
        elif newest.run_id != worker.run_id:
            found |= await change.read({"run": hgetall(keys.experiment(newest.run_id), *deciding)})
        return NextFacts(
            **vars(_facts(tag, found)),
            worker=newest,
            run=Experiment.found(found["run"]),
            waiting_for=population_id,
            waiting=found["waiting"],
            retests=[e for fields in records(found["retests"]).values() if (e := Experiment.found(fields))],
            best_config=best_config.read_from(found["best_config"]),
        )

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
        waiting = {name: ("ZRANGE", keys("proposals", tag, name), 0, -1) for name in population_ids}
        found = await (change or self._lab).read(
            {
                **self._of_tag(tag),
                "finished": self._observed(keys("finished", tag)),
                "stopped": self._observed(keys.status(tag, "stopped", "")[0]),
                "running": self._observed(keys.status(tag, "running", "")[0]),
                "best_config": best_config.reading(self._lab, tag),
                **waiting,
            }
        )
        observed = [
            run for index in ("finished", "stopped", "running") for run in read_as(Observed, found[index])
        ]
        return RefillFacts(
            **vars(_facts(tag, found)),
            observed=observed,
            waiting={name: found[name] for name in population_ids},
            best_config=best_config.read_from(found["best_config"]),
        )

    def _observed(self, index: str) -> Sequence[Arg]:
        return members(self._lab, index, limit=OBSERVED, newest=True, fields=Observed)

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
        page = members(self._lab, index, keys("swarm_workers", ""), limit=limit, offset=offset)
        answer, total = await self._lab.pipeline([page, ("ZCARD", index)])
        stored = records(answer)
        heard = await self._lab.pipeline([("ZSCORE", keys("swarm_seen", tag), name) for name in stored])
        found = [
            HeardWorker.parse({**fields, "heard_at": at})
            for fields, at in zip(stored.values(), heard, strict=True)
        ]
        return found, int(total)

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

    async def best_runs(self, tag: str, most: int) -> list[tuple[Observed, float]]:
        """A tag's best runs under its main key, so many kept ones and as many others, with their judged values."""
        keys = self._keys
        reads = [
            members(self._lab, index, limit=most, fields=(*fields_in(Observed), "judged_val_bpb"))
            for index in (keys.keeps(tag), keys.beaten(tag))
        ]
        found = {row[0]: row for answer in await self._lab.pipeline(reads) for row in values(answer).values()}
        runs = [
            (Observed.parse(dict(zip(fields_in(Observed), row, strict=False))), row[-1])
            for row in found.values()
        ]
        return [(run, float(mean) if mean else run.delta_bpb or 0.0) for run, mean in runs]

    async def active_runs(self, tag: str) -> tuple[float, list[ActiveRun]]:
        """Redis' clock, and every run of a tag that its worker has not ended, the oldest first."""
        keys = self._keys
        reading = members(self._lab, keys.status(tag, "running", "")[0], limit=-1, fields=ActiveRun)
        time, answer = await self._lab.pipeline([("TIME",), reading])
        return time_of(time), [run for run in read_as(ActiveRun, answer) if run.worker_id is not None]

    async def stopped_at(self, tag: str) -> dict[float, int]:
        """How many runs were stopped at each bucket, for their rank."""
        classes = await self._lab.command("HKEYS", self._keys("rank_classes", tag))
        names = [f"{bucket!r}:stopped" for bucket in BUCKETS]
        found = await self._lab.pipeline(
            [("HMGET", self._keys("trends", tag, name), *names) for name in classes]
        )
        counts = [sum(int(count or 0) for count in counts) for counts in zip(*found, strict=True)]
        return dict(zip(BUCKETS, counts, strict=False))

    async def pools(self, tag: str) -> dict[float, BucketPool]:
        """Values of the runs at each fifth of their way; O(log n) each."""
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
        return {bucket: BucketPool(runs[bucket], found[bucket]) for bucket in FIFTHS}

    def _of_hand_outs(self, tag: str) -> dict[str, Asked]:
        """Reads that guard whether a swarm hands out configs, and by what policy."""
        return {
            "gate": hmget(self._keys.tag(tag), "paused_at"),
            "version": hmget(self._keys("policy", tag), "version"),
        }

    def _of_tag(self, tag: str) -> dict[str, Asked]:
        """The reads of `SwarmFacts`."""
        keys = self._keys
        return {
            "now": ("TIME",),
            "tag": ("HGETALL", keys.tag(tag)),
            "policy": ("HMGET", keys("policy", tag), "values", "version"),
            "dimensions": hmget(keys("dimensions", tag), "values", "version"),
            "seen": self._seen(tag),
            "populations": ("HVALS", keys("populations", tag)),
            "in_flight": ("HGETALL", keys("in_flight", tag)),
            "best": ("HGETALL", keys.best(tag)),
            "newest": members(
                self._lab, keys("finished", tag), limit=1, newest=True, fields=("finished_at",)
            ),
        }

    def _seen(self, tag: str) -> Sequence[Arg]:
        return self._lab.reading(
            "count_seen", keys={"index": self._keys("swarm_seen", tag)}, args={"within_s": ACTIVE_S}
        )


def unknown_worker(worker_id: str) -> NotFound:
    return NotFound(f"there is no worker {worker_id!r}", hint="join the swarm first: POST /register")


def _joined(said: Mapping[str, Any]) -> dict[str, Any]:
    """Data of the event. The owner's contact stays in the record."""
    return {name: said[name] for name in ("worker_id", "tag", "gpu_type", "baseline_bpb")}


def _facts(tag: str, found: Mapping[str, Any]) -> SwarmFacts:
    of_tag = tag_in(found["tag"], tag)
    (policy, policy_version), (dimensions, version) = found["policy"], found["dimensions"].values()
    return SwarmFacts(
        now=time_of(found["now"]),
        tag=of_tag,
        policy=read_policy(policy),
        policy_version=int(policy_version),
        dimensions=dimensions_in(dimensions),
        dimensions_version=int(version or 0),
        active_workers=int(found["seen"]),
        best=Best.found(found["best"]),
        populations=found["populations"],
        in_flight={name: int(count) for name, count in found["in_flight"].items()},
        newest_at=next((float(at) for (at,) in values(found["newest"]).values() if at), of_tag.created_at),
    )


def _too_many_joins(wait_s: float) -> TooManyRequests:
    return TooManyRequests(
        f"more than {JOINS_BURST} workers have joined at once, or than {JOINS_PER_S:g} a second",
        hint="register again after Retry-After; workers that have joined go on",
        retry_after=wait_s,
    )
