"""Experiments of a swarm: hand one out to a worker, record its ticks, stop it for its rank.

Such a run has no lease and no attempt. It belongs to its worker until it ends, or until the worker was silent for too
long. `EndingStore` has the effects of its end on the swarm.
"""

from __future__ import annotations

from typing import get_args

from state import reads
from state.booking import RUNS, Booking, a_run, reading_books, set_aside
from state.change import NOW, Change, Joined, Word, hmget, size, zscore
from state.decisions import Ending, Entered, Entry, EntryFacts, HandOut, Rank, Run
from state.experiments.ending import EndingStore, is_as_read
from state.experiments.queueing import run_fields
from state.experiments.ranking import REPORTED, Ranking, pools_at, rank_class
from state.experiments.registering import Registering, names_of
from state.experiments.writing import relist
from state.policy import TickSource
from state.records import Experiment, SwarmWorker, flatten
from state.swarm_facts import SwarmFacts

OF_REPORTS = (
    *("told", "ranked", "places", "last_metric", "last_progress", "tick_source"),
    *("extended_s", "base_metric", "base_progress"),
)
"""Fields of a run that come from its reports."""
OF_WORKER = {"worker_id", "gpu_type", "baseline_bpb"}
"""Fields of a worker that its runs have."""
NEARLY_FEW = 8
"""So many configs above `few` their number is guarded: several workers take some at once."""
AT_ONCE = 1000
"""Overdue runs that are read at once."""


class HandingOut(Registering, EndingStore, Ranking):
    async def hand_out(
        self, change: Change, facts: SwarmFacts, worker: SwarmWorker, out: HandOut
    ) -> Entered | None:
        """Enter a config as a run of this worker, its budget set aside.

        None where another worker took it, or it has as many trials, or runs in flight, as it may have.

        Raises:
            BudgetExhausted: the tag's budget has no room for it.
        """
        idea, keys, tag, run = out.idea, self._keys, out.idea.tag, Run(0, out.budget_s, out.budget_s)
        configs, proposals = keys("configs", tag), keys("proposals", tag, out.population_id)
        trials, in_flight = (f"{out.fingerprint}:{count}" for count in ("trials", "in_flight"))
        limits, taken = reading_books(keys, tag, RUNS)
        found = await change.read(
            {
                "limits": limits,
                "tried": hmget(keys("tried", tag), *names_of(idea)),
                "place": zscore(proposals, out.proposal) if out.proposal else None,
                "left": size(proposals, is_held=False),
                "taken": taken,
                "counts": hmget(configs, trials, in_flight).loose(),
            }
        )
        tried, going = (int(count or 0) for count in found["counts"].values())
        is_taken = (out.most_trials and tried + going >= out.most_trials) or (
            out.most_in_flight and going >= out.most_in_flight
        )
        if is_taken or (out.proposal and found["place"] is None):
            return None
        of_worker, left = keys("swarm_workers", worker.worker_id), found["left"] - bool(out.proposal)
        for key, names, most in (
            (configs, (trials, in_flight), out.most_trials),
            (configs, (in_flight,), out.most_in_flight),
            (of_worker, ("active",), out.most_active),
        ):
            if most:
                change.room(key, names, most)
        if left <= out.few + NEARLY_FEW:
            change.hold(proposals)
        entry = EntryFacts(
            now=facts.now,
            tag=facts.tag,
            policy=facts.policy,
            policy_version=facts.policy_version,
            tried=found["tried"],
            of_tag={**found["limits"], **found["taken"]},
        )
        of_run = {
            **worker.model_dump(include=OF_WORKER),
            "fingerprint": out.fingerprint,
            "population_id": out.population_id,
            "population_strategy": out.strategy,
            "proposal_priority": out.priority,
            "is_extra": out.is_extra,
            "is_compared": out.is_compared,
            "is_reference": out.is_reference,
        }
        fields: dict[str, Word] = {**run_fields(run), **flatten(of_run), "handed_out": 1, "started_at": NOW}
        entered, name, _ = await self._enter(
            change, Entry(idea), entry, None, None, run, fields, is_handed_out=True
        )
        self._begin(change, tag, name, worker, out.fingerprint, out.lost_after_s, is_own=not out.is_extra)
        if out.proposal:
            change.zrem(proposals, out.proposal)
        if not out.is_extra:
            change.hset(of_worker, {"population_id": out.population_id})
            change.hset(keys("assigned", tag), {worker.worker_id: out.population_id})
            change.hincrby(keys("in_flight", tag), out.population_id)
            if out.is_reference:
                change.hset(of_worker, {"compared": 0})
            elif out.is_compared:
                change.hincrby(of_worker, "compared")
        if left == 0 or (out.proposal and left == out.few):
            change.emit("proposals.few", tag, out.population_id, {"left": left})
        told = {"experiment_id": name, **_started(worker, 1)}
        change.emit("experiment.started", tag, name, told, idea.traceparent)
        return entered

    async def hand_out_retest(
        self, change: Change, retest: Experiment, worker: SwarmWorker, *, budget_s: float, lost_after_s: float
    ) -> bool:
        """Begin a retest on this worker; False where it was begun. Raises BudgetExhausted."""
        keys, name, run = self._keys, retest.experiment_id, self._keys.experiment(retest.experiment_id)
        limits, taken = reading_books(keys, retest.tag, RUNS)
        of_it, limited, sums = await change.read(hmget(run, "status", "reserved_gpu_seconds"), limits, taken)
        if of_it["status"] != "registered":
            return False
        takes = a_run(budget_s, of_it["reserved_gpu_seconds"])
        booking = Booking(change, retest.tag, takes, limited, sums)
        await booking.check()
        booking.write()
        of_run = {
            "status": "running",
            "handed_out": 1,
            **worker.model_dump(include=OF_WORKER),
            "budget_s": budget_s,
        }
        change.hset(run, {**flatten(of_run), "started_at": NOW})
        set_aside(change, run, budget_s)
        change.zrem(keys("open"), name)
        relist(change, keys, retest, "registered", "running")
        self._begin(change, retest.tag, name, worker, retest.fingerprint or "", lost_after_s, is_own=True)
        told = {"experiment_id": name, **_started(worker, 1)}
        change.emit("experiment.started", retest.tag, name, told, retest.traceparent)
        return True

    def _begin(
        self,
        change: Change,
        tag: str,
        name: str | Joined,
        worker: SwarmWorker,
        config: str,
        lost_after_s: float,
        *,
        is_own: bool,
    ) -> None:
        """A run of a worker is in flight; `is_own`: it is what its worker asked for, not one beside that."""
        keys, of_worker = self._keys, self._keys("swarm_workers", worker.worker_id)
        change.hincrby(keys("configs", tag), f"{config}:in_flight")
        change.zadd(keys("handed_out"), {name: NOW + lost_after_s})
        change.zadd(keys("swarm_seen", tag), {worker.worker_id: NOW})
        change.hincrby(of_worker, "active")
        if is_own:
            change.hset(of_worker, {"run_id": name})

    def hand_out_again(self, change: Change, e: Experiment, worker: SwarmWorker, lost_after_s: float) -> None:
        """Hand a run to its worker again; its reports start over."""
        keys, run, name = self._keys, self._keys.experiment(e.experiment_id), e.experiment_id
        change.hset(run, {"handed_out": 2, "started_at": NOW})
        change.hdel(run, *OF_REPORTS)
        change.delete(keys("reports", name))
        classes = [rank_class(e.gpu_type or "", source) for source in get_args(TickSource)]
        for pool in pools_at(keys, e.tag, classes):
            change.zrem(pool, name)
        change.zadd(keys("handed_out"), {name: NOW + lost_after_s})
        change.zadd(keys("swarm_seen", e.tag), {worker.worker_id: NOW})
        told = {"experiment_id": name, **_started(worker, 2)}
        change.emit("experiment.started", e.tag, name, told, e.traceparent)

    def tick(
        self,
        change: Change,
        e: Experiment,
        tick: tuple[float, float],
        *,
        silent_s: float,
        rank: Rank | None = None,
        is_base: bool,
        source: TickSource = "report",
    ) -> None:
        """Store a tick (metric, progress) of a run of a swarm, which is ranked by `rank`.

        `is_base`: the tick is within the run's own budget, before any extension. `source`: origin of the tick.
        """
        keys, (_, progress) = self._keys, tick
        if e.last_progress is None or progress >= e.last_progress:
            self.keep_tick(change, e, tick, source, is_base=is_base)
        elif is_base:  # a later report has overtaken it
            self.keep_base(change, e, tick)
        lost_at = {e.experiment_id: NOW + silent_s}
        change.zadd(keys("handed_out"), lost_at, known=True, higher=True)
        change.zadd(keys("swarm_seen", e.tag), {e.worker_id or "": NOW})
        if rank is not None:
            self.rank(change, e, rank)
            if rank.extra_s is not None:
                change.zincrby(keys("handed_out"), e.experiment_id, rank.extra_s)

    async def stop_ranked(self, ending: Ending, rank: Rank) -> bool:
        """Rank a run of a swarm and stop it, in one move. False if it had another verdict before."""
        name = ending.experiment.experiment_id

        async def decide(change: Change) -> bool:
            await change.read(hmget(self._keys.experiment(name), *REPORTED))
            run = await self.run_facts(change, name)
            e = run.experiment

            def ranked() -> None:
                self.keep_tick(change, e, (rank.metric, rank.progress), rank.tick_source, is_base=True)
                self.rank(change, e, rank)

            if not is_as_read(ending, run) or e.told_at(rank.bucket) is not None:
                return change.idle(False)
            await self.finish(change, run, ending, first=ranked)
            return True

        return await self._lab.change(decide)

    async def keep_late_value(self, e: Experiment, value: float) -> None:
        """Keep what the worker of a stopped run measured; its first word counts."""
        run = self._keys.experiment(e.experiment_id)

        async def decide(change: Change) -> None:
            (found,) = await change.read(hmget(run, "status", "late_val_bpb"))
            if found["status"] == "stopped" and found["late_val_bpb"] is None:
                change.hset(run, {"late_val_bpb": value})
                told = {"experiment_id": e.experiment_id, "worker_id": e.worker_id, "late_val_bpb": value}
                change.emit("run.reported_late", e.tag, e.experiment_id, told, e.traceparent)

        await self._lab.change(decide)

    async def overdue(self) -> list[Experiment]:
        """Runs of all swarms whose workers have been silent for too long."""
        return await self._lab.one(
            reads.records(self._lab, Experiment, self._keys("handed_out"), high="now", limit=AT_ONCE)
        )


def _started(worker: SwarmWorker, nth: int) -> dict[str, object]:
    """Data of the event of a run's start."""
    return {"worker_id": worker.worker_id, "gpu_type": worker.gpu_type, "handed_out": nth}
