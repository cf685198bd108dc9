"""Experiments, judged again: a retest is begun, what retests make of an experiment, a result that is taken back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from state import reads
from state.archive import packed
from state.booking import RUNS, Booking, a_run, reading_books, set_aside
from state.change import NOW, Change, exists, hmget, loosely, size, zscore
from state.decisions import Retest, Retraction, Ruling
from state.experiments.queueing import GATE, enter_queue, next_round, served_round, waits_aside
from state.experiments.ranking import add_trends, ends_at, pools_at, trends_at
from state.experiments.reading import ExperimentReader, retest_id
from state.experiments.writing import are_as_read, grow, leave_noise, put_best, told, versions_of
from state.facts import RaceFacts, RetestFacts, RetractionFacts, Spread, Trend
from state.ids import named_by
from state.noise import code_of, noise_entry, noise_key, runs_at
from state.reads import experiment_in, fields_in, row_as
from state.records import ChangedRun, Experiment, Tag, flatten
from state.refusals import no_experiment

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

    async def changed(self, tag: str, ids: Sequence[str]) -> tuple[Tag, list[ChangedRun]]:
        """A tag and some experiments; one round trip.

        Raises:
            NotFound: no such tag, or one of the experiments is missing.
        """
        keys, fields = self._keys, fields_in(ChangedRun)
        of_tag, *rows = await self._lab.read(
            reads.tag(keys, tag), *(loosely("HMGET", keys.experiment(name), *fields) for name in ids)
        )
        found: list[ChangedRun] = []
        for name, row in zip(ids, rows, strict=True):
            if (run := row_as(ChangedRun, row)) is None:
                raise no_experiment(name)
            found.append(run)
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
            change.apply(ruling.shift)
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


KEEPS_READ = 102
"""Number of best keeps that are read: more than one chain has, and the next one under it."""
CONDITIONS = ("key_gpu_class", "key_noise", "key_evaluator_hash", "key_budget_seconds", "lab_measured")
"""Fields of a tag that its first result sets."""
BEATEN_READ = 500
"""Results that did not improve on the best, those with the best values first: so many are read."""


class Retracting(ExperimentReader):
    async def retracted(self, experiment_id: str) -> tuple[Experiment, dict[str, Any] | None]:
        """An experiment, with {digest, answer} of its retraction. Raises NotFound: no such experiment."""
        stored = await self._lab.hash(self._keys.experiment(experiment_id))
        said = stored.get("retraction")
        return experiment_in(stored, experiment_id), json.loads(said) if said else None

    async def retraction_facts(self, e: Experiment) -> RetractionFacts:
        """Facts for taking a judged result back; one round trip. Raises NotFound: no such tag or experiment."""
        lab, keys, tag, other_key = self._lab, self._keys, e.tag, e.best_key
        noise, code = noise_key(keys, tag, e.gpu_class), code_of(e, other_key)
        found = await lab.read(
            {
                "tag": reads.tag(keys, tag),
                "policy": reads.policy(keys, tag),
                "best": reads.best(keys, tag, other_key),
                "noise": ("HMGET", noise, "squares", "df", code),
                # these may be newer than the values that the move compares, never older
                "experiment": reads.experiment(keys, e.experiment_id),
                "main_best": reads.best(keys, tag),
                "keeps": reads.records(lab, Experiment, keys.keeps(tag, other_key), limit=KEEPS_READ),
                "beaten": reads.records(lab, Experiment, keys.beaten(tag, other_key), limit=BEATEN_READ),
                "runs": reads.records(lab, Experiment, runs_at(noise, code), limit=-1),
                "rank_classes": ("HVALS", keys("rank_classes", tag)),
            }
        )
        squares, df, kept = found.pop("noise")
        workers = sorted({r.worker_id for r in found["runs"] if r.worker_id})
        theirs = await lab.pipeline([("HGET", noise, noise_entry(code, name)) for name in workers])
        spread = Spread(int(df or 0), float(squares or 0), tuple(text or "" for text in (kept, *theirs)))
        return RetractionFacts(**found, noise=spread, noise_workers=workers)

    async def retract(self, retraction: Retraction) -> bool:
        """Commit it; False where what the decision used has changed: read and decide again."""
        e, keys, facts = retraction.facts.experiment, self._keys, retraction.facts
        best, after, left = facts.best, retraction.after, retraction.left
        record, tag, shift = keys.experiment(e.experiment_id), keys.tag(e.tag), retraction.shift
        categories, times = f"categories:{e.tag}", keys("reference_times", e.tag)
        noise, code = noise_key(keys, e.tag, e.gpu_class), code_of(e, e.best_key)
        entries = left.entries if left else {}
        total, kept = f"{e.category}:total", f"{e.category}:kept"

        async def decide(change: Change) -> bool:
            mine, best_now, of_tag, spread, counts, references, *traces = await change.read(
                hmget(record, "status", "branches"),
                hmget(keys.best(e.tag, e.best_key), "version"),
                hmget(tag, "finishes", "total", "crashed", "awaits_baseline"),
                hmget(noise, "df", "squares", *entries),
                hmget(keys(categories), total),
                hmget(times, *e.time_classes),
                *versions_of(keys, retraction.growths),
            )
            if (
                (mine["status"], int(mine["branches"] or 0)) != (e.status, e.branches)
                or int(best_now["version"] or 0) != (best.version if best else 0)
                or int(of_tag["finishes"] or 0) != facts.tag.finishes
                or any((spread[name] or "") != before for name, (before, _) in entries.items())
                or not are_as_read(retraction.growths, traces)
            ):
                return False
            leader = await self._next_run(change, e) if e.worker_id else None
            has_end = await self._has_end(change, e, retraction.learnt)

            change.hset(record, {"status": "retracted", **flatten(retraction.fields)})
            change.apply(shift)
            if int(counts[total] or 0) + shift.counts[categories, total] == 0:  # nothing was tried in it
                change.hdel(keys(categories), total, kept)
            left_over = int(of_tag["total"] or 0) + shift.counts[f"tags:{e.tag}", "total"]
            change.hincrby(tag, "key_version")  # what is being judged with it is judged again
            change.hset(tag, flatten(retraction.tag_fields))
            if of_tag["total"] is not None and left_over == int(of_tag["crashed"] or 0):
                # it was the only result: the next one says under which conditions the tag is measured
                change.hdel(
                    tag, *CONDITIONS, *([] if of_tag["awaits_baseline"] == "true" else ["baseline_id"])
                )
            for pool in pools_at(keys, e.tag, facts.rank_classes):
                change.zrem(pool, e.experiment_id)
            if left is not None:
                leave_noise(change, noise, code, left, retraction.leaving, spread)
            if has_end:
                change.zrem(ends_at(keys, e.tag, e.rank_class or ""), e.experiment_id)
                add_trends(change, trends_at(keys, e.tag, e.rank_class or ""), retraction.learnt, -1)
            for name, text in references.items():  # the next run that is measured says how long runs take
                if text and json.loads(text).get("experiment_id") == e.experiment_id:
                    change.hdel(times, name)
            if leader is not None and e.worker_id:
                if leader:
                    change.zadd(keys("leaders", e.tag), {e.worker_id: leader[0]})
                else:
                    change.zrem(keys("leaders", e.tag), e.worker_id)
            for before, now in retraction.changed:
                fields = {name: "" if v is None else v for name, v in now if v != getattr(before, name)}
                change.hset(keys.experiment(now.experiment_id), flatten(fields))
            grow(change, keys, retraction.growths)
            told = dict(retraction.told)
            change.emit("experiment.retracted", e.tag, e.experiment_id, told, e.traceparent)
            if after is None:
                change.delete(keys.best(e.tag, e.best_key))
            else:
                is_new = best is None or after.experiment_id != best.experiment_id
                put_best(change, keys, e, after, e.best_key, is_new=is_new)
            return True

        return await self._lab.change(decide)

    async def _next_run(self, change: Change, e: Experiment) -> list[float] | None:
        """The worker's best run without this one: its value, or nothing; None where this one leads nobody."""
        runs = self._keys("worker_runs", e.worker_id or "")
        own, _, first = await change.read(
            zscore(runs, e.experiment_id), size(runs), loosely("ZRANGE", runs, "0", "1", "WITHSCORES")
        )
        if own is None:
            return None
        others = [name for name in first[::2] if name != e.experiment_id]
        if not others:
            return []
        (value,) = await change.read(zscore(runs, others[0]))
        return [] if value is None else [value]

    async def _has_end(self, change: Change, e: Experiment, learnt: Mapping[str, Trend]) -> bool:
        """Whether its end is among those that the trends have learnt from."""
        if not learnt:
            return False
        (end,) = await change.read(zscore(ends_at(self._keys, e.tag, e.rank_class or ""), e.experiment_id))
        return end is not None
