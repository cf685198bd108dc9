"""Experiments of a swarm: hand one out to a worker, record its ticks, stop it for its rank.

Such a run has no lease and no attempt. It belongs to its worker until it ends, or until the worker was silent for too
long. `EndingStore` has the effects of its end on the swarm.
"""

from __future__ import annotations

import json
from typing import get_args

from state.budgets import WARN_AT
from state.change import NOW, Change, hmget
from state.decisions import Ending, HandOut, Rank
from state.entries import Entry, Run
from state.experiments.ending import EndingStore, is_as_read
from state.experiments.queueing import run_fields
from state.experiments.ranking import REPORTED, Ranking, pools_at, rank_class
from state.experiments.registering import Registering
from state.indexes import members, records
from state.policy import TickSource
from state.records import Experiment, SwarmWorker, flatten, words
from state.tags import exhausted

OF_REPORTS = (
    *("told", "ranked", "places", "last_metric", "last_progress", "tick_source"),
    *("extended_s", "base_metric", "base_progress"),
)
"""Fields of a run that come from its reports."""
AT_ONCE = 1000
"""Overdue runs that are read at once."""


class HandingOut(Registering, EndingStore, Ranking):
    """Part of `Experiments`."""

    async def hand_out(self, worker: SwarmWorker, out: HandOut) -> str | None:
        """Enter a config as a run of this worker, its budget set aside; answers its id.

        None where what this was decided on has changed, the config has as many trials, or runs in flight, as it may
        have, or the worker as many runs.

        Raises:
            BudgetExhausted: the tag's budget has no room for it.
        """
        idea = out.idea
        run = Run(0, out.budget_s, out.budget_s)
        entry_keys, args = await self._entering(Entry(idea), None, None, "running", run)
        of_run = {
            "worker_id": worker.worker_id,
            "gpu_type": worker.gpu_type,
            "baseline_bpb": worker.baseline_bpb,
            "fingerprint": out.fingerprint,
            "population_id": out.population_id,
            "population_strategy": out.strategy,
            "proposal_priority": out.priority,
            "is_extra": out.is_extra,
            "is_compared": out.is_compared,
            "is_reference": out.is_reference,
        }
        answer = await self._lab.move(
            "hand_out",
            keys={**entry_keys, **self._of_worker(worker, out)},
            args={
                **args,
                "fields": [*words(idea.flat()), *words({**run_fields(run), **flatten(of_run)})],
                "worker_id": worker.worker_id,
                "is_extra": 1 if out.is_extra else None,
                "run_id": worker.run_id,
                "version": out.dimensions_version,
                "run_s": out.budget_s,
                "lost_after_s": out.lost_after_s,
                "fingerprint": out.fingerprint,
                "most_trials": out.most_trials,
                "most_in_flight": out.most_in_flight,
                "most_active": out.most_active,
                "proposal": out.proposal,
                "population_id": out.population_id,
                "is_compared": 1 if out.is_compared else None,
                "is_reference": 1 if out.is_reference else None,
                "few": out.few,
                "started": json.dumps(_started(worker, 1))[1:-1],
            },
        )
        match answer:
            case ["ok", number]:
                return f"{idea.tag}-{number}"
            case ["exhausted", *_]:
                raise exhausted(idea.tag, answer)
            case _:
                return None

    async def hand_out_retest(
        self, retest: Experiment, worker: SwarmWorker, *, budget_s: float, lost_after_s: float
    ) -> bool:
        """Begin a retest on this worker, its budget set aside; False where it was begun, or the worker has a run.

        Raises:
            BudgetExhausted: the tag's budget has no room for it.
        """
        keys = self._keys
        of_run = {
            "worker_id": worker.worker_id,
            "gpu_type": worker.gpu_type,
            "baseline_bpb": worker.baseline_bpb,
            "budget_s": budget_s,
        }
        answer = await self._lab.move(
            "hand_out_retest",
            keys={
                "experiment": keys.experiment(retest.experiment_id),
                "swarm_worker": keys("swarm_workers", worker.worker_id),
                **keys.relisted(retest, "registered", "running"),
            },
            args={
                "id": retest.experiment_id,
                "number": retest.number,
                "tag": retest.tag,
                "worker_id": worker.worker_id,
                "run_id": worker.run_id,
                "run_s": budget_s,
                "lost_after_s": lost_after_s,
                "fingerprint": retest.fingerprint,
                "fields": words(flatten(of_run)),
                "started": json.dumps(_started(worker, 1))[1:-1],
                "warn_at": WARN_AT,
                "experiment_traceparent": retest.traceparent,
            },
        )
        if answer[0] == "exhausted":
            raise exhausted(retest.tag, answer)
        return bool(answer[0] == "ok")

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
        keys = self._keys
        reading = members(self._lab, keys("handed_out"), high="now", limit=AT_ONCE)
        [answer] = await self._lab.pipeline([reading])
        return [Experiment.parse(fields) for fields in records(answer).values() if fields]

    def _of_worker(self, worker: SwarmWorker, out: HandOut) -> dict[str, str]:
        keys, tag = self._keys, out.idea.tag
        return {
            "swarm_worker": keys("swarm_workers", worker.worker_id),
            "configs": keys("configs", tag),
            "assigned": keys("assigned", tag),
            "proposals": keys("proposals", tag, out.population_id),
        }

    def _of_ticks(self, e: Experiment) -> dict[str, str]:
        keys = self._keys
        return {
            "experiment": keys.experiment(e.experiment_id),
            "ticks": keys("reports", e.experiment_id),
        }


def _started(worker: SwarmWorker, nth: int) -> dict[str, object]:
    """Data of the event of a run's start."""
    return {"worker_id": worker.worker_id, "gpu_type": worker.gpu_type, "handed_out": nth}
