"""Ancestors and siblings of an experiment's parents, read in two round trips."""

from __future__ import annotations

from collections.abc import Mapping

from state.experiments.walking import ancestors, ancestry, by_id
from state.facts import ContextFacts
from state.indexes import members, records, values
from state.records import Experiment, Selection, Status, Tag
from state.refusals import no_selection
from state.tags import unknown
from state.traces.reading import TraceReader


class Surroundings(TraceReader):
    """Part of `Traces`."""

    async def context_facts(
        self,
        tag: str,
        parents: str | list[str],
        *,
        most_ancestors: int,
        most_beside: int,
        newest: Mapping[Status, int],
    ) -> ContextFacts:
        """Ancestors and siblings of these parents. A text is the id of a selection, and stands for its parents.

        Of the whole tag, the `newest` of each status are read.

        Raises:
            NotFound: the tag does not exist, or the selection.
        """
        keys, lab = self._keys, self._lab
        chosen = parents if isinstance(parents, str) else None
        told = await lab.read(
            {
                "tag": ("HGETALL", keys.tag(tag)),
                "best": ("HGET", keys.best(tag), "experiment_id"),
                "selection": ("HGETALL", keys.selection(chosen)) if chosen else None,
                "roots": members(
                    lab, keys("traces", tag), keys.trace(""), limit=most_beside, newest=True, fields=("root",)
                ),
            }
        )
        if not told["tag"]:
            raise unknown(tag)
        if chosen and not told["selection"]:
            raise no_selection(chosen)
        selection = Selection.parse(told["selection"]) if chosen else None
        parent_ids = selection.parent_ids if selection else list(parents)
        roots = [root for [root] in values(told["roots"]).values() if root]
        until = "+inf" if selection is None else selection.finished_until
        found = await lab.read(
            {
                "above": ancestors(lab, parent_ids, most_ancestors) if parent_ids else None,
                "best": ("HGETALL", keys.experiment(told["best"])) if told["best"] else None,
                "finished": members(
                    lab, keys("finished", tag), limit=most_beside, high=until, newest=True, brief=True
                ),
                "roots": ancestors(lab, roots, 1) if roots else None,
                **{
                    f"newest {status}": members(
                        lab, keys.status(tag, status, "")[0], limit=most, newest=True, brief=True
                    )
                    for status, most in newest.items()
                },
            }
        )
        known, is_whole = ancestry(found["above"]) if parent_ids else ({}, True)
        beside = (by_id(found["roots"]) if roots else {}) | records(found["finished"])
        return ContextFacts(
            tag=Tag.parse(told["tag"]),
            selection=selection,
            parent_ids=parent_ids,
            ancestors=known,
            is_whole=is_whole,
            beside=[Experiment.parse(fields) for fields in beside.values() if fields],
            newest={
                status: [Experiment.parse(f) for f in records(found[f"newest {status}"]).values() if f][::-1]
                for status in newest
            },
            best=Experiment.found(found["best"]),
        )
