"""Experiments, shown: the facts of one answer, in at most two round trips."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence

from state.client import Lab, time_of
from state.errors import NotFound
from state.experiments.queueing import Queueing, slots_of
from state.experiments.reading import by_attempt, experiment_in, no_experiment
from state.facts import BestFacts, LiveLog, NearFacts, Patched, Runs, Shown, Spread, WaitFacts
from state.ids import named_by
from state.indexes import fields_in, fields_of, members, records, row_as
from state.moves import Arg
from state.noise import main_spread, spread_at, spread_of
from state.policy import Policy, read_policy
from state.records import (
    Best,
    Certificate,
    ComparedRun,
    Direction,
    Experiment,
    ExperimentRecord,
    OneRun,
    Tag,
    Transfer,
)
from state.tags import tag_in, unknown

AT_ONCE = 500
"""Experiments with their retests that one round trip reads."""
NearBand = Callable[[float, Direction, Policy, Spread], tuple[float, float]]
"""Lowest and highest score of a near miss.

By the best value, the tag's direction, the policy's margin, and the noise of the tag's main class of GPU.
"""


class Showing(Queueing):
    async def best_facts(self, tag: str) -> BestFacts:
        """A tag's best with every run of its code. Raises NotFound: no such tag, or nothing kept."""
        found = await self._lab.read(
            {
                "tag": ("HGETALL", self._keys.tag(tag)),
                "best": ("HGETALL", self._keys.best(tag)),
                "runs": runs_of_best(self._lab, tag),
            }
        )
        of_tag = tag_in(found["tag"], tag)
        if not found["best"] and of_tag.total:
            raise NotFound(
                f"none of the {of_tag.total} experiments of {tag!r} was kept yet",
                hint="POST /api/experiment/history shows what was tried",
            )
        if not found["best"]:
            raise NotFound(
                f"{tag!r} has no finished experiment yet",
                hint="submit an idea: the unchanged train.py, the baseline, runs before it",
            )
        runs = runs_of(found["runs"])
        return BestFacts(tag=of_tag, best=Best.parse(found["best"]), runs=runs, noise=await self._noise(runs))

    async def near_facts(self, tag: str, limit: int, near: NearBand) -> NearFacts:
        """The discards that came nearest to a tag's best, as it is now. Raises NotFound: no such tag."""
        keys = self._keys
        direction, best, policy, noise = await self._lab.pipeline(
            [
                ("HGET", keys.tag(tag), "direction"),
                ("HGET", keys.best(tag), "val_bpb"),
                ("HGET", keys("policy", tag), "values"),
                main_spread(self._lab, tag),
            ]
        )
        if direction is None:
            raise unknown(tag)
        if best is None:
            return NearFacts(direction, None, (), 0)
        index = keys("near_misses", tag)
        low, high = near(float(best), direction, read_policy(policy), spread_of(noise))
        found, total = await self._lab.pipeline(
            [
                members(self._lab, index, limit=limit, low=low, high=high, brief=True),
                ("ZCOUNT", index, repr(low), repr(high)),
            ]
        )
        misses = tuple(Experiment.parse(fields) for fields in records(found).values() if fields)
        return NearFacts(direction, float(best), misses, int(total))

    async def shown(self, experiment_id: str) -> Shown:
        """An experiment with everything that is known of it. Raises NotFound: no such experiment."""
        keys, (_, tag) = self._keys, named_by(experiment_id)
        found = await self._lab.read(
            {
                "direction": ("HGET", keys.tag(tag), "direction"),
                "policy": ("HGET", keys("policy", tag), "values"),
                "runs": self._lab.reading("read_runs", keys={"experiment": keys.experiment(experiment_id)}),
                "compared": self._lab.reading(
                    "read_runs",
                    keys={"experiment": keys.experiment(experiment_id)},
                    args={
                        "experiments": keys.experiment(""),
                        "named_by": "compared_with",
                        "fields": fields_in(OneRun),
                    },
                ),
                "attempts": ("HGETALL", keys.attempts(experiment_id)),
                "ticks": ("LRANGE", keys("reports", experiment_id), 0, -1),
                "log": ("GET", keys("log", experiment_id)),
                "evidence": ("HGETALL", keys("evidence", experiment_id)),
                "certificate": ("HGET", keys("certificates", tag), experiment_id),
                "transfers": ("HVALS", keys("transfers")),
            }
        )
        if not found["runs"]:
            raise no_experiment(experiment_id)
        runs = runs_of(found["runs"])
        noise, patch = await asyncio.gather(self._noise(runs), self.patch(runs.experiment))
        return Shown(
            runs=runs,
            direction=found["direction"],
            compared=measured_runs_of(found["compared"]),
            policy=read_policy(found["policy"]),
            noise=noise,
            patch=patch,
            attempts=by_attempt(found["attempts"]),
            ticks=[tuple(json.loads(row)) for row in found["ticks"]],
            log=found["log"],
            late_results=[json.loads(text) for text in found["evidence"].values()],
            certificate=Certificate.model_validate_json(found["certificate"])
            if found["certificate"]
            else None,
            transfers=[
                one
                for one in map(Transfer.model_validate_json, found["transfers"])
                if one.experiment_id == experiment_id
            ],
        )

    async def live_log(self, experiment_id: str) -> LiveLog:
        """The newest lines of its log, with its state. Raises NotFound: no such experiment."""
        keys = self._keys
        fields, text = await self._lab.pipeline(
            [
                ("HMGET", keys.experiment(experiment_id), "status", "last_progress", "last_metric"),
                ("GET", keys("log", experiment_id)),
            ]
        )
        status, progress, metric = fields
        if status is None:
            raise no_experiment(experiment_id)
        numbers = [None if number is None else float(number) for number in (progress, metric)]
        return LiveLog(status, text or "", *numbers)

    async def wait_facts(self, experiment_id: str) -> WaitFacts:
        """An experiment with the facts of its agent's next step. Raises NotFound: no such experiment."""
        keys, (_, tag) = self._keys, named_by(experiment_id)
        found = await self._lab.read(
            {
                **self._with_tag_and_slots(experiment_id),
                "best": ("HGETALL", keys.best(tag)),
                "crashes": ("HGET", keys("crashes", tag), "consecutive"),
            }
        )
        return WaitFacts(
            now=time_of(found["now"]),
            experiment=experiment_in(found["experiment"], experiment_id),
            tag=Tag.parse(found["tag"]),
            policy=read_policy(found["policy"]),
            best=Best.found(found["best"]),
            crashes_in_a_row=int(found["crashes"] or 0),
            slots=slots_of(found["slots"]),
        )

    async def runs(self, ids: Sequence[str]) -> dict[str, Runs[OneRun]]:
        """Values of several experiments and of their retests; at most one round trip."""
        fields, keys = fields_in(OneRun), self._keys
        answers = await self._lab.pipeline(
            [
                self._lab.reading(
                    "read_runs", keys={"experiment": keys.experiment(name)}, args={"fields": fields}
                )
                for name in ids
            ]
        )
        found = map(measured_runs_of, answers)
        return {name: runs for name, runs in zip(ids, found, strict=True) if runs is not None}

    async def beside(self, es: Sequence[ExperimentRecord | ComparedRun]) -> dict[str, Runs[OneRun]]:
        """Experiments with their retests, and what each was compared with, by id."""
        found: dict[str, Runs[OneRun]] = {e.experiment_id: Runs(e) for e in es if not e.retests}
        names = {e.experiment_id for e in es if e.retests}
        names.update(e.compared_with for e in es if e.compared_with is not None)
        unread = sorted(names - found.keys())
        for begin in range(0, len(unread), AT_ONCE):
            found |= await self.runs(unread[begin : begin + AT_ONCE])
            await asyncio.sleep(0)
        return found

    async def compared(self, a: str, b: str) -> tuple[Patched, Patched]:
        """Two experiments with their patches. Raises NotFound: one of them does not exist."""
        stored = await self._lab.hashes([self._keys.experiment(name) for name in (a, b)])
        both = [experiment_in(fields, name) for name, fields in zip((a, b), stored, strict=True)]
        patches = await self.patches(both)
        return Patched(both[0], patches[0]), Patched(both[1], patches[1])

    async def with_attempts(self, experiment_id: str) -> tuple[Experiment, dict[int, dict[str, str]]]:
        """An experiment with its attempts by number; one round trip. Raises NotFound: no such experiment."""
        keys = self._keys
        stored, attempts = await self._lab.hashes(
            [keys.experiment(experiment_id), keys.attempts(experiment_id)]
        )
        return experiment_in(stored, experiment_id), by_attempt(attempts)

    async def _noise(self, runs: Runs[Experiment]) -> Spread:
        """Noise of its tag and GPU class; empty if its code was not run again."""
        return await self.spread(runs.experiment) if runs.retests else Spread()

    async def spread(self, e: Experiment) -> Spread:
        """Noise of its tag and GPU class."""
        stored = await self._lab.command(*spread_at(self._keys, e.tag, e.gpu_class))
        return spread_of(stored)


def runs_of_best(lab: Lab, tag: str, fields: Sequence[str] = ()) -> Sequence[Arg]:
    """The runs of a tag's best, as a command of a pipeline; empty where it has none.

    `runs_of` reads the answer, or `measured_runs_of` with the fields of `OneRun`.
    """
    experiments = lab.keys.experiment("")
    return lab.reading(
        "read_runs",
        args={"tag": tag, "experiments": experiments, "named_by": "experiment_id", "fields": fields},
    )


def measured_runs_of(answer: Sequence[Sequence[str | None]]) -> Runs[OneRun] | None:
    """Values of an experiment and of its retests; None for an unknown experiment."""
    found = [run for row in answer if (run := row_as(OneRun, row)) is not None]
    return Runs(found[0], tuple(found[1:])) if found else None


def runs_of(answer: Sequence[Sequence[str]]) -> Runs[Experiment]:
    """An experiment with its retests."""
    first, *retests = (Experiment.parse(fields_of(pairs)) for pairs in answer)
    return Runs(first, tuple(retests))
