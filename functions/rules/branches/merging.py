"""What a merge brings together: traces by their bases, or nodes that nearly beat the best."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations

from functions.rules.keeps.verdict import score
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
    raise one_base(trace.base for trace in traces)


def in_order(traces: Iterable[Trace], bases: Mapping[str, Experiment], direction: Direction) -> list[Trace]:
    """The traces that have a base, best first."""
    valued = [
        (score(value, direction), trace.number, trace)
        for trace in traces
        if trace.base is not None and trace.base in bases and (value := bases[trace.base].val_bpb) is not None
    ]
    return [trace for *_, trace in sorted(valued, key=lambda each: each[:2])]


def near_pair(
    near: Sequence[Experiment], combined: Iterable[Sequence[str]], growing: Collection[str] | None = None
) -> list[Experiment]:
    """The two best near misses of different traces that were not combined yet; `near` is best first.

    One of them has to be of one of the `growing` traces, in which the merge goes on (None: it goes on elsewhere).

    Raises:
        Conflict: there are no two.
    """
    done = {frozenset(pair) for parents in combined for pair in combinations(parents, 2)}
    for one, other in combinations([e for e in near if e.trace_id is not None], 2):
        apart = one.trace_id != other.trace_id
        goes_on = growing is None or one.trace_id in growing or other.trace_id in growing
        if apart and goes_on and frozenset((one.experiment_id, other.experiment_id)) not in done:
            return [one, other]
    raise Conflict(
        "there are no two near misses of different traces that were not combined yet",
        hint="merge by best_base, name the nodes in parent_ids of POST /api/trace/select, or let the traces grow",
        fields={"code": "no_near_misses"},
    )


def one_base(bases: Iterable[str | None]) -> Conflict:
    """There is nothing to bring together."""
    stands_on = sorted({base for base in bases if base is not None})
    standing = f"on {stands_on[0]} alone" if len(stands_on) == 1 else "on nothing that was kept"
    return Conflict(
        f"what is to be merged stands {standing}: a merge takes two bases",
        hint="name traces with different bases (POST /api/trace/list shows them), or extend this one",
        fields={"code": "one_base"},
    )
