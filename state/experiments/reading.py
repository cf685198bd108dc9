"""Experiments, read: by id, by index, by page; none reads more than it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from state.archive import no_archive
from state.client import Lab
from state.errors import NotFound
from state.experiments.walking import ancestors, ancestry, base_above, base_found
from state.indexes import fields_of, members, records, values
from state.moves import Arg
from state.patches import unpacked
from state.records import Best, Direction, End, Experiment, Record, Status
from state.refusals import unknown_trace
from state.store import Store
from state.tags import unknown

R = TypeVar("R", bound=Record)

FORGOTTEN_READ = 100
PAGE_BYTES = 4 * 1024 * 1024
"""Bytes of records that one page has, at most by one: a run may have 150 KiB of constants, metrics and errors."""


@dataclass(frozen=True)
class Window:
    """Some of a tag's experiments, by number."""

    tag: str
    limit: int
    status: Status | None = None
    category: str | None = None
    trace_id: str | None = None
    cursor: int | None = None
    """End of the previous page."""
    newest: bool = True
    """Begin with the newest, or with the oldest."""
    most_bytes: int | None = None
    """A page ends early where its records have so many."""


@dataclass(frozen=True)
class Page(Generic[R]):
    """One page in the order of numbers; longer than asked for where retests of its last experiment are open, too."""

    experiments: list[R]
    total: int
    """Total over all pages."""
    following: int | None
    """The next page's cursor; None: this is the last page."""
    direction: Direction = "minimize"


class ExperimentReader(Store):
    async def find(self, experiment_id: str) -> Experiment | None:
        stored = await self._lab.hash(self._keys.experiment(experiment_id))
        return Experiment.parse(stored) if "experiment_id" in stored else None

    async def get(self, experiment_id: str) -> Experiment:
        """The experiment. Raises NotFound: no such experiment."""
        return experiment_in(await self._lab.hash(self._keys.experiment(experiment_id)), experiment_id)

    async def many(self, ids: Sequence[str]) -> list[Experiment]:
        stored = await self._lab.hashes([self._keys.experiment(i) for i in ids])
        return [Experiment.parse(fields) for fields in stored if fields]

    async def page(self, window: Window) -> Page[Experiment]:
        """One page by index, in the order of numbers."""
        [answer] = await self._lab.pipeline([self._page(window)])
        return page_of(Experiment, answer, newest=window.newest)

    async def history(self, kind: type[R], window: Window) -> Page[R]:
        """The same as records of this kind. Raises NotFound: no such tag, or it has no such trace."""
        tag, trace_id = window.tag, window.trace_id
        direction, answer, *of_trace = await self._lab.pipeline(
            [
                ("HGET", self._keys.tag(tag), "direction"),
                self._page(window),
                *([("HGET", self._keys.trace(trace_id), "tag")] if trace_id else []),
            ]
        )
        if direction is None:
            raise unknown(tag)
        if trace_id and of_trace != [tag]:
            raise unknown_trace(tag, trace_id)
        return replace(page_of(kind, answer, newest=window.newest), direction=direction)

    def _page(self, window: Window) -> Sequence[Arg]:
        """A command for `page_of`."""
        keys, tag, status, category = self._keys, window.tag, window.status, window.category
        index = None
        if status:
            index = keys.status(tag, status, category or "")[1 if category else 0]
        elif category:
            index = keys("category", tag, category)
        whole = keys.of_trace(window.trace_id) if window.trace_id else keys("lineage", tag)
        both = index is not None and window.trace_id is not None
        return self._lab.reading(
            "read_history",
            keys={"index": whole if both else index or whole, "filter": index if both else None},
            args={
                "experiments": keys.experiment(""),
                "limit": window.limit,
                "from": window.cursor,
                "newest": "yes" if window.newest else None,
                "most_bytes": window.most_bytes,
            },
        )

    async def ends(self, tag: str, last: int, near: tuple[float, float] | None) -> tuple[list[End], int]:
        """Ends of the newest finished experiments, oldest first, and number of near misses with a score in `near`."""
        found = await self._lab.read(
            {
                "ends": newest_ends(self._lab, tag, last),
                "near": ("ZCOUNT", self._keys("near_misses", tag), *map(repr, near)) if near else None,
            }
        )
        return ends_of(found["ends"]), int(found["near"] or 0)

    async def by_number(self, tag: str, status: Status, limit: int) -> list[Experiment]:
        """The newest of one status, oldest first."""
        return (await self.page(Window(tag, limit, status=status))).experiments

    async def claims(self, tag: str, limit: int) -> list[Experiment]:
        """Claims among the newest discards that the lab has not measured, oldest first."""
        index, fields = self._keys.status(tag, "discard", "")[0], ("claimed", "measured_by")
        reading = members(self._lab, index, limit=limit, newest=True, fields=fields, holding="true")
        [answer] = await self._lab.pipeline([reading])
        names = [name for name, (_, measured_by) in values(answer).items() if measured_by is None]
        return [e for e in await self.many(names[::-1]) if e.is_claim] if names else []

    async def base_above(self, parent_ids: Sequence[str]) -> Experiment | None:
        """The nearest kept one among these and what they were made from; None is the tag's base.

        On a branch that is its best one, unless one rose or was measured late: a keep is better than the one before.
        """
        if not parent_ids:
            return None
        [answer] = await self._lab.pipeline([base_above(self._lab, self._keys.experiment(parent_ids[0]))])
        return await base_found(self._lab, answer)

    async def above(self, parent_ids: Sequence[str], most: int) -> tuple[list[Experiment], bool]:
        """These and their ancestors, `most` levels up, without constants and metrics; whether all."""
        if not parent_ids:
            return [], True
        [answer] = await self._lab.pipeline([ancestors(self._lab, parent_ids, most)])
        known, is_whole = ancestry(answer)
        return [*known.values()], is_whole

    async def retests(self, es: Sequence[Experiment]) -> list[list[Experiment]]:
        """The retests of several experiments, in the order of their seeds."""
        ids = [[retest_id(e, nth) for nth in range(e.retests)] for e in es]
        found = {e.experiment_id: e for e in await self.many([i for its in ids for i in its])}
        return [[found[i] for i in its if i in found] for its in ids]

    async def best(self, tag: str, other_key: str | None = None) -> Best | None:
        """The best under the main comparability key, or under another."""
        stored = await self._lab.hash(self._keys.best(tag, other_key))
        return Best.found(stored)

    async def patch(self, e: Experiment) -> bytes | None:
        """The patch against the tag's base, as sent; None: none was. Raises Damaged: it has changed."""
        return (await self.patches([e]))[0]

    async def patches(self, es: Sequence[Experiment]) -> list[bytes | None]:
        """The patches of several experiments, from Redis or from the archive.

        Raises:
            Damaged: what is stored of one is another. Unavailable: the archive does not give one, or this process is
                not told where that is.
        """
        return await self.patches_named([e.diff_id for e in es])

    async def patches_named(self, names: Sequence[str | None]) -> list[bytes | None]:
        """The patches of these SHA-256; None where there is none. Raises Damaged: one has changed."""
        if not any(names):
            return [None] * len(names)
        stored = await self._lab.binary("MGET", *(self._keys("diffs", name or "none") for name in names))
        return [
            await self._from_archive(name) if patch is None and name is not None else patch
            for name, patch in zip(names, await unpacked(names, stored), strict=True)
        ]

    async def _from_archive(self, name: str) -> bytes | None:
        """A patch that is not in Redis; None where it never was. Raises Unavailable: as `patches`."""
        if await self._lab.command("ZSCORE", self._keys("archived"), name) is None:
            return None
        if self._lab.archive is None:
            raise no_archive(name)
        return await asyncio.to_thread(self._lab.archive.get, name)

    async def attempts_of(self, experiment_ids: Sequence[str]) -> list[dict[int, dict[str, str]]]:
        """The attempts of several experiments."""
        return [
            by_attempt(stored)
            for stored in await self._lab.hashes([self._keys.attempts(i) for i in experiment_ids])
        ]

    async def forgotten(self) -> list[Experiment]:
        """Registered experiments whose agent was not heard of within its patience."""
        keys = self._keys
        [found] = await self._lab.pipeline(
            [members(self._lab, keys("open"), high="now", limit=FORGOTTEN_READ)]
        )
        return [Experiment.parse(fields) for fields in records(found).values() if fields]


def by_attempt(stored: Mapping[str, str]) -> dict[int, dict[str, str]]:
    """Every attempt's status, GPU, fence and times."""
    found: dict[int, dict[str, str]] = {}
    for field, value in stored.items():
        number, _, name = field.partition(":")
        if name != "answer":
            found.setdefault(int(number), {})[name] = value
    return dict(sorted(found.items()))


def newest_ends(lab: Lab, tag: str, last: int) -> Sequence[Arg]:
    """Ends of the newest finished experiments, as a command for `ends_of`."""
    index, fields = lab.keys("finished", tag), ("status", "error_kind", "baseline", "category", "parent_ids")
    return members(lab, index, limit=last, newest=True, fields=fields)


def ends_of(answer: Sequence[Any]) -> list[End]:
    """Oldest first, in finish order."""
    ends = [
        End(cast("Status", status), kind, is_baseline == "true", category or "other", "," in (parents or ""))
        for status, kind, is_baseline, category, parents in values(answer).values()
    ]
    return ends[::-1]


def page_of(kind: type[R], answer: Sequence[Any], *, newest: bool) -> Page[R]:
    total, following, *rows = answer
    found = [kind.parse(fields_of(row)) for row in rows]
    return Page(found[::-1] if newest else found, int(total), int(following) if following else None)


def retest_id(e: Experiment, nth: int) -> str:
    """The id of an experiment's nth retest, counted from 0: `mar11-47.2` is the second run of `mar11-47`."""
    return f"{e.experiment_id}.{nth + 2}"


def experiment_in(stored: Mapping[str, str], experiment_id: str) -> Experiment:
    """The experiment that a hash holds. Raises NotFound: no such experiment."""
    if "experiment_id" not in stored:
        raise no_experiment(experiment_id)
    return Experiment.parse(stored)


def no_experiment(experiment_id: str) -> NotFound:
    return NotFound(
        f"there is no experiment {experiment_id!r}",
        hint="ids look like <tag>-<n>; POST /api/experiment/history lists a tag's experiments",
    )
