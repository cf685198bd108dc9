"""Searches: what a tag's next strategy and an agent's next idea are decided on, in two round trips."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from state.change import Change, hgetall
from state.client import Lab, time_of
from state.experiments import NearBand
from state.experiments.reading import ends_of, newest_ends
from state.experiments.walking import ancestors, ancestry
from state.facts import BranchGround, SearchFacts, TagGround
from state.indexes import fields_in, members, read_as, row_as, values
from state.moves import Arg
from state.noise import main_spread, spread_of
from state.policy import read_policy
from state.records import Best, Mention, Selection, Sketch, Strategy, Tag
from state.refusals import no_selection, other_tag
from state.store import Store
from state.tags import categories_of, replaced, tag_in

RECENT_READ = 10
NEAR_READ = 50
COMBINED_READ = 200
ANCESTORS_READ = 200
BESIDE_READ = 20
TRIES_READ = 4

LeastTried = Callable[[Mapping[str, tuple[int, int]]], str]
"""Picks a category by total and kept of each that was tried."""

Adapted = Callable[[SearchFacts], Strategy | None]
"""The next strategy, or None where none is due."""

Commands = dict[str, Sequence[Arg] | None]
"""Commands by name, for `Lab.read`."""
Found = dict[str, Any]


@dataclass(frozen=True)
class _Seen:
    """Results of the first round trip."""

    tag: Tag
    best: Best | None
    band: tuple[float, float]
    """The scores of near misses."""


class Searches(Store):
    """Reads across all records of a tag's search."""

    async def facts(
        self, tag: str, selection_id: str | None, near: NearBand, least_tried: LeastTried, adapted: Adapted
    ) -> SearchFacts:
        """Facts for the search of a tag, or of the selected branch. A strategy that is due is replaced first.

        Raises:
            NotFound: no such tag, or no such selection. Invalid: the selection is another tag's.
        """
        lab, keys, parents = self._lab, self._keys, self._parents
        reads = _BranchReads(lab, tag, selection_id) if selection_id else _TagReads(lab, tag)

        async def decide(change: Change) -> SearchFacts:
            found = await change.read(
                {
                    "now": ("TIME",),
                    "tag": ("HGETALL", keys.tag(tag)),
                    "policy": ("HGET", keys("policy", tag), "values"),
                    "strategy": hgetall(keys("strategy", tag)),
                    "best": ("HGETALL", keys.best(tag)),
                    "categories": ("HGETALL", keys("categories", tag)),
                    "crashes": ("HGET", keys("crashes", tag), "consecutive"),
                    "noise": main_spread(lab, tag),
                    **reads.first(),
                }
            )
            of_tag, policy = tag_in(found["tag"], tag), read_policy(found["policy"])
            strategy, best = Strategy.parse(found["strategy"]), Best.found(found["best"])
            noise = spread_of(found["noise"])
            band = near(best.val_bpb, of_tag.direction, policy, noise) if best else (0.0, 0.0)
            categories = categories_of(found["categories"])
            least = least_tried(categories)
            is_old = strategy.decided_at < of_tag.finishes
            needs_ends = is_old or policy.adapt.rule == "yields"
            may_combine = is_old or strategy.mode == "combine"
            found |= await change.read(
                {
                    "ends": newest_ends(lab, tag, policy.adapt.ends_read) if needs_ends else None,
                    "near_count": ("ZCOUNT", keys("near_misses", tag), *map(repr, band)) if best else None,
                    "combinations": parents(keys("category", tag, "combination")) if may_combine else None,
                    "newest": parents(keys("lineage", tag)) if may_combine else None,
                    "tries": members(
                        lab, keys("category", tag, least), limit=TRIES_READ, newest=True, fields=Sketch
                    ),
                    **reads.second(_Seen(of_tag, best, band), found),
                }
            )
            facts = SearchFacts(
                tag=of_tag,
                policy=policy,
                strategy=strategy,
                noise=noise,
                ends=ends_of(found["ends"]) if needs_ends else (),
                near_count=int(found["near_count"] or 0),
                categories=categories,
                crashes_in_a_row=int(found["crashes"] or 0),
                least_tried=least,
                tries=[e for e in read_as(Sketch, found["tries"])[::-1] if e.retest_of is None],
                combined=[*_several(found["combinations"]), *_several(found["newest"])],
                ground=reads.ground(best, found),
            )
            after = replaced(change, tag, strategy, adapted(facts), time_of(found["now"]))
            return replace(facts, strategy=after)

        return await self._lab.change(decide)

    def _parents(self, index: str) -> Sequence[Arg]:
        """A command for `_several`: a list without a comma names one parent, or none."""
        return members(
            self._lab, index, limit=COMBINED_READ, newest=True, fields=("parent_ids",), holding=","
        )


class _TagReads:
    """Reads the facts for the next idea of a tag."""

    def __init__(self, lab: Lab, tag: str) -> None:
        self._lab, self._tag = lab, tag

    def first(self) -> Commands:
        lab, keys = self._lab, self._lab.keys
        recent = keys("finished", self._tag)
        return {"recent": members(lab, recent, limit=RECENT_READ, newest=True, fields=Sketch)}

    def second(self, seen: _Seen, found: Found) -> Commands:
        if seen.best is None:
            return {"base": None, "near": None}
        lab, keys, (low, high) = self._lab, self._lab.keys, seen.band
        return {
            "base": _sketched(lab, seen.best.experiment_id),
            "near": members(
                lab, keys("near_misses", self._tag), limit=NEAR_READ, low=low, high=high, fields=Mention
            ),
        }

    def ground(self, best: Best | None, found: Found) -> TagGround:
        return TagGround(
            best=best,
            base=row_as(Sketch, found["base"]) if best else None,
            near=read_as(Mention, found["near"] or ()),
            recent=read_as(Sketch, found["recent"])[::-1],
        )


class _BranchReads:
    """Reads the facts for the next idea of a branch."""

    def __init__(self, lab: Lab, tag: str, selection_id: str) -> None:
        self._lab, self._tag, self._selection_id = lab, tag, selection_id

    def first(self) -> Commands:
        lab, keys = self._lab, self._lab.keys
        return {
            "chosen": ("HGETALL", keys.selection(self._selection_id)),
            "branches": members(
                lab,
                keys("traces", self._tag),
                keys.trace(""),
                limit=BESIDE_READ,
                newest=True,
                fields=("root",),
            ),
        }

    def second(self, seen: _Seen, found: Found) -> Commands:
        if not found["chosen"]:
            raise no_selection(self._selection_id)
        chosen = Selection.parse(found["chosen"])
        if chosen.tag != self._tag:
            raise other_tag(chosen)
        named = [
            *_merging(chosen),
            *(_beside(chosen, seen.best, found) or ()),
            chosen.base_experiment_id or "",
        ]
        return {
            "ancestors": ancestors(self._lab, chosen.parent_ids, ANCESTORS_READ)
            if chosen.parent_ids
            else None,
            **{f"sketch of {name}": _sketched(self._lab, name) for name in named},
        }

    def ground(self, best: Best | None, found: Found) -> BranchGround:
        chosen = Selection.parse(found["chosen"])

        def sketches(names: Sequence[str]) -> list[Sketch]:
            rows = [row_as(Sketch, found[f"sketch of {name}"]) for name in names]
            return [sketch for sketch in rows if sketch is not None]

        beside = _beside(chosen, best, found)
        return BranchGround(
            chosen=chosen,
            ancestors=ancestry(found["ancestors"])[0] if chosen.parent_ids else {},
            base=next(iter(sketches([chosen.base_experiment_id or ""])), None),
            merging=sketches(_merging(chosen)),
            beside=None if beside is None else sketches(beside),
        )


def _merging(chosen: Selection) -> Sequence[str]:
    """The parts of a merge."""
    return (chosen.combines or chosen.parent_ids) if chosen.kind == "merge" else ()


def _beside(chosen: Selection, best: Best | None, found: Found) -> Sequence[str] | None:
    """First experiments of other branches, the oldest first; None if they do not matter.

    The tag's first root is its baseline, unless it has one from before it had branches.
    """
    if chosen.kind != "new_root" or (chosen.select_seq == 1 and best is None):
        return None
    return [root for (root,) in values(found["branches"]).values() if root][::-1]


def _sketched(lab: Lab, experiment_id: str) -> Sequence[Arg]:
    """A command for `row_as`."""
    return ("HMGET", lab.keys.experiment(experiment_id), *fields_in(Sketch))


def _several(answer: Sequence[Any] | None) -> list[list[str]]:
    """The parents of experiments that have more than one."""
    return [json.loads(parents) for (parents,) in values(answer or ()).values() if parents]
