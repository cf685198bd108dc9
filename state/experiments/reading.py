"""Experiments, read: by id, by index, by page; none reads more than it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from state import reads
from state.archive import no_archive, unpacked
from state.change import Read, loosely
from state.client import Lab
from state.keys import Keys
from state.reads import Store, fields_of
from state.records import Best, Direction, End, Experiment, Record, Status
from state.refusals import unknown_tag, unknown_trace

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
        return await self._lab.one(reads.experiment(self._keys, experiment_id))

    async def many(self, ids: Sequence[str]) -> list[Experiment]:
        stored = await self._lab.hashes([self._keys.experiment(i) for i in ids])
        return [Experiment.parse(fields) for fields in stored if fields]

    async def page(self, window: Window) -> Page[Experiment]:
        """One page by index, in the order of numbers."""
        return await self._lab.one(self._page(Experiment, window))

    async def history(self, kind: type[R], window: Window) -> Page[R]:
        """The same as records of this kind. Raises NotFound: no such tag, or it has no such trace."""
        tag, trace_id = window.tag, window.trace_id
        direction, page, of_trace = await self._lab.read(
            loosely("HGET", self._keys.tag(tag), "direction"),
            self._page(kind, window),
            loosely("HGET", self._keys.trace(trace_id or "none"), "tag"),
        )
        if direction is None:
            raise unknown_tag(tag)
        if trace_id and of_trace != tag:
            raise unknown_trace(tag, trace_id)
        return replace(page, direction=direction)

    def _page(self, kind: type[R], window: Window) -> Read[Page[R]]:
        keys, tag, status, category = self._keys, window.tag, window.status, window.category
        index = None
        if status:
            index = keys.status(tag, status, category or "")[1 if category else 0]
        elif category:
            index = keys("category", tag, category)
        whole = keys.of_trace(window.trace_id) if window.trace_id else keys("lineage", tag)
        both = index is not None and window.trace_id is not None

        def page_of(answer: Sequence[Any]) -> Page[R]:
            total, following, *rows = answer
            found = [kind.parse(fields_of(row)) for row in rows]
            ordered = found[::-1] if window.newest else found
            return Page(ordered, int(total), int(following) if following else None)

        command = self._lab.reading(
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
        return loosely(*command, to=page_of)

    async def ends(self, tag: str, last: int, near: tuple[float, float] | None) -> tuple[list[End], int]:
        """Ends of the newest finished experiments, oldest first, and number of near misses with a score in `near`."""
        found = await self._lab.read(
            {
                "ends": ends(self._lab, tag, last),
                "near": near_count(self._keys, tag, near) if near else None,
            }
        )
        return found["ends"], found["near"] or 0

    async def by_number(self, tag: str, status: Status, limit: int) -> list[Experiment]:
        """The newest of one status, oldest first."""
        return (await self.page(Window(tag, limit, status=status))).experiments

    async def claims(self, tag: str, limit: int) -> list[Experiment]:
        """Claims among the newest discards that the lab has not measured, oldest first."""
        index, fields = self._keys.status(tag, "discard", "")[0], ("claimed", "measured_by")
        (found,) = await self._lab.read(
            reads.members(self._lab, index, limit=limit, newest=True, fields=fields, holding="true")
        )
        names = [name for name, (_, measured_by) in found.items() if measured_by is None]
        return [e for e in await self.many(names[::-1]) if e.is_claim] if names else []

    async def base_above(self, parent_ids: Sequence[str]) -> Experiment | None:
        """The nearest kept one among these and what they were made from; None is the tag's base.

        On a branch that is its best one, unless one rose or was measured late: a keep is better than the one before.
        """
        if not parent_ids:
            return None
        (answer,) = await self._lab.read(reads.base_above(self._lab, self._keys.experiment(parent_ids[0])))
        return await reads.base_found(self._lab, answer)

    async def above(self, parent_ids: Sequence[str], most: int) -> tuple[list[Experiment], bool]:
        """These and their ancestors, `most` levels up, without constants and metrics; whether all."""
        if not parent_ids:
            return [], True
        ((known, is_whole),) = await self._lab.read(reads.above(self._lab, parent_ids, most))
        return [*reads.ancestry(known).values()], is_whole

    async def retests(self, es: Sequence[Experiment]) -> list[list[Experiment]]:
        """The retests of several experiments, in the order of their seeds."""
        ids = [[retest_id(e, nth) for nth in range(e.retests)] for e in es]
        found = {e.experiment_id: e for e in await self.many([i for its in ids for i in its])}
        return [[found[i] for i in its if i in found] for its in ids]

    async def best(self, tag: str, other_key: str | None = None) -> Best | None:
        """The best under the main comparability key, or under another."""
        return await self._lab.one(reads.best(self._keys, tag, other_key))

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
        return [*await self._lab.read(*(attempts_of(self._keys, name) for name in experiment_ids))]

    async def forgotten(self) -> list[Experiment]:
        """Registered experiments whose agent was not heard of within its patience."""
        return await self._lab.one(
            reads.records(self._lab, Experiment, self._keys("open"), high="now", limit=FORGOTTEN_READ)
        )


def attempts_of(keys: Keys, experiment_id: str) -> Read[dict[int, dict[str, str]]]:
    """Status, GPU, fence and times of every attempt of an experiment, by number."""

    def by_number(stored: Mapping[str, str]) -> dict[int, dict[str, str]]:
        found: dict[int, dict[str, str]] = {}
        for field, value in stored.items():
            number, _, name = field.partition(":")
            if name != "answer":
                found.setdefault(int(number), {})[name] = value
        return dict(sorted(found.items()))

    return loosely("HGETALL", keys.attempts(experiment_id), to=by_number)


def ends(lab: Lab, tag: str, last: int) -> Read[list[End]]:
    """Ends of the newest finished experiments, in finish order, oldest first."""
    index, fields = lab.keys("finished", tag), ("status", "error_kind", "baseline", "category", "parent_ids")

    def ends_of(found: dict[str, Any]) -> list[End]:
        return [
            End(
                cast("Status", status),
                kind,
                is_baseline == "true",
                category or "other",
                "," in (parents or ""),
            )
            for status, kind, is_baseline, category, parents in reversed(found.values())
        ]

    return reads.members(lab, index, limit=last, newest=True, fields=fields).to(ends_of)


def near_count(keys: Keys, tag: str, band: tuple[float, float]) -> Read[int]:
    """Number of near misses of a tag with a score in the band."""
    return reads.number("ZCOUNT", keys("near_misses", tag), *map(repr, band))


def retest_id(e: Experiment, nth: int) -> str:
    """The id of an experiment's nth retest, counted from 0: `mar11-47.2` is the second run of `mar11-47`."""
    return f"{e.experiment_id}.{nth + 2}"
