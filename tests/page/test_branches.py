"""The graph of experiments: traces, keeps, merges, near misses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.journeys.running import RunningLab
from tests.page.pages import Page, measured

MULTI = {"traces.mode": "multi", "traces.target_traces": 2, "traces.max_parallel": 4}


def grown(lab: RunningLab, tag: str, value: float, verb: str = "select", **wish: Any) -> dict[str, Any]:
    """The verdict on an experiment of this value that follows a new selection."""
    chosen = lab.post(f"trace/{verb}", tag=tag, **wish)
    body = {"hypothesis": "h", "category": "other", "diff_summary": f"{value}"}
    body |= {"commit_sha": f"{abs(hash((tag, value))):x}"[:7].rjust(7, "0")}
    name = lab.post("experiment/register", tag=tag, selection_id=chosen["selection_id"], **body)
    verdict = lab.post("experiment/complete", experiment_id=name["experiment_id"], val_bpb=value)
    return {"id": name["experiment_id"], **verdict}


@pytest.fixture
def forest(lab: RunningLab, tag: str) -> list[str]:
    """Ids of runs in two traces: a keep and a discard in each, and one keep that merges them."""
    lab.post("search/set-policy", tag=tag, policy=MULTI)
    first, second = (grown(lab, tag, value) for value in (3.0, 2.9))
    traces = [trace["trace_id"] for trace in lab.post("trace/list", tag=tag)["traces"]]
    worse = [grown(lab, tag, value, trace_id=trace) for value, trace in zip((3.5, 3.6), traces, strict=True)]
    merged = grown(lab, tag, 2.5, "merge", sources=traces)
    return [run["id"] for run in (first, second, *worse, merged)]


def drawn(page: Page) -> dict[str, list[Any]]:
    """The points and lines of the graph, by the name of their series."""
    return {each["name"]: each["data"] for each in page.series()}


def ids(points: list[Any]) -> list[str]:
    return sorted(point["id"] for point in points)


def test_traces_are_lanes_with_keeps_joined_and_merges_marked(
    page: Page, lab: RunningLab, tag: str, forest: list[str]
) -> None:
    first, second, *worse, merged = forest

    page.show(tag=tag, view="branches")

    wanted = {"keep": sorted([first, second, merged]), "discard": sorted(worse), "merges": [merged]}
    page.settles(
        lambda: {name: ids(points) for name, points in drawn(page).items() if name in wanted}, wanted
    )
    page.browser.until(lambda: len(drawn(page)["keeps"]) == 2, "the merge follows a keep of either trace")
    lanes = {point["id"]: round(point["value"][1]) for point in drawn(page)["keep"]}
    assert lanes[first] != lanes[second]
    lines = drawn(page)["parents"]
    assert len({line["lineStyle"]["color"] for line in lines}) == 2, "each trace has its colour"
    page.settles(lambda: sorted(row[0] for row in page.rows()), ["t1", "t2"])
    page.browser.until(lambda: "merged" in {row[1] for row in page.rows()}, "one is merged")
    page.click("t2", "#view td a")
    page.settles(page.address, {"tag": tag, "view": "runs", "branch": f"{tag}-t2"})
    assert page.said() == []


def test_a_new_run_and_a_near_miss_appear_without_a_reload(page: Page, lab: RunningLab, tag: str) -> None:
    page.show(tag=tag, view="branches")
    page.until("No trace yet")

    _, near = measured(lab, tag, 3.0, 3.0005)

    page.settles(lambda: ids(drawn(page).get("near misses", [])), [near])
    page.browser.until(lambda: len(drawn(page)["parents"]) == 1, "its parent")
    page.until("one chain", ".figures")
    assert page.said() == []
