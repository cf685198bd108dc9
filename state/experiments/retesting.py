"""Experiments, run again: the race for the best, one more run of an experiment's code, and what retests change."""

from __future__ import annotations

import asyncio
from typing import Any

from state.budgets import WARN_AT
from state.change import Change, hmget
from state.decided import decided_of, experiment_with, fields_for, limits_text
from state.decisions import Retest, Ruling
from state.experiments.queueing import reading_rounds, rounds_of, turn_of
from state.experiments.reading import ExperimentReader, experiment_in, retest_id
from state.experiments.writing import apply, are_as_read, grow, put_best, told, versions_of
from state.facts import RaceFacts, RetestFacts, Spread
from state.ids import named_by
from state.noise import noise_key
from state.patches import packed
from state.policy import read_policy
from state.records import Best, Experiment, flatten, words
from state.tags import exhausted, tag_in

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
        "fingerprint",
        "population_id",
        "population_strategy",
        "hypothesis_id",
        "proposal_priority",
    ),
    *(
        "parent_ids",
        "owner",
        "config_delta",
        "keep_rule",
        "patience_s",
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
        stored, policy, best_hash = await self._lab.pipeline(
            [
                ("HGETALL", keys.tag(tag)),
                ("HGET", keys("policy", tag), "values"),
                ("HGETALL", keys.best(tag, best_key)),
            ]
        )
        of_tag = tag_in(stored, tag)
        best = Best.found(best_hash)
        if best is None or not best.chain:
            return None
        rules = read_policy(policy)
        links = [*best.chain, *best.rivals]
        read_ahead = max(rules.max_retests, rules.baseline_repeats) + SPARE_READ
        names = [link.experiment_id for link in links]
        ahead = [retest_ids(name, 0, read_ahead) for name in names]
        noise = noise_key(keys, tag, of_tag.key_gpu_class)
        rows = await self._lab.pipeline(
            [
                ("HMGET", keys("decided", tag), *(field for name in names for field in fields_for(name))),
                *(("HGETALL", keys.experiment(name)) for name in names),
                *(("HGETALL", keys.experiment(name)) for several in ahead for name in several),
                ("HMGET", noise, "squares", "df", *(link.code or "" for link in links)),
            ]
        )
        rest = iter(rows)
        decided = decided_of(next(rest))
        runs = {
            name: Experiment.parse(experiment_with(next(rest), of_name))
            for name, of_name in zip(names, decided, strict=True)
        }
        retests = {
            name: [Experiment.parse(row) for _ in several if (row := next(rest))]
            for name, several in zip(names, ahead, strict=True)
        }
        for name, run in runs.items():
            if run.retests > read_ahead:
                more = await self.many(retest_ids(name, read_ahead, run.retests))
                retests[name] = [*retests[name], *more]
        spread = next(rest)
        if best_key is not None:
            noise = noise_key(keys, tag, runs[names[0]].gpu_class)
            codes = (link.code or "" for link in links)
            spread = await self._lab.command("HMGET", noise, "squares", "df", *codes)
        squares, df, *kept = spread
        return RaceFacts(
            tag=of_tag,
            policy=rules,
            best=best,
            runs=runs,
            retests=retests,
            noise=Spread(float(squares or 0), int(df or 0), tuple(text or "" for text in kept)),
        )

    async def retest_facts(self, experiment_id: str) -> RetestFacts:
        """Facts for one more run of an experiment's code; two round trips.

        Raises:
            NotFound: no such experiment.
        """
        _, tag = named_by(experiment_id)
        stored, decided, of_tag, policy = await self._lab.pipeline(
            [
                ("HGETALL", self._keys.experiment(experiment_id)),
                ("HMGET", self._keys("decided", tag), *fields_for(experiment_id)),
                ("HGETALL", self._keys.tag(tag)),
                ("HGET", self._keys("policy", tag), "values"),
            ]
        )
        e = experiment_in(experiment_with(stored, *decided_of(decided)), experiment_id)
        its, rounds = await asyncio.gather(
            self.many(retest_ids(experiment_id, 0, e.retests)),
            self._lab.pipeline([reading_rounds(self._keys, e.agent)] if e.is_claim else []),
        )
        return RetestFacts(
            e, its, tag_in(of_tag, tag), read_policy(policy), rounds_of(*rounds) if rounds else None
        )

    async def begin_retest(self, retest: Retest) -> Experiment | None:
        """Run an experiment's code once more; None where what this was decided on has changed.

        Raises:
            BudgetExhausted: the tag's budget has no room for the run.
        """
        e = retest.of
        again = Experiment(
            experiment_id=retest_id(e, e.retests),
            retest_of=e.experiment_id,
            agent=retest.agent,
            seed=retest.seed,
            status="registered" if retest.run_s is None else "queued",
            registered_at=0.0,
            budget_s=retest.run_s or e.budget_s or e.budget_seconds,
            timeout_s=retest.timeout_s,
            priority=retest.priority if retest.run_s is not None else 0,
            pinned_gpu=retest.pinned_gpu,
            **e.model_dump(include=SAME_CODE),
        )
        answer = await self._begin_retest(retest, again)
        if answer[0] == "archived":
            _, content = await packed(await self.patch(e))
            answer = await self._begin_retest(retest, again, content)
        if answer[0] == "exhausted":
            raise exhausted(e.tag, answer)
        return again if answer[0] == "ok" else None

    async def _begin_retest(self, retest: Retest, again: Experiment, patch: bytes | None = None) -> Any:
        """The move, with the patch where that has to come back from the archive."""
        e, keys = retest.of, self._keys
        index, category_index = keys.indexes(again, again.status)
        is_trained_here = retest.run_s is not None
        return await self._lab.move(
            "begin_retest",
            keys={
                "patch": keys("diffs", e.diff_id) if e.diff_id and is_trained_here else None,
                "experiment": keys.experiment(e.experiment_id),
                "retest": keys.experiment(again.experiment_id),
                "attempts": keys.attempts(again.experiment_id),
                "status_index": index,
                "category_index": category_index,
                "queue": keys.queue(retest.pinned_gpu),
                "parked": keys.parked(e.tag, retest.pinned_gpu),
            },
            args={
                "experiment_id": e.experiment_id,
                "id": again.experiment_id,
                "number": e.number,
                "tag": e.tag,
                "retests_before": e.retests,
                "status_before": e.status,
                "fields": words(flatten(again.model_dump(exclude_none=True, exclude={"registered_at"}))),
                "limits": limits_text(again),
                "status": again.status,
                "patience_s": e.patience_s if e.worker_id is None else SWARM_PATIENCE_S,
                "seed": retest.seed,
                "run_s": retest.run_s,
                "warn_at": WARN_AT,
                "priority": retest.priority,
                "agent": retest.agent or "",
                **turn_of(retest.turn),
                "experiment_traceparent": e.traceparent,
                "patch": patch,
            },
        )

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
