"""Experiments, run again: the race for the best, one more run of an experiment's code, and what retests change."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from state import reads
from state.booking import RUNS, Booking, a_run, reading_books, set_aside
from state.change import NOW, Change, exists, hmget, loosely
from state.decisions import Retest, Ruling
from state.experiments.queueing import GATE, enter_queue, next_round, served_round, waits_aside
from state.experiments.reading import ExperimentReader, retest_id
from state.experiments.writing import apply, are_as_read, grow, put_best, told, versions_of
from state.facts import RaceFacts, RetestFacts, Spread
from state.ids import named_by
from state.noise import noise_key
from state.patches import packed
from state.records import Experiment, Tag, flatten

SWARM_PATIENCE_S = 7 * 86400.0
"""Seconds that the retest of a swarm's run waits for a worker: a swarm may be paused, or sleep."""
SPARE_READ = 4
"""Retests of each experiment that are read with it, beyond those that its tag's policy asks for."""
SAME_CODE = {
    *(
        "tag",
        "number",
        "hypothesis",
        "description",
        "category",
        "commit_sha",
        "diff_summary",
        "diff_id",
        "tree_id",
    ),
    *(
        "fingerprint",
        "population_id",
        "population_strategy",
        "hypothesis_id",
        "proposal_priority",
        "parent_ids",
    ),
    *(
        "owner",
        "config_delta",
        "keep_rule",
        "patience_s",
        "is_confined",
        "traceparent",
        "gpu_class",
        "best_key",
    ),
}
"""Fields that a retest shares with the experiment that it repeats."""


class Retesting(ExperimentReader):
    """Part of `Experiments`."""

    async def race(self, tag: str, best_key: str | None) -> RaceFacts | None:
        """The best under a comparability key with its chain and rivals; None where no retest can change it.

        Two round trips; one more under another key than the tag's main one, and where agents asked for many retests.

        Raises:
            NotFound: no such tag.
        """
        keys = self._keys
        of_tag, rules, best = await self._lab.read(
            reads.tag(keys, tag), reads.policy(keys, tag), reads.best(keys, tag, best_key)
        )
        if best is None or not best.chain:
            return None
        links = [*best.chain, *best.rivals]
        read_ahead = max(rules.max_retests, rules.baseline_repeats) + SPARE_READ
        names = [link.experiment_id for link in links]
        ahead = [retest_ids(name, 0, read_ahead) for name in names]
        sums = ("squares", "df", *(link.code or "" for link in links))
        found = await self._lab.read(
            {
                name: loosely("HGETALL", keys.experiment(name), to=Experiment.found)
                for name in (*names, *chain.from_iterable(ahead))
            }
            | {"noise": loosely("HMGET", noise_key(keys, tag, of_tag.key_gpu_class), *sums)}
        )
        runs: dict[str, Experiment] = {name: found[name] for name in names}
        retests = {
            name: [run for each in several if (run := found[each])]
            for name, several in zip(names, ahead, strict=True)
        }
        for name, run in runs.items():
            if run.retests > read_ahead:
                retests[name] += await self.many(retest_ids(name, read_ahead, run.retests))
        squares, df, *kept = found["noise"]
        if best_key is not None:
            noise = noise_key(keys, tag, runs[names[0]].gpu_class)
            squares, df, *kept = await self._lab.command("HMGET", noise, *sums)
        return RaceFacts(
            tag=of_tag,
            policy=rules,
            best=best,
            runs=runs,
            retests=retests,
            noise=Spread(int(df or 0), float(squares or 0), tuple(text or "" for text in kept)),
        )

    async def with_tag(self, tag: str, ids: Sequence[str]) -> tuple[Tag, list[Experiment]]:
        """A tag and some experiments; one round trip.

        Raises:
            NotFound: no such tag, or one of the experiments is missing.
        """
        keys = self._keys
        of_tag, *found = await self._lab.read(
            reads.tag(keys, tag), *(reads.experiment(keys, name) for name in ids)
        )
        return of_tag, found

    async def retest_facts(self, experiment_id: str) -> RetestFacts:
        """Facts for one more run of an experiment's code; two round trips.

        Raises:
            NotFound: no such experiment.
        """
        _, tag = named_by(experiment_id)
        e, of_tag, policy = await self._lab.read(
            reads.experiment(self._keys, experiment_id),
            reads.tag(self._keys, tag),
            reads.policy(self._keys, tag),
        )
        its = await self.many(retest_ids(experiment_id, 0, e.retests))
        return RetestFacts(e, its, of_tag, policy)

    async def begin_retest(self, retest: Retest) -> Experiment | None:
        """Run an experiment's code once more; None where it has changed since this was decided.

        It waits for a GPU at once, its run set aside from the tag's budget; or its agent trains it.

        Raises:
            BudgetExhausted: the tag's budget has no room for the run.
        """
        e, keys, run_s = retest.of, self._keys, retest.run_s
        again = Experiment(
            experiment_id=retest_id(e, e.retests),
            retest_of=e.experiment_id,
            agent=retest.agent,
            seed=retest.seed,
            status="registered" if run_s is None else "queued",
            registered_at=0.0,
            budget_s=run_s or e.budget_s or e.budget_seconds,
            timeout_s=retest.timeout_s,
            priority=retest.priority if run_s is not None else 0,
            pinned_gpu=retest.pinned_gpu,
            **e.model_dump(include=SAME_CODE),
        )
        name, record = again.experiment_id, keys.experiment(again.experiment_id)
        patch = keys("diffs", e.diff_id) if e.diff_id and run_s is not None else None

        async def decide(change: Change) -> Experiment | None:
            first, limits, taken, served, gate, *has_patch = await change.read(
                hmget(keys.experiment(e.experiment_id), "retests", "status"),
                *reading_books(keys, e.tag, RUNS),
                served_round(keys),
                hmget(keys.tag(e.tag), *GATE),
                *([exists(patch)] if patch else []),
            )
            if (first["retests"] or "0", first["status"]) != (str(e.retests), e.status):
                return None
            archived = None if all(has_patch) else (await packed(await self.patch(e)))[1]
            if archived is None and not all(has_patch):
                return None
            booking = Booking(change, e.tag, a_run(run_s) if run_s is not None else [], limits, taken)
            await booking.check()
            if patch:
                change.incrby(keys("patch_uses"))
            if patch and archived is not None:
                change.set(patch, archived)
            change.hincrby(keys.experiment(e.experiment_id), "retests")
            stored = flatten(again.model_dump(exclude_none=True, exclude={"registered_at"}))
            change.hset(record, {**stored, "registered_at": NOW})
            for index in keys.indexes(again, again.status):
                change.zadd(index, {name: e.number})
            told = {"experiment_id": e.experiment_id, "retest_id": name, "seed": retest.seed}
            change.emit("experiment.retesting", e.tag, e.experiment_id, told, e.traceparent)
            if run_s is None:
                patience_s = e.patience_s if e.worker_id is None else SWARM_PATIENCE_S
                change.zadd(keys("open"), {name: NOW + patience_s})
                return again
            booking.write()
            set_aside(change, record, run_s)
            change.hset(record, {"attempt": 1, "queued_at": NOW})
            change.hset(keys.attempts(name), {"1:status": "queued", "1:queued_at": NOW})
            in_round = next_round(change, retest.agent) if retest.takes_turn else int(served["round"] or 0)
            if retest.takes_turn:
                change.hset(record, {"queue_round": in_round})
            pin, aside = retest.pinned_gpu, waits_aside(gate, name)
            room = keys.parked(e.tag, pin) if aside else keys.queue(pin)
            enter_queue(change, room, name, retest.priority, in_round)
            told = {"experiment_id": name, "attempt": 1}
            change.emit("experiment.queued", e.tag, name, told, e.traceparent)
            return again

        return await self._lab.change(decide)

    async def judge(self, ruling: Ruling) -> bool:
        """Commit the verdict of retests. False if the experiment or the best has changed: read and decide again."""
        e, keys, growths = ruling.experiment, self._keys, ruling.growths
        record, tag, moves = keys.experiment(e.experiment_id), keys.tag(e.tag), ruling.status != e.status
        finishes = hmget(tag, "finishes")

        async def decide(change: Change) -> bool:
            now, best, of_tag, *traces = await change.read(
                hmget(record, "status", *(["branches"] if moves else [])),
                hmget(keys.best(e.tag, e.best_key), "version"),
                finishes.loose() if ruling.finishes is None else finishes,
                *versions_of(keys, growths),
            )
            if (
                now["status"] != e.status
                or int(best["version"] or 0) != ruling.best.version
                or (ruling.finishes is not None and int(of_tag["finishes"] or 0) != ruling.finishes)
                or (moves and int(now["branches"] or 0) != e.branches)
                or not are_as_read(growths, traces)
            ):
                return False
            change.hset(record, {"status": ruling.status, **flatten(ruling.fields)})
            apply(change, keys, ruling.shift)
            change.hset(tag, flatten(ruling.tag_fields))
            grow(change, keys, growths)
            if ruling.verdict is not None:
                data = told(e, ruling.facts)
                change.emit(f"experiment.{ruling.verdict}", e.tag, e.experiment_id, data, e.traceparent)
            is_new = ruling.after.experiment_id != ruling.best.experiment_id
            put_best(change, keys, e, ruling.after, e.best_key, is_new=is_new)
            return True

        return await self._lab.change(decide)


def retest_ids(experiment_id: str, begin: int, end: int) -> list[str]:
    """Ids of an experiment's retests from the nth, counted from 0, up to another."""
    return [f"{experiment_id}.{nth + 2}" for nth in range(begin, end)]
