"""report::runs: a tag's runs as columns, in pages or by id."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from tests.crowd import TAG, crowd
from tests.functions.conftest import TagUnderTest
from tests.labs import crashed, open_tag, registered, told, tried


async def rows(client: httpx.AsyncClient, **request: Any) -> list[dict[str, Any]]:
    """The runs of an answer, row by row."""
    columns = (await told(client, "/api/report/runs", **{"tag": "mar11", **request}))["runs"]
    there = {name: values for name, values in columns.items() if values is not None}
    return [dict(zip(there, row, strict=True)) for row in zip(*there.values(), strict=True)]


async def test_runs_come_newest_first_with_changes_and_gains(client: httpx.AsyncClient) -> None:
    await open_tag(client, metric={"name": "loss", "direction": "minimize"})
    await tried(client, 1.0, description="baseline")
    await tried(client, 0.9, description="LR 0.01 -> 0.012", agent="ann", parent_id="mar11-1")
    await tried(client, 0.95, category="optimizer")
    await crashed(client)
    await registered(client)

    answer = await told(client, "/api/report/runs", tag="mar11")

    runs = answer["runs"]
    assert (answer["metric"], answer["direction"], answer["total"], answer["next_before"]) == (
        *("loss", "minimize"),
        *(5, None),
    )
    assert answer["sigma"] is None
    assert runs["id"] == ["mar11-5", "mar11-4", "mar11-3", "mar11-2", "mar11-1"]
    assert runs["status"] == ["registered", "crash", "discard", "keep", "keep"]
    assert runs["value"] == [None, None, 0.95, 0.9, 1.0]
    assert runs["gain"] == [None, None, pytest.approx(-0.05), pytest.approx(0.1), None]
    assert runs["description"][3] == "LR 0.01 -> 0.012"
    assert (runs["agent"][3], runs["parents"][3], runs["category"][2]) == ("ann", ["mar11-1"], "optimizer")
    assert [at is None for at in runs["finished_at"]] == [True, False, False, False, False]
    assert runs["constants"] is None


async def test_a_retest_is_a_value_of_the_run_that_it_repeats(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.baseline(1.002, 0.998)
    await tag.trained(0.995)
    await tag.measured("mar11-2.2", 1.01)

    keep, first = await rows(tag.client)

    assert (first["id"], first["trust"], first["retests"]) == ("mar11-1", "first", [1.002, 0.998])
    assert (keep["status"], keep["trust"], keep["retests"][0]) == ("discard", "demoted", 1.01)
    assert keep["gain"] < 0
    assert (await told(tag.client, "/api/report/runs", tag="mar11"))["sigma"] > 0


async def test_a_claim_has_no_gain_until_the_lab_has_measured_it(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.trained(1.0)
    await tag.claimed(0.5)
    claim, _ = await rows(tag.client)
    assert (claim["trust"], claim["gain"], claim["status"]) == ("claimed", None, "discard")


async def test_pages_follow_each_other_without_a_gap(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state.reports.AT_ONCE", 10)  # each page of 22 is read in three
    await open_tag(client, TAG, policy={"baseline_first": False})
    await crowd(process.lab, 45)

    pages, before = list[list[int]](), None
    while True:
        page = await told(client, "/api/report/runs", tag=TAG, limit=22, before=before)
        pages.append(page["runs"]["number"])
        if (before := page["next_before"]) is None:
            break

    assert pages == [[*range(45, 23, -1)], [*range(23, 1, -1)], [1]]
