"""What a merge brings together: traces by their bases, or nodes that nearly beat the best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from functions.rules.verdict import score
from state.errors import Conflict
from state.records import Direction, Experiment, Trace


def by_best_base(
    traces: Sequence[Trace], bases: Mapping[str, Experiment], direction: Direction
) -> list[Trace]:
    """The two traces with the best bases, which are not the same one; the best first.

    Raises:
        Conflict: there are no two such bases.
    """
    ranked = in_order(traces, bases, direction)
    for one, other in combinations(ranked, 2):
        if one.base != other.base:
            return [one, other]
    raise one_base(traces)


def in_order(traces: Iterable[Trace], bases: Mapping[str, Experiment], direction: Direction) -> list[Trace]:
    """The traces that have a base, best first."""
    valued = [
        (score(value, direction), trace.number, trace)
        for trace in traces
        if trace.base is not None and trace.base in bases and (value := bases[trace.base].val_bpb) is not None
    ]
    return [trace for *_, trace in sorted(valued, key=lambda each: each[:2])]


def near_pair(near: Sequence[Experiment], combined: Iterable[Sequence[str]]) -> list[Experiment]:
    """The two best near misses of different traces that were not combined yet; `near` is best first.

    Raises:
        Conflict: there are no two.
    """
    done = {frozenset(pair) for parents in combined for pair in combinations(parents, 2)}
    for one, other in combinations([e for e in near if e.trace_id is not None], 2):
        if one.trace_id != other.trace_id and frozenset((one.experiment_id, other.experiment_id)) not in done:
            return [one, other]
    raise Conflict(
        "there are no two near misses of different traces that were not combined yet",
        hint="merge by best_base, name the nodes in parent_ids of POST /api/trace/select, or let the traces grow",
        fields={"code": "no_near_misses"},
    )


def one_base(traces: Sequence[Trace]) -> Conflict:
    """There is nothing to bring together."""
    bases = sorted({trace.base for trace in traces if trace.base is not None})
    standing = f"on {bases[0]} alone" if len(bases) == 1 else "on nothing that was kept"
    return Conflict(
        f"the traces to merge stand {standing}: a merge takes two bases",
        hint="name traces with different bases (POST /api/trace/list shows them), or extend this one",
        fields={"code": "one_base"},
    )
