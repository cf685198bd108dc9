"""Facts for reports about one tag or about all tags, in at most two round trips."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeVar

from state import reads
from state.change import Asked, Read, clock, loosely
from state.experiments import NearBand
from state.experiments.showing import runs_of_best
from state.facts import Runs, Spread
from state.ids import named_by
from state.policy import Policy
from state.reads import Store, fields_in, rows_as
from state.records import (
    AgentLimit,
    AgentRun,
    Best,
    Certificate,
    ComparedRun,
    Distillation,
    Experiment,
    FailureRecord,
    GpuState,
    Hypothesis,
    KeepRecord,
    OneRun,
    Record,
    Result,
    RunRow,
    Seeds,
    Selection,
    Sketch,
    Status,
    Strategy,
    Tag,
    Transfer,
    Trust,
)

R = TypeVar("R", bound=Record)

OPEN_STATUSES: tuple[Status, ...] = ("running", "leased", "queued", "registered")
OPEN_READ = 50
"""Open experiments of one status."""
RESULTS_READ = 10
NEAR_READ = 5
RECENT_READ = 30
"""Number of finished runs that the pace is computed from."""
KEEPS_READ = 1000
FAILURES_READ = 50
"""Failures of one status."""
Version = tuple[float, ...]
ROW_BYTES = 2000
"""Bytes of one value of a row: longer texts are cut, longer constants left out."""
AT_ONCE = 1000
"""Number of results that one command reads: Redis does nothing else at the same time."""


@dataclass(frozen=True)
class TagWithBest:
    """A tag and the best under its main comparability key, with all runs of the best's code."""

    tag: Tag
    best: Best | None
    runs: Runs[OneRun] | None
    noise: Spread
    policy: Policy


@dataclass(frozen=True)
class BriefFacts:
    now: float
    slots: Sequence[GpuState]
    tag: Tag
    policy: Policy
    best: Best | None
    best_trust: Trust | None
    strategy: Strategy
    crashes_in_a_row: int
    still_open: Sequence[Sketch]
    """The newest of each status, by number; no retests."""
    unused: Sequence[Selection]
    """Open selections that nothing was registered with, those that end first first."""
    results: Sequence[Sketch]
    near: Sequence[Sketch]
    """The near misses of the best, the nearest first."""
    hypotheses: Sequence[Hypothesis]
    """Open hypotheses, in no order."""


@dataclass(frozen=True)
class RunRows:
    """Some of a tag's experiments as rows, the newest first; without retests."""

    tag: Tag
    rows: Sequence[RunRow]
    total: int
    noise: Spread
    """On the tag's main class of GPU."""
    by_delta: bool
    """Runs are compared by the difference to their worker's baseline."""


@dataclass(frozen=True)
class AgentFacts:
    """Runs of a tag's agents; retests among `still_open` alone."""

    tag: Tag
    finished: Sequence[AgentRun]
    """The newest, the newest first."""
    still_open: Sequence[AgentRun]
    discards: Sequence[AgentRun]
    """The newest that were measured by their agents."""
    keeps: Sequence[ComparedRun]
    """The newest."""


@dataclass(frozen=True)
class SummaryFacts:
    now: float
    tag: Tag
    best: Runs[Experiment] | None
    in_progress: Mapping[Status, int]
    """Experiments of each status that is not final, now."""
    keeps: Sequence[Result]
    """The newest, by number."""
    categories: Mapping[str, tuple[int, int]]
    """Total and kept of every category that was tried."""
    strategy: Strategy
    slots: Sequence[GpuState]
    noise: Spread
    """On the tag's main class of GPU."""


@dataclass(frozen=True)
class NightFacts:
    tag: Tag
    best: Runs[Experiment] | None
    keeps: Sequence[KeepRecord]
    """The newest, by number, the newest first."""
    demoted: int
    """Keeps that a second run did not confirm, among the newest discards."""
    failures: Sequence[FailureRecord]
    """The newest of each kind of failure."""
    policy: Policy
    noise: Spread
    """On the tag's main class of GPU."""
    seeds: Seeds
    tested: Sequence[int]
    """Numbers of the experiments that were kept once or ran again, in their order."""
    recent: Sequence[Result]
    """The last that finished, the newest first."""
    categories: Mapping[str, tuple[int, int]]
    """Total and kept of every category that was tried."""
    limits: Sequence[AgentLimit]
    """The newest usage limit of each agent."""
    certificates: Sequence[Certificate]
    distillations: Sequence[Distillation]
    """Of the tag."""
    transfers: Sequence[Transfer]
    """Of its keeps."""


class Reports(Store):
    """Reads across all records of a tag."""

    async def brief(self, tag: str, near: NearBand) -> BriefFacts:
        """Facts for the brief of an agent with an empty context. Raises NotFound: no such tag."""
        keys = self._keys
        still_open: dict[str, Asked] = {
            status: self._listed(Sketch, keys.status(tag, status, "")[0], OPEN_READ)
            for status in OPEN_STATUSES
        }
        found = await self._lab.read(
            {
                "now": clock(),
                "slots": reads.slots(self._lab),
                "tag": reads.tag(keys, tag),
                "best": reads.best(keys, tag),
                "strategy": reads.strategy(keys, tag),
                "policy": reads.policy(keys, tag),
                "crashes_in_a_row": reads.crashes_in_a_row(keys, tag),
                "hypotheses": reads.models(Hypothesis, keys("hypotheses", tag)),
                "results": self._listed(Sketch, keys("finished", tag), RESULTS_READ),
                "noise": reads.main_noise(self._lab, tag),
                "selections": reads.records(
                    self._lab,
                    Selection,
                    keys("open_selections", tag),
                    keys.selection(""),
                    high="(inf",
                    limit=-1,
                ),
                **still_open,
            }
        )
        sketches = [e for status in still_open for e in found.pop(status)[::-1]]
        best, noise, selections = found["best"], found.pop("noise"), found.pop("selections")
        misses, trust = None, None
        if best is not None:
            band = near(best.val_bpb, found["tag"].direction, found["policy"], noise)
            misses, trust = await self._lab.read(
                self._listed(Sketch, keys("near_misses", tag), NEAR_READ, band=band),
                loosely("HGET", keys.experiment(best.experiment_id), "trust"),
            )
        found["results"] = found["results"][::-1]
        return BriefFacts(
            **found,
            best_trust=trust or None,
            still_open=[e for e in sketches if e.retest_of is None],
            unused=[s for s in selections if s.experiment_id is None],
            near=misses or (),
        )

    async def summary(self, tag: str) -> SummaryFacts:
        """A tag's state on one page. Raises NotFound: no such tag."""
        keys = self._keys
        counted: tuple[Status, ...] = ("registered", "queued", "leased", "running")
        counts: dict[str, Asked] = {status: ("ZCARD", keys.status(tag, status, "")[0]) for status in counted}
        found = await self._lab.read(
            {
                "now": clock(),
                "tag": reads.tag(keys, tag),
                "best": runs_of_best(self._lab, Experiment, tag),
                "keeps": self._listed(Result, keys.status(tag, "keep", "")[0], KEEPS_READ),
                "categories": reads.categories(keys, tag),
                "strategy": reads.strategy(keys, tag),
                "slots": reads.slots(self._lab),
                "noise": reads.main_noise(self._lab, tag),
                **counts,
            }
        )
        in_progress: dict[Status, int] = {status: found.pop(status) for status in counted}
        found["keeps"] = found["keeps"][::-1]
        return SummaryFacts(**found, in_progress=in_progress)

    async def night(self, tag: str) -> NightFacts:
        """Outcomes of a tag's experiments, in a few lists. Raises NotFound: no such tag."""
        keys = self._keys
        failed: tuple[Status, ...] = ("crash", "timeout", "invalid")
        failures: dict[str, Asked] = {
            status: self._listed(FailureRecord, keys.status(tag, status, "")[0], FAILURES_READ)
            for status in failed
        }
        found = await self._lab.read(
            {
                "tag": reads.tag(keys, tag),
                "policy": reads.policy(keys, tag),
                "best": runs_of_best(self._lab, Experiment, tag),
                "best_of": reads.best(keys, tag),
                "ran_again": ("ZRANGE", keys("retests", tag), 0, -1),
                "keeps": self._listed(KeepRecord, keys.status(tag, "keep", "")[0], KEEPS_READ),
                "recent": self._listed(Result, keys("finished", tag), RECENT_READ),
                "noise": reads.main_noise(self._lab, tag),
                "demoted": reads.members(
                    self._lab,
                    keys.status(tag, "discard", "")[0],
                    limit=KEEPS_READ,
                    newest=True,
                    fields=("trust",),
                    holding="demoted",
                ),
                "categories": reads.categories(keys, tag),
                "limits": reads.models(AgentLimit, keys("agent_limits", tag)),
                "certificates": reads.models(Certificate, keys("certificates", tag)),
                "distillations": reads.models(Distillation, keys("distillations")),
                "transfers": reads.models(Transfer, keys("transfers")),
                **failures,
            }
        )
        best, demoted = found.pop("best_of"), found.pop("demoted")
        numbers = {int(number) for number in _numbers(tag, [*demoted, *found.pop("ran_again")])}
        found |= {
            name: [one for one in found[name] if one.tag == tag] for name in ("distillations", "transfers")
        }
        return NightFacts(
            failures=[e for status in failed for e in found.pop(status)],
            **found,
            demoted=len(demoted),
            seeds=best.seeds if best else Seeds(),
            tested=sorted(numbers | {keep.number for keep in found["keeps"]}),
        )

    async def nearest(self, facts: NightFacts, near: NearBand) -> list[Sketch]:
        """The near misses of the night's best, the nearest first."""
        value = facts.best.experiment.judged if facts.best else None
        if value is None:
            return []
        band = near(value, facts.tag.direction, facts.policy, facts.noise)
        index = self._keys("near_misses", facts.tag.name)
        return await self._lab.one(self._listed(Sketch, index, NEAR_READ, band=band))

    async def version(self, tag: str) -> tuple[Tag, Version]:
        """A tag, with what changes once a run of it ends or is judged anew. Raises NotFound: no such tag."""
        keys = self._keys
        of_tag, best = await self._lab.read(
            reads.tag(keys, tag), reads.number("HGET", keys.best(tag), "version")
        )
        counted = (of_tag.finishes, of_tag.retracted, of_tag.kept, of_tag.claimed, of_tag.training_seconds)
        return of_tag, (of_tag.created_at, *counted, best)

    async def results(self, tag: Tag, most: int) -> list[Result]:
        """The newest results of a tag in finish order, read in small steps."""
        found: dict[str, Result] = {}
        for page in await self._lab.read(*self._finished(Result, tag.name, most)):
            # one that finishes meanwhile moves the others on: then one is read twice
            found |= {e.experiment_id: e for e in rows_as(Result, page)}
            await asyncio.sleep(0)
        return list(found.values())[::-1]

    async def rows(
        self, tag: str, kind: type[RunRow], limit: int, *, before: int | None, ids: Sequence[str] | None
    ) -> RunRows:
        """A page of a tag's experiments below `before`, or these of it. Raises NotFound: no such tag."""
        if ids is None:
            high = "+inf" if before is None else f"({before}"
            asked = [
                self._rows(tag, kind, min(AT_ONCE, limit - begin), begin, high)
                for begin in range(0, limit, AT_ONCE)
            ]
        else:
            asked = [self._rows(tag, kind, 1, 0, number, number) for number in _numbers(tag, ids)]
        of_tag, policy, total, noise, *pages = await self._lab.read(
            reads.tag(self._keys, tag),
            reads.policy(self._keys, tag),
            reads.number("ZCARD", self._keys("lineage", tag)),
            reads.main_noise(self._lab, tag),
            *asked,
        )
        rows: list[RunRow] = []
        for page in pages:
            # a run that came between two pages pushes the last one of the first into the second
            last = rows[-1].number if rows and ids is None else math.inf
            rows += [row for row in rows_as(kind, page) if row.number < last]
            await asyncio.sleep(0)
        return RunRows(of_tag, rows, total, noise, by_delta=policy.compare_by == "delta")

    def _rows(
        self, tag: str, kind: type[RunRow], limit: int, offset: int, high: str, low: str = "-inf"
    ) -> Read[dict[str, Any]]:
        """Rows for `rows_as`: each page is parsed by itself."""
        return reads.members(
            self._lab,
            self._keys("lineage", tag),
            limit=limit,
            offset=offset,
            low=low,
            high=high,
            newest=True,
            fields=fields_in(kind),
            texts=("hypothesis", "description", "error_kind"),
            most_bytes=ROW_BYTES,
        )

    async def of_agents(self, tag: str, most: int) -> AgentFacts:
        """The newest finished runs of a tag, its open runs, claims and keeps. Raises NotFound: no such tag."""
        keys = self._keys
        of_tag, keeps, discards, *pages = await self._lab.read(
            reads.tag(keys, tag),
            self._listed(ComparedRun, keys.status(tag, "keep", "")[0], KEEPS_READ),
            reads.members(
                self._lab,
                keys.status(tag, "discard", "")[0],
                limit=KEEPS_READ,
                newest=True,
                fields=("claimed", *fields_in(AgentRun)),
                holding="true",
            ),
            *(self._listed(AgentRun, keys.status(tag, s, "")[0], AT_ONCE) for s in OPEN_STATUSES),
            *self._finished(AgentRun, tag, most),
        )
        still_open, finished = pages[: len(OPEN_STATUSES)], list[AgentRun]()
        for page in pages[len(OPEN_STATUSES) :]:
            finished += rows_as(AgentRun, page)
            await asyncio.sleep(0)
        return AgentFacts(
            tag=of_tag,
            finished=finished,
            still_open=[run for part in still_open for run in part],
            discards=rows_as(AgentRun, {name: row[1:] for name, row in discards.items()}),
            keeps=keeps,
        )

    async def tags(self, offset: int, limit: int) -> tuple[list[TagWithBest], int]:
        """A page of tags with their bests, newest first, and the number of all."""
        keys = self._keys
        found, total = await self._lab.read(
            reads.records(
                self._lab, Tag, keys("tags"), keys.tag(""), offset=offset, limit=limit, newest=True
            ),
            reads.number("ZCARD", keys("tags")),
        )
        of_each: list[tuple[Read[Any], ...]] = [
            (
                reads.best(keys, tag.name),
                runs_of_best(self._lab, OneRun, tag.name),
                reads.main_noise(self._lab, tag.name),
                reads.policy(keys, tag.name),
            )
            for tag in found
        ]
        of_all = iter(await self._lab.read(*chain.from_iterable(of_each)))
        return [TagWithBest(tag, *islice(of_all, 4)) for tag in found], total

    def _listed(
        self,
        kind: type[R],
        index: str,
        most: int,
        *,
        band: tuple[float, float] | None = None,
    ) -> Read[list[R]]:
        """The newest of an index, or those with the lowest scores within a band."""
        low, high = band or ("-inf", "+inf")
        return reads.rows(self._lab, kind, index, low=low, high=high, limit=most, newest=band is None)

    def _finished(self, kind: type[Record], tag: str, most: int) -> list[Read[dict[str, Any]]]:
        """The newest finished runs of a tag, in pages for `rows_as`: each is parsed by itself."""
        index, fields = self._keys("finished", tag), fields_in(kind)
        return [
            reads.members(
                self._lab, index, limit=min(AT_ONCE, most - n), offset=n, newest=True, fields=fields
            )
            for n in range(0, most, AT_ONCE)
        ]


def _numbers(tag: str, ids: Sequence[str]) -> list[str]:
    """Numbers of these experiments of a tag, the highest first. The id of a retest is that of what it repeats."""
    names = (named_by(name) for name in ids)
    numbers = {name.rpartition("-")[2] for name, of_tag in names if of_tag == tag}
    return sorted((number for number in numbers if number.isdecimal()), key=int, reverse=True)
