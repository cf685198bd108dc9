"""The graph of experiments as text."""

from __future__ import annotations

from typing import Any

from functions.branches.traces import drawn
from tests.functions.sample import experiment


def node(number: int, trace: str | None, *parents: int, status: Any = "keep", **more: Any) -> Any:
    its = {"experiment_id": f"t-{number}", "description": f"idea {number}", "trace_id": trace}
    return experiment(number, **its, status=status, parent_ids=[f"t-{p}" for p in parents], **more)


def signs(lines: list[str]) -> list[str]:
    """What stands in the columns."""
    return [line.partition("  t-")[0].rstrip() for line in lines]


def test_traces_stand_beside_each_other_and_end_at_their_roots() -> None:
    nodes = [node(1, "t-t1"), node(2, "t-t2", status="discard")]
    lines = drawn([*nodes, node(3, "t-t1", 1, status="crash"), node(4, "t-t2", 2)])
    assert signs(lines) == ["●", "│ ×", "○ │", "  ●"]
    assert [line.rpartition("  ")[2] for line in lines] == ["idea 4", "idea 3", "idea 2", "idea 1"]


def test_what_a_node_joins_or_leaves_behind_is_named() -> None:
    lines = drawn(
        [node(1, "t-t1"), node(2, "t-t2"), node(3, "t-t1", 1), node(4, "t-t1", 3, 2), node(5, "t-t1", 1)]
    )
    assert lines[0].endswith("idea 5  [from t-1]")
    assert lines[1].endswith("idea 4  [joins t-3 and t-2]")
    assert all("[" not in line for line in lines[2:])


def test_a_column_that_has_ended_is_used_again() -> None:
    lines = drawn([node(1, "t-t1"), node(2, "t-t2"), node(3, "t-t3"), node(4, "t-t3", 3)])
    assert signs(lines) == ["●", "●", "●", "●"]


def test_experiments_without_a_trace_share_a_column() -> None:
    lines = drawn([node(1, None), node(2, None, 1, status="running"), node(3, None)])
    assert signs(lines) == ["●", "·", "●"]
    assert lines[0].endswith("[a new root]")
