"""Experiments, shown: the facts of one answer, in at most two round trips."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from state import reads
from state.change import Read, loosely
from state.client import Lab
from state.errors import NotFound
from state.experiments.queueing import Queueing
from state.experiments.reading import attempts_of, near_count
from state.facts import BestFacts, LiveLog, NearFacts, Runs, ShownFacts, Spread, WaitFacts
from state.ids import named_by
from state.policy import Policy
from state.reads import fields_in, fields_of
from state.records import (
    Certificate,
    ComparedRun,
    Direction,
    Experiment,
    ExperimentRecord,
    OneRun,
    Transfer,
)
from state.refusals import no_experiment

R = TypeVar("R", bound=OneRun)

AT_ONCE = 500
"""Experiments with their retests that one round trip reads."""
NearBand = Callable[[float, Direction, Policy, Spread], tuple[float, float]]
"""Lowest and highest score of a near miss.

By the best value, the tag's direction, the policy's margin, and the noise of the tag's main class of GPU.
"""


def _certificate(text: str | None) -> Certificate | None:
    return None if text is None else Certificate.model_validate_json(text)


class Showing(Queueing):
    async def best_facts(self, tag: str) -> BestFacts:
        """A tag's best with every run of its code. Raises NotFound: no such tag, or nothing kept."""
        of_tag, best, runs = await self._lab.read(
            reads.tag(self._keys, tag), reads.best(self._keys, tag), runs_of_best(self._lab, Experiment, tag)
        )
        if best is None and of_tag.total:
            raise NotFound(
                f"none of the {of_tag.total} experiments of {tag!r} was kept yet",
                hint="POST /api/experiment/history shows what was tried",
            )
        if best is None or runs is None:
            raise NotFound(
                f"{tag!r} has no finished experiment yet",
                hint="submit an idea: the unchanged train.py, the baseline, runs before it",
            )
        return BestFacts(of_tag, best, runs, await self._noise(runs))

    async def near_facts(self, tag: str, limit: int, near: NearBand) -> NearFacts:
        """The discards that came nearest to a tag's best, as it is now. Raises NotFound: no such tag."""
        keys = self._keys
        of_tag, best, policy, noise = await self._lab.read(
            reads.tag(keys, tag),
            reads.best(keys, tag),
            reads.policy(keys, tag),
            reads.main_noise(self._lab, tag),
        )
        if best is None:
            return NearFacts(of_tag.direction, None, (), 0)
        low, high = band = near(best.val_bpb, of_tag.direction, policy, noise)
        index = keys("near_misses", tag)
        misses = reads.records(self._lab, Experiment, index, limit=limit, low=low, high=high, brief=True)
        return NearFacts(
            of_tag.direction, best.val_bpb, *await self._lab.read(misses, near_count(keys, tag, band))
        )

    async def shown(self, experiment_id: str) -> ShownFacts:
        """An experiment with everything that is known of it. Raises NotFound: no such experiment."""
        keys, (_, tag) = self._keys, named_by(experiment_id)
        found = await self._lab.read(
            {
                "direction": ("HGET", keys.tag(tag), "direction"),
                "runs": runs_of(self._lab, Experiment, keys.experiment(experiment_id)),
                "policy": reads.policy(keys, tag),
                "compared": runs_of(self._lab, OneRun, keys.experiment(experiment_id), "compared_with"),
                "attempts": attempts_of(keys, experiment_id),
                "ticks": loosely("LRANGE", keys("reports", experiment_id), 0, -1, to=_each_json),
                "log": ("GET", keys("log", experiment_id)),
                "late_results": loosely("HVALS", keys("evidence", experiment_id), to=_each_json),
                "certificate": loosely("HGET", keys("certificates", tag), experiment_id, to=_certificate),
                "transfers": reads.models(Transfer, keys("transfers")),
            }
        )
        if found["runs"] is None:
            raise no_experiment(experiment_id)
        found["transfers"] = [one for one in found["transfers"] if one.experiment_id == experiment_id]
        noise, patch = await asyncio.gather(self._noise(found["runs"]), self.patch(found["runs"].experiment))
        return ShownFacts(**found, noise=noise, patch=patch)

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
                "best": reads.best(keys, tag),
                "crashes_in_a_row": reads.crashes_in_a_row(keys, tag),
            }
        )
        return WaitFacts(**found)

    async def runs(self, ids: Sequence[str]) -> dict[str, Runs[OneRun]]:
        """Values of several experiments and of their retests; at most one round trip."""
        asked = {name: runs_of(self._lab, OneRun, self._keys.experiment(name)) for name in ids}
        return {name: runs for name, runs in (await self._lab.read(asked)).items() if runs is not None}

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

    async def compared(self, a: str, b: str) -> list[tuple[Experiment, bytes | None]]:
        """Two experiments with their patches. Raises NotFound: one of them does not exist."""
        both = await self._lab.read(*(reads.experiment(self._keys, name) for name in (a, b)))
        return [*zip(both, await self.patches(both), strict=True)]

    async def with_attempts(self, experiment_id: str) -> tuple[Experiment, dict[int, dict[str, str]]]:
        """An experiment with its attempts by number; one round trip. Raises NotFound: no such experiment."""
        return await self._lab.read(
            reads.experiment(self._keys, experiment_id), attempts_of(self._keys, experiment_id)
        )

    async def _noise(self, runs: Runs[Experiment]) -> Spread:
        """Noise of its tag and GPU class; empty if its code was not run again."""
        return await self.spread(runs.experiment) if runs.retests else Spread()

    async def spread(self, e: Experiment) -> Spread:
        """Noise of its tag and GPU class."""
        return await self._lab.one(reads.noise(self._keys, e.tag, e.gpu_class))


def runs_of_best(lab: Lab, kind: type[R], tag: str) -> Read[Runs[R] | None]:
    """The runs of a tag's best; None where it has none."""
    return _runs(lab, kind, {}, {"tag": tag, "named_by": "experiment_id"})


def runs_of(lab: Lab, kind: type[R], key: str, named_by: str | None = None) -> Read[Runs[R] | None]:
    """The experiment of this key, or the one that its field `named_by` names, with its retests; None: none is."""
    return _runs(lab, kind, {"experiment": key}, {"named_by": named_by})


def _runs(
    lab: Lab, kind: type[R], keys: Mapping[str, str], args: Mapping[str, str | None]
) -> Read[Runs[R] | None]:
    """Whole experiments, or the fields of another kind of record."""
    names = () if kind is Experiment else fields_in(kind)

    def meaning(answer: Sequence[Sequence[str]]) -> Runs[R] | None:
        found = [
            kind.parse(dict(zip(names, row, strict=True)) if names else fields_of(row)) for row in answer
        ]
        return Runs(found[0], tuple(found[1:])) if found else None

    given = {"experiments": lab.keys.experiment(""), "fields": names, **args}
    return loosely(*lab.reading("read_runs", keys=keys, args=given), to=meaning)


def _each_json(texts: Sequence[str]) -> list[Any]:
    return [json.loads(text) for text in texts]
