"""A tag's graph as text: a column for each trace and a line for each node, newest first."""

from __future__ import annotations

from collections.abc import Sequence

from state.records import Experiment

SIGNS = {"keep": "●", "discard": "○", "crash": "×", "timeout": "×"}
OTHER = "·"
"""Open, stopped, lost or invalid."""


def drawn(nodes: Sequence[Experiment]) -> list[str]:
    """Lines for these nodes, which are given oldest first.

    A node stands in its trace's column, on top of the one before it there; whatever else it was made from is named.
    A column that has ended is used again.
    """
    below = _below(nodes)
    columns: list[str | None] = []
    rows: list[tuple[str, Experiment]] = []
    for e in reversed(nodes):
        lane = e.trace_id or ""
        if lane not in columns:
            _take(columns, lane)
        signs = [_sign(e) if at == lane else " " if at is None else "│" for at in columns]
        rows.append((" ".join(signs), e))
        if below[e.experiment_id] is None:
            columns[columns.index(lane)] = None
    width = max((len(signs) for signs, _ in rows), default=0)
    return [f"{signs:<{width}}  {_words(e, below[e.experiment_id])}".rstrip() for signs, e in rows]


def _below(nodes: Sequence[Experiment]) -> dict[str, str | None]:
    """For each node the one before it in its column."""
    newest: dict[str, str] = {}
    below: dict[str, str | None] = {}
    for e in nodes:
        lane = e.trace_id or ""
        below[e.experiment_id] = newest.get(lane)
        newest[lane] = e.experiment_id
    return below


def _take(columns: list[str | None], lane: str) -> None:
    if None in columns:
        columns[columns.index(None)] = lane
    else:
        columns.append(lane)


def _sign(e: Experiment) -> str:
    return SIGNS.get(e.status, OTHER)


def _words(e: Experiment, below: str | None) -> str:
    value = f"{e.val_bpb:.6f}" if e.val_bpb is not None else ""
    said = f"{e.experiment_id:<9} {e.status:<10} {value:<10} {e.trace_id or '':<8} {' '.join(e.description.split())}"
    if e.parent_ids == ([below] if below else []):
        return said
    made = "joins" if len(e.parent_ids) > 1 else "from" if e.parent_ids else "a new root"
    return f"{said}  [{' '.join((made, ' and '.join(e.parent_ids))).rstrip()}]"
