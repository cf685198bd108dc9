"""Searches: what a tag's next strategy and an agent's next idea are decided on, in two round trips."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from state import reads
from state.change import Change, Read, clock, hgetall, loosely
from state.client import Lab
from state.experiments import NearBand
from state.experiments.reading import ends, near_count
from state.facts import SearchFacts
from state.reads import Store, fields_in, row_as
from state.records import Best, Mention, Selection, Sketch, Strategy
from state.refusals import no_selection, other_tag
from state.tags import replaced

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


class Searches(Store):
    """Reads across all records of a tag's search."""

    async def facts(
        self, tag: str, selection_id: str | None, near: NearBand, least_tried: LeastTried, adapted: Adapted
    ) -> SearchFacts:
        """Facts for the search of a tag, or of the selected branch. A strategy that is due is replaced first.

        Raises:
            NotFound: no such tag, or no such selection. Invalid: the selection is another tag's.
        """
        lab, keys = self._lab, self._keys
        ground: dict[str, Read[Any] | None] = {"chosen": None}
        if selection_id:
            ground["chosen"] = loosely("HGETALL", keys.selection(selection_id), to=Selection.found)
            ground["roots"] = reads.members(
                lab, keys("traces", tag), keys.trace(""), limit=BESIDE_READ, newest=True, fields=("root",)
            )
        else:
            ground["recent"] = reads.rows(lab, Sketch, keys("finished", tag), limit=RECENT_READ, newest=True)

        async def decide(change: Change) -> SearchFacts:
            found = await change.read(
                {
                    "now": clock(),
                    "tag": reads.tag(keys, tag),
                    "policy": reads.policy(keys, tag),
                    "strategy": hgetall(keys("strategy", tag), to=Strategy.parse),
                    "best": reads.best(keys, tag),
                    "categories": reads.categories(keys, tag),
                    "crashes_in_a_row": reads.crashes_in_a_row(keys, tag),
                    "noise": reads.main_noise(lab, tag),
                    **ground,
                }
            )
            now, branches, recent = (found.pop(name, ()) for name in ("now", "roots", "recent"))
            best, chosen = found["best"], found["chosen"]
            of_tag, policy, strategy = found["tag"], found["policy"], found["strategy"]
            if selection_id and chosen is None:
                raise no_selection(selection_id)
            if chosen and chosen.tag != tag:
                raise other_tag(chosen)
            low, high = band = (
                near(best.val_bpb, of_tag.direction, policy, found["noise"]) if best else (0.0, 0.0)
            )
            least = least_tried(found["categories"])
            is_old = strategy.decided_at < of_tag.finishes
            may_combine = is_old or strategy.mode == "combine"
            base_id = chosen.base_experiment_id if chosen else best.experiment_id if best else None
            merging = (chosen.combines or chosen.parent_ids) if chosen and chosen.kind == "merge" else ()
            beside = _beside(chosen, best, branches) if chosen else None
            misses = reads.rows(lab, Mention, keys("near_misses", tag), limit=NEAR_READ, low=low, high=high)
            more = await change.read(
                {
                    "ends": ends(lab, tag, policy.adapt.ends_read)
                    if is_old or policy.adapt.rule == "yields"
                    else None,
                    "near_count": near_count(keys, tag, band) if best else None,
                    "combinations": _parents(lab, keys("category", tag, "combination"))
                    if may_combine
                    else None,
                    "newest": _parents(lab, keys("lineage", tag)) if may_combine else None,
                    "tries": reads.rows(
                        lab, Sketch, keys("category", tag, least), limit=TRIES_READ, newest=True
                    ),
                    "base": _sketch(lab, base_id) if base_id else None,
                    "near": misses if best and not chosen else None,
                    "ancestors": reads.above(lab, chosen.parent_ids, ANCESTORS_READ) if chosen else None,
                    **{name: _sketch(lab, name) for name in (*merging, *(beside or ()))},
                }
            )

            def sketches(names: Sequence[str]) -> list[Sketch]:
                return [more[name] for name in names if more[name] is not None]

            facts = SearchFacts(
                **found,
                ends=more["ends"] or (),
                near_count=more["near_count"] or 0,
                least_tried=least,
                tries=[e for e in more["tries"][::-1] if e.retest_of is None],
                combined=[*(more["combinations"] or ()), *(more["newest"] or ())],
                base=more["base"],
                near=more["near"] or (),
                recent=recent[::-1],
                ancestors=reads.ancestry(more["ancestors"][0]) if chosen else {},
                merging=sketches(merging),
                beside=None if beside is None else sketches(beside),
            )
            return replace(facts, strategy=replaced(change, tag, strategy, adapted(facts), now))

        return await self._lab.change(decide)


def _beside(
    chosen: Selection, best: Best | None, roots: Mapping[str, Sequence[str | None]]
) -> Sequence[str] | None:
    """First experiments of other branches, the oldest first; None if they do not matter.

    The tag's first root is its baseline, unless it has one from before it had branches.
    """
    if chosen.kind != "new_root" or (chosen.select_seq == 1 and best is None):
        return None
    return [root for (root,) in roots.values() if root][::-1]


def _sketch(lab: Lab, experiment_id: str) -> Read[Sketch | None]:
    return loosely(
        "HMGET", lab.keys.experiment(experiment_id), *fields_in(Sketch), to=lambda row: row_as(Sketch, row)
    )


def _parents(lab: Lab, index: str) -> Read[list[list[str]]]:
    """The parents of experiments that have more than one: a list without a comma names one parent, or none."""
    several = reads.members(lab, index, limit=COMBINED_READ, newest=True, fields=("parent_ids",), holding=",")
    return several.to(lambda found: [json.loads(parents) for (parents,) in found.values() if parents])
