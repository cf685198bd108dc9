"""Checks a tag's traces: tips, bases, counters and leases against the experiments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from functions.fold import rebuild
from functions.rules.branches.forest import is_node
from state.derived import Field
from state.ids import OWN_LINE
from state.records import OPEN, Experiment, ForestRecords, Trace

GROWING = ("live", "pending")


def forest_violations(mode: str, forest: ForestRecords, experiments: Sequence[Experiment]) -> Iterator[str]:
    """Every violation in the traces and selections of one tag, as text."""
    nodes = {e.experiment_id: e for e in experiments}
    counts = rebuild(experiments, "minimize").counts
    yield from _index(mode, forest)
    yield from _leases(forest, nodes)
    for trace in forest.traces:
        yield from _stands(trace, nodes)
        yield from _counts(trace, forest, counts)
        yield from _made_for(trace, forest, experiments)
    traces = {trace.trace_id for trace in forest.traces}
    for e in experiments:
        yield from _made_from(e, nodes, traces)


def _index(mode: str, forest: ForestRecords) -> Iterator[str]:
    growing = {t.trace_id for t in forest.traces if t.status in GROWING and t.number != OWN_LINE}
    for own in (t for t in forest.traces if t.number == OWN_LINE):
        if mode == "multi" and own.status == "live":
            growing.add(own.trace_id)
    for stray in sorted(growing ^ forest.live):
        yield f"{stray}: its status and the index of growing traces disagree"


def _leases(forest: ForestRecords, nodes: Mapping[str, Experiment]) -> Iterator[str]:
    for name, ends in sorted(forest.open.items()):
        s = forest.selections.get(name)
        if s is None or s.status != "open":
            yield f"{name} is in the index of open selections, its record says {s.status if s else 'nothing'}"
            continue
        held = nodes.get(s.experiment_id) if s.experiment_id else None
        if s.experiment_id is None:
            if math.isinf(ends):
                yield f"{name} has no experiment, and its lease never ends"
        elif held is None or held.status not in OPEN or held.selection_id != name:
            yield f"{name} is held open by {s.experiment_id}, which is over or was made from another"
        elif not math.isinf(ends):
            yield f"{name} is held open by {s.experiment_id}, but its lease ends"
    for e in nodes.values():
        if e.status in OPEN and e.selection_id is not None and e.selection_id not in forest.open:
            yield f"{e.experiment_id} is {e.status}, its selection {e.selection_id} is over"


def _stands(trace: Trace, nodes: Mapping[str, Experiment]) -> Iterator[str]:
    for what, name in (("root", trace.root), ("tip", trace.tip), ("base", trace.base)):
        e = nodes.get(name) if name is not None else None
        if name is not None and (e is None or not is_node(e, e.status)):
            yield f"{trace.trace_id}: its {what} {name} is not a node"
        elif e is not None and what == "base" and e.status != "keep":
            yield f"{trace.trace_id}: its base {name} is a {e.status}"
        elif e is not None and what == "tip" and e.outdated:
            yield f"{trace.trace_id}: its tip {name} finished after its epoch"
    if trace.status == "live" and trace.tip is None:
        yield f"{trace.trace_id} is live without a node"


def _counts(trace: Trace, forest: ForestRecords, counts: Mapping[Field, int]) -> Iterator[str]:
    flying = sum(
        forest.selections[name].trace_id == trace.trace_id
        for name in forest.open
        if name in forest.selections
    )
    found = {name: counts[f"trace:{trace.trace_id}", name] for name in ("length", "kept")}
    for name, have in {**found, "in_flight": flying}.items():
        if getattr(trace, name) != have:
            yield f"{trace.trace_id}: {name} says {getattr(trace, name)}, the records {have}"


def _made_for(trace: Trace, forest: ForestRecords, experiments: Sequence[Experiment]) -> Iterator[str]:
    mine = {e.experiment_id for e in experiments if e.trace_id == trace.trace_id}
    for stray in sorted(mine ^ forest.made_for[trace.trace_id]):
        yield f"{stray} and the index of {trace.trace_id} disagree"


def _made_from(e: Experiment, nodes: Mapping[str, Experiment], traces: set[str]) -> Iterator[str]:
    if e.selection is None:
        return
    if e.parent_ids != e.selection.parent_ids:
        yield f"{e.experiment_id}: its parents are {e.parent_ids}, selected were {e.selection.parent_ids}"
    numbers = [nodes[parent].number for parent in e.parent_ids if parent in nodes]
    if e.local_selection != numbers:
        yield f"{e.experiment_id}: local_selection is {e.local_selection}, its parents' numbers {numbers}"
    if e.trace_id not in traces and (e.committed or e.status in OPEN):
        yield f"{e.experiment_id}: there is no trace {e.trace_id}"
