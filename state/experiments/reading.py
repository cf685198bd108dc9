"""Experiments, read: by id, by index, by page; none reads more than it answers."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from state.errors import NotFound
from state.experiments.store import Store
from state.experiments.walking import ancestors, ancestry, base_above, base_found
from state.indexes import members, values
from state.records import Best, End, Experiment, Status


class Reading(Store):
    """Part of `Experiments`."""

    async def find(self, experiment_id: str) -> Experiment | None:
        """The experiment, or None."""
        stored = await self._lab.hash(self._keys.experiment(experiment_id))
        return Experiment.parse(stored) if "experiment_id" in stored else None

    async def get(self, experiment_id: str) -> Experiment:
        """The experiment.

        Raises:
            NotFound: no such experiment.
        """
        found = await self.find(experiment_id)
        if found is None:
            raise no_experiment(experiment_id)
        return found

    async def many(self, ids: Sequence[str]) -> list[Experiment]:
        """Several, in the order asked for."""
        stored = await self._lab.hashes([self._keys.experiment(i) for i in ids])
        return [Experiment.parse(fields) for fields in stored if fields]

    async def page(
        self,
        tag: str,
        *,
        status: Status | None = None,
        category: str | None = None,
        limit: int,
        below: int | None = None,
        above: int | None = None,
        newest: bool = True,
    ) -> tuple[list[Experiment], int, int | None]:
        """One page by index, in the order of numbers, with the total and where the next page begins.

        It holds more than `limit` where retests of its last experiment are open, too.
        With `newest` the page ends at number `below` (exclusive) and the next one lies before it; otherwise it
        begins after number `above`.
        """
        if status and category:
            index = self._keys.status(tag, status, category)[1]
        elif status:
            index = self._keys.status(tag, status, "")[0]
        elif category:
            index = self._keys("category", tag, category)
        else:
            index = self._keys("lineage", tag)
        if newest:
            top = f"({below}" if below is not None else "+inf"
            ask = ("ZREVRANGEBYSCORE", index, top, "-inf", "LIMIT", 0, limit + 1)
        else:
            bottom = f"({above}" if above is not None else "-inf"
            ask = ("ZRANGEBYSCORE", index, bottom, "+inf", "LIMIT", 0, limit + 1)
        ids, total = await self._lab.pipeline([ask, ("ZCARD", index)])
        found = await self.many(ids[:limit])
        following = found[-1].number if len(ids) > limit and found else None
        if following is not None:  # retests share the number of their experiment: a page holds all of one
            same = await self._lab.command("ZRANGEBYSCORE", index, following, following)
            found += await self.many([i for i in (same[::-1] if newest else same) if i not in ids[:limit]])
        return (found[::-1] if newest else found), int(total), following

    async def counts(self, tag: str, statuses: Sequence[Status]) -> dict[Status, int]:
        """How many experiments have each status now."""
        cards = await self._lab.pipeline([("ZCARD", self._keys.status(tag, s, "")[0]) for s in statuses])
        return dict(zip(statuses, (int(c) for c in cards), strict=True))

    async def finished(self, tag: str, last: int, until: int | None = None) -> list[Experiment]:
        """The last finished ones, oldest first, in finish order; with `until` (a finish number) as of then."""
        newest = "+inf" if until is None else str(until)
        key = self._keys("finished", tag)
        ids = await self._lab.command("ZREVRANGEBYSCORE", key, newest, "-inf", "LIMIT", 0, last)
        return (await self.many(ids))[::-1]

    async def ends(self, tag: str, last: int, near: tuple[float, float] | None) -> tuple[list[End], int]:
        """How the last ones ended, oldest first, in finish order; and how many near misses have a score in `near`."""
        keys = self._keys
        low, high = near or (0.0, 0.0)
        newest = members(
            self._lab,
            keys("finished", tag),
            keys.experiment(""),
            limit=last,
            newest=True,
            fields=("status", "error_kind"),
        )
        ends, misses = await self._lab.pipeline(
            [newest, ("ZCOUNT", keys("near_misses", tag), repr(low), repr(high))]
        )
        found = [End(cast("Status", status), kind) for status, kind in values(ends).values()]
        return found[::-1], int(misses) if near else 0

    async def by_number(self, tag: str, status: Status, limit: int) -> list[Experiment]:
        """The newest of one status, oldest first."""
        return (await self.page(tag, status=status, limit=limit))[0]

    async def parents(self, tag: str, last: int, category: str | None = None) -> list[list[str]]:
        """The parents of the last registered ones, of one category or of any."""
        index = self._keys("category", tag, category) if category else self._keys("lineage", tag)
        ids = await self._lab.command("ZREVRANGE", index, 0, last - 1)
        stored = await self._lab.pipeline([("HGET", self._keys.experiment(i), "parent_ids") for i in ids])
        return [json.loads(parents) for parents in stored if parents]

    async def base_above(self, parent_ids: Sequence[str]) -> Experiment | None:
        """The nearest kept one among these and what they were made from; None is the tag's base.

        On a branch that is its best one: a keep there is better than the keep before it.
        """
        if not parent_ids:
            return None
        [answer] = await self._lab.pipeline([base_above(self._lab, self._keys.experiment(parent_ids[0]))])
        return await base_found(self._lab, answer)

    async def ancestors(self, parent_ids: Sequence[str], most: int) -> tuple[dict[str, Experiment], bool]:
        """What these were made from, themselves included, by id; the nearest `most`, and whether that is all.

        Of what is cut off, or is not there, no experiment that is read names a parent.
        """
        if not parent_ids:
            return {}, True
        [answer] = await self._lab.pipeline([ancestors(self._lab, parent_ids, most)])
        return ancestry(answer)

    async def retests(self, es: Sequence[Experiment]) -> list[list[Experiment]]:
        """The retests of several experiments, in the order of their seeds."""
        ids = [[retest_id(e, nth) for nth in range(e.retests)] for e in es]
        found = {e.experiment_id: e for e in await self.many([i for its in ids for i in its])}
        return [[found[i] for i in its if i in found] for its in ids]

    async def best(self, tag: str, other_key: str | None = None) -> Best | None:
        """The best under the main comparability key, or under another."""
        stored = await self._lab.hash(self._keys.best(tag, other_key))
        return Best.parse(stored) if stored else None

    async def near_misses(
        self, tag: str, low: float, high: float, limit: int
    ) -> tuple[list[Experiment], int]:
        """Discarded experiments whose score (lower is better) lies in [low, high], best first, and how many."""
        key = self._keys("near_misses", tag)
        ids, total = await self._lab.pipeline(
            [
                ("ZRANGEBYSCORE", key, repr(low), repr(high), "LIMIT", 0, limit),
                ("ZCOUNT", key, repr(low), repr(high)),
            ]
        )
        return await self.many(ids), int(total)

    async def patch(self, experiment: Experiment) -> bytes | None:
        """The patch against the tag's base commit, as it was sent; None where none was."""
        if experiment.diff_id is None:
            return None
        packed = await self._lab.binary("GET", self._keys("diffs", experiment.diff_id))
        return zlib.decompress(packed) if packed is not None else None

    async def attempts(self, experiment_id: str) -> dict[int, dict[str, str]]:
        """Every attempt's status, GPU, fence and times."""
        return (await self.attempts_of([experiment_id]))[0]

    async def attempts_of(self, experiment_ids: Sequence[str]) -> list[dict[int, dict[str, str]]]:
        """The attempts of several experiments."""
        return [
            _by_attempt(stored)
            for stored in await self._lab.hashes([self._keys.attempts(i) for i in experiment_ids])
        ]

    async def ticks(self, experiment_id: str) -> list[tuple[float, float, float]]:
        """The newest (progress, metric, time) that the run reported."""
        rows = await self._lab.command("LRANGE", self._keys("reports", experiment_id), 0, -1)
        return [tuple(json.loads(row)) for row in rows]

    async def log(self, experiment_id: str) -> str | None:
        """The newest lines of its log."""
        text: str | None = await self._lab.command("GET", self._keys("log", experiment_id))
        return text

    async def answer(self, experiment_id: str) -> dict[str, Any] | None:
        """What its finishing operation was answered: {op, digest, answer}."""
        stored = await self._lab.command("HGET", self._keys.experiment(experiment_id), "answer")
        return json.loads(stored) if stored else None

    async def forgotten(self, limit: int = 100) -> list[Experiment]:
        """Registered experiments whose agent was not heard of within its patience."""
        now = await self._lab.now()
        return await self.many(
            await self._lab.command("ZRANGEBYSCORE", self._keys("open"), "-inf", repr(now), "LIMIT", 0, limit)
        )

    async def evidence(self, experiment_id: str) -> list[dict[str, Any]]:
        """Results that came too late to count."""
        stored = await self._lab.hash(self._keys("evidence", experiment_id))
        return [json.loads(text) for text in stored.values()]


def _by_attempt(stored: Mapping[str, str]) -> dict[int, dict[str, str]]:
    found: dict[int, dict[str, str]] = {}
    for field, value in stored.items():
        number, _, name = field.partition(":")
        found.setdefault(int(number), {})[name] = value
    return dict(sorted(found.items()))


def retest_id(e: Experiment, nth: int) -> str:
    """The id of an experiment's nth retest, counted from 0: `mar11-47.2` is the second run of `mar11-47`."""
    return f"{e.experiment_id}.{nth + 2}"


def no_experiment(experiment_id: str) -> NotFound:
    """The experiment does not exist."""
    return NotFound(
        f"there is no experiment {experiment_id!r}",
        hint="ids look like <tag>-<n>; POST /api/experiment/history lists a tag's experiments",
    )
