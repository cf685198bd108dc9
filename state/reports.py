"""Facts for reports about one tag or about all tags, in at most two round trips."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from state.client import time_of
from state.experiments import NearBand
from state.experiments.queueing import slots, slots_of
from state.experiments.showing import measured_runs_of, runs_of, runs_of_best
from state.facts import Runs, Spread
from state.ids import named_by
from state.indexes import fields_in, members, read_as, records, row_as, values
from state.moves import Arg
from state.noise import main_spread, spread_of
from state.policy import Policy, read_policy
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
from state.store import Store
from state.tags import categories_of, tag_in

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
        still_open: dict[str, Sequence[Arg]] = {
            status: self._listed(Sketch, keys.status(tag, status, "")[0], OPEN_READ)
            for status in OPEN_STATUSES
        }
        found = await self._lab.read(
            {
                "now": ("TIME",),
                "slots": slots(self._lab),
                "tag": ("HGETALL", keys.tag(tag)),
                "best": ("HGETALL", keys.best(tag)),
                "strategy": ("HGETALL", keys("strategy", tag)),
                "policy": ("HGET", keys("policy", tag), "values"),
                "crashes": ("HGET", keys("crashes", tag), "consecutive"),
                "noise": main_spread(self._lab, tag),
                "hypotheses": ("HGETALL", keys("hypotheses", tag)),
                "results": self._listed(Sketch, keys("finished", tag), RESULTS_READ),
                "selections": members(
                    self._lab, keys("open_selections", tag), keys.selection(""), high="(inf", limit=-1
                ),
                **still_open,
            }
        )
        of_tag, policy = tag_in(found["tag"], tag), read_policy(found["policy"])
        best = Best.found(found["best"])
        misses: list[Sketch] = []
        trust: Trust | None = None
        if best is not None:
            band = near(best.val_bpb, of_tag.direction, policy, spread_of(found["noise"]))
            nearest, trust = await self._lab.pipeline(
                [
                    self._listed(Sketch, keys("near_misses", tag), NEAR_READ, band=band),
                    ("HGET", keys.experiment(best.experiment_id), "trust"),
                ]
            )
            misses = read_as(Sketch, nearest)
        selections = [Selection.parse(stored) for stored in records(found["selections"]).values() if stored]
        return BriefFacts(
            now=time_of(found["now"]),
            slots=slots_of(found["slots"]),
            tag=of_tag,
            policy=policy,
            best=best,
            best_trust=trust or None,
            strategy=Strategy.parse(found["strategy"]),
            crashes_in_a_row=int(found["crashes"] or 0),
            still_open=[
                e
                for status in OPEN_STATUSES
                for e in read_as(Sketch, found[status])[::-1]
                if e.retest_of is None
            ],
            unused=[s for s in selections if s.experiment_id is None],
            results=read_as(Sketch, found["results"])[::-1],
            near=misses,
            hypotheses=[Hypothesis.model_validate_json(text) for text in found["hypotheses"].values()],
        )

    async def summary(self, tag: str) -> SummaryFacts:
        """A tag's state on one page. Raises NotFound: no such tag."""
        keys = self._keys
        counted: tuple[Status, ...] = ("registered", "queued", "leased", "running")
        found = await self._lab.read(
            {
                "now": ("TIME",),
                "tag": ("HGETALL", keys.tag(tag)),
                "best": runs_of_best(self._lab, tag),
                "keeps": self._listed(Result, keys.status(tag, "keep", "")[0], KEEPS_READ),
                "categories": ("HGETALL", keys("categories", tag)),
                "strategy": ("HGETALL", keys("strategy", tag)),
                "slots": slots(self._lab),
                "noise": main_spread(self._lab, tag),
                **{status: ("ZCARD", keys.status(tag, status, "")[0]) for status in counted},
            }
        )
        return SummaryFacts(
            now=time_of(found["now"]),
            tag=tag_in(found["tag"], tag),
            best=runs_of(found["best"]) if found["best"] else None,
            in_progress={status: int(found[status]) for status in counted},
            keeps=read_as(Result, found["keeps"])[::-1],
            categories=categories_of(found["categories"]),
            strategy=Strategy.parse(found["strategy"]),
            slots=slots_of(found["slots"]),
            noise=spread_of(found["noise"]),
        )

    async def night(self, tag: str) -> NightFacts:
        """Outcomes of a tag's experiments, in a few lists. Raises NotFound: no such tag."""
        keys = self._keys
        failed: tuple[Status, ...] = ("crash", "timeout", "invalid")
        found = await self._lab.read(
            {
                "tag": ("HGETALL", keys.tag(tag)),
                "policy": ("HGET", keys("policy", tag), "values"),
                "best": runs_of_best(self._lab, tag),
                "best_of": ("HGETALL", keys.best(tag)),
                "ran_again": ("ZRANGE", keys("retests", tag), 0, -1),
                "keeps": self._listed(KeepRecord, keys.status(tag, "keep", "")[0], KEEPS_READ),
                "recent": self._listed(Result, keys("finished", tag), RECENT_READ),
                "noise": main_spread(self._lab, tag),
                "demoted": members(
                    self._lab,
                    keys.status(tag, "discard", "")[0],
                    limit=KEEPS_READ,
                    newest=True,
                    fields=("trust",),
                    holding="demoted",
                ),
                "categories": ("HGETALL", keys("categories", tag)),
                "limits": ("HVALS", keys("agent_limits", tag)),
                "certificates": ("HVALS", keys("certificates", tag)),
                "distillations": ("HVALS", keys("distillations")),
                "transfers": ("HVALS", keys("transfers")),
                **{
                    status: self._listed(FailureRecord, keys.status(tag, status, "")[0], FAILURES_READ)
                    for status in failed
                },
            }
        )
        of_tag = tag_in(found["tag"], tag)
        best = runs_of(found["best"]) if found["best"] else None
        best_of = Best.found(found["best_of"])
        keeps, demoted = read_as(KeepRecord, found["keeps"]), values(found["demoted"])
        tested = {int(number) for number in _numbers(tag, [*demoted, *found["ran_again"]])}
        return NightFacts(
            tag=of_tag,
            best=best,
            keeps=keeps,
            demoted=len(demoted),
            failures=[e for status in failed for e in read_as(FailureRecord, found[status])],
            recent=read_as(Result, found["recent"]),
            policy=read_policy(found["policy"]),
            noise=spread_of(found["noise"]),
            seeds=best_of.seeds if best_of else Seeds(),
            tested=sorted(tested | {keep.number for keep in keeps}),
            categories=categories_of(found["categories"]),
            limits=[AgentLimit.model_validate_json(text) for text in found["limits"]],
            certificates=[Certificate.model_validate_json(text) for text in found["certificates"]],
            distillations=[
                one for one in map(Distillation.model_validate_json, found["distillations"]) if one.tag == tag
            ],
            transfers=[
                one for one in map(Transfer.model_validate_json, found["transfers"]) if one.tag == tag
            ],
        )

    async def nearest(self, facts: NightFacts, near: NearBand) -> list[Sketch]:
        """The near misses of the night's best, the nearest first."""
        value = facts.best.experiment.judged if facts.best else None
        if value is None:
            return []
        band = near(value, facts.tag.direction, facts.policy, facts.noise)
        index = self._keys("near_misses", facts.tag.name)
        [answer] = await self._lab.pipeline([self._listed(Sketch, index, NEAR_READ, band=band)])
        return read_as(Sketch, answer)

    async def version(self, tag: str) -> tuple[Tag, Version]:
        """A tag, with what changes once a run of it ends or is judged anew. Raises NotFound: no such tag."""
        keys = self._keys
        stored, best = await self._lab.pipeline(
            [("HGETALL", keys.tag(tag)), ("HGET", keys.best(tag), "version")]
        )
        of_tag = tag_in(stored, tag)
        counted = (of_tag.finishes, of_tag.retracted, of_tag.kept, of_tag.claimed, of_tag.training_seconds)
        return of_tag, (of_tag.created_at, *counted, int(best or 0))

    async def results(self, tag: Tag, most: int) -> list[Result]:
        """The newest results of a tag in finish order, read in small steps."""
        index = self._keys("finished", tag.name)
        found: dict[str, Result] = {}
        pages = await self._lab.pipeline(
            [
                self._listed(Result, index, min(AT_ONCE, most - begin), offset=begin)
                for begin in range(0, most, AT_ONCE)
            ]
        )
        for page in pages:
            # one that finishes meanwhile moves the others on: then one is read twice
            found |= {e.experiment_id: e for e in read_as(Result, page)}
            await asyncio.sleep(0)
        return list(found.values())[::-1]

    async def rows(
        self, tag: str, kind: type[RunRow], limit: int, *, before: int | None, ids: Sequence[str] | None
    ) -> RunRows:
        """A page of a tag's experiments below `before`, or these of it. Raises NotFound: no such tag."""
        if ids is None:
            high = "+inf" if before is None else f"({before}"
            reads = [
                self._rows(tag, kind, min(AT_ONCE, limit - begin), begin, high)
                for begin in range(0, limit, AT_ONCE)
            ]
        else:
            reads = [self._rows(tag, kind, 1, 0, number, number) for number in _numbers(tag, ids)]
        of_tag, policy, total, noise, *pages = await self._lab.pipeline(
            [
                ("HGETALL", self._keys.tag(tag)),
                ("HGET", self._keys("policy", tag), "values"),
                ("ZCARD", self._keys("lineage", tag)),
                main_spread(self._lab, tag),
                *reads,
            ]
        )
        rows: list[RunRow] = []
        for page in pages:
            # a run that came between two pages pushes the last one of the first into the second
            last = rows[-1].number if rows and ids is None else math.inf
            rows += [row for row in read_as(kind, page) if row.number < last]
            await asyncio.sleep(0)
        found = tag_in(of_tag, tag)
        by_delta = read_policy(policy).compare_by == "delta"
        return RunRows(found, rows, int(total), spread_of(noise), by_delta)

    def _rows(
        self, tag: str, kind: type[RunRow], limit: int, offset: int, high: str, low: str = "-inf"
    ) -> Sequence[Arg]:
        return members(
            self._lab,
            self._keys("lineage", tag),
            limit=limit,
            offset=offset,
            low=low,
            high=high,
            newest=True,
            fields=kind,
            texts=("hypothesis", "description", "error_kind"),
            most_bytes=ROW_BYTES,
        )

    async def of_agents(self, tag: str, most: int) -> AgentFacts:
        """The newest finished runs of a tag, its open runs, claims and keeps. Raises NotFound: no such tag."""
        keys = self._keys
        of_tag, keeps, discards, *pages = await self._lab.pipeline(
            [
                ("HGETALL", keys.tag(tag)),
                self._listed(ComparedRun, keys.status(tag, "keep", "")[0], KEEPS_READ),
                members(
                    self._lab,
                    keys.status(tag, "discard", "")[0],
                    limit=KEEPS_READ,
                    newest=True,
                    fields=("claimed", *fields_in(AgentRun)),
                    holding="true",
                ),
                *(self._listed(AgentRun, keys.status(tag, s, "")[0], AT_ONCE) for s in OPEN_STATUSES),
                *(
                    self._listed(AgentRun, keys("finished", tag), min(AT_ONCE, most - n), offset=n)
                    for n in range(0, most, AT_ONCE)
                ),
            ]
        )
        parts: list[list[AgentRun]] = []
        for page in pages:
            parts.append(read_as(AgentRun, page))
            await asyncio.sleep(0)
        claims = (row_as(AgentRun, row[1:]) for row in values(discards).values())
        return AgentFacts(
            tag=tag_in(of_tag, tag),
            finished=[run for part in parts[len(OPEN_STATUSES) :] for run in part],
            still_open=[run for part in parts[: len(OPEN_STATUSES)] for run in part],
            discards=[run for run in claims if run is not None],
            keeps=read_as(ComparedRun, keeps),
        )

    async def tags(self, offset: int, limit: int) -> tuple[list[TagWithBest], int]:
        """A page of tags with their bests, newest first, and the number of all."""
        keys = self._keys
        stored, total = await self._lab.pipeline(
            [
                members(self._lab, keys("tags"), keys.tag(""), offset=offset, limit=limit, newest=True),
                ("ZCARD", keys("tags")),
            ]
        )
        found = [Tag.parse(fields) for fields in records(stored).values() if fields]
        fields = fields_in(OneRun)
        stored = await self._lab.pipeline(
            [
                *(("HGETALL", keys.best(tag.name)) for tag in found),
                *(runs_of_best(self._lab, tag.name, fields) for tag in found),
                *(main_spread(self._lab, tag.name) for tag in found),
                *(("HGET", keys("policy", tag.name), "values") for tag in found),
            ]
        )
        of_each = zip(*(stored[nth * len(found) : (nth + 1) * len(found)] for nth in range(4)), strict=True)
        return [
            TagWithBest(tag, Best.found(best), measured_runs_of(runs), spread_of(noise), read_policy(policy))
            for tag, (best, runs, noise, policy) in zip(found, of_each, strict=True)
        ], int(total)

    def _listed(
        self,
        kind: type[Record],
        index: str,
        most: int,
        *,
        offset: int = 0,
        band: tuple[float, float] | None = None,
    ) -> Sequence[Arg]:
        """A command for `read_as`: the newest of an index, or those with the lowest scores within a band."""
        low, high = band or ("-inf", "+inf")
        return members(
            self._lab, index, low=low, high=high, offset=offset, limit=most, newest=band is None, fields=kind
        )


def _numbers(tag: str, ids: Sequence[str]) -> list[str]:
    """Numbers of these experiments of a tag, the highest first. The id of a retest is that of what it repeats."""
    names = (named_by(name) for name in ids)
    numbers = {name.rpartition("-")[2] for name, of_tag in names if of_tag == tag}
    return sorted((number for number in numbers if number.isdecimal()), key=int, reverse=True)
