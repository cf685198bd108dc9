"""A client that reads the names of the published proposals finds them in every view, beside ours."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from tests.labs import add_gpu, asked, begun, idea, open_tag, refused, registered, told, tried


@pytest.fixture
def client(local: httpx.AsyncClient) -> httpx.AsyncClient:
    """A published client sends no token."""
    return local


async def shown(http: httpx.AsyncClient, experiment_id: str) -> dict[str, Any]:
    """An experiment, which its history tells as itself does."""
    alone: dict[str, Any] = (await asked(http, f"/api/experiment/{experiment_id}"))["experiment"]
    tag, _, number = experiment_id.rpartition("-")
    history = (await told(http, "/api/experiment/history", tag=tag))["experiments"]
    assert history[int(number) - 1] == alone
    return alone


async def test_a_run_lasts_from_when_it_is_trained_by_its_agent_or_a_worker_to_its_report(
    client: httpx.AsyncClient, operator: httpx.AsyncClient, process: Process
) -> None:
    await open_tag(client)
    own = await registered(client)
    before = await shown(client, own)
    waits = (await told(client, "/api/experiment/submit", **idea()))["experiment_id"]
    queued = await shown(client, waits)
    stats = (await told(client, "/api/report/summary", tag="mar11"))["stats"]
    await told(client, "/api/experiment/complete", experiment_id=own, val_bpb=0.99)
    after = await shown(client, own)
    await add_gpu(operator)
    await told(operator, "/api/pool/dispatch")
    await begun(process, waits)
    trains = await shown(client, waits)

    assert (before["status"], before["running"], after["running"]) == ("registered", True, False)
    assert before["started_at"] == after["started_at"] == before["registered_at"] <= after["finished_at"]
    assert (queued["running"], queued["started_at"]) == (False, None)
    assert (stats["running"], stats["queued"]) == (1, 1)
    assert trains["running"] is True
    assert trains["started_at"] >= queued["queued_at"]


async def test_every_view_names_what_it_shows_and_its_parent_as_proposed(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    first = (await tried(client, 0.99, commit_sha="4f9a1c2"))["experiment_id"]
    near = (await tried(client, 0.991, parent_id=first))["experiment_id"]
    merged = await registered(client, parent_ids=[near, first])
    added = (await add_gpu(client, gpu_index=3))["worker"]
    await told(client, "/api/pool/acquire", experiment_id=merged)

    paths = ("report/summary", "report/brief", "experiment/best", "search/suggest")
    views = [await told(client, f"/api/{path}", tag="mar11") for path in paths]
    [miss] = (await told(client, "/api/experiment/near-misses", tag="mar11"))["near_misses"]
    nodes = (await told(client, "/api/trace/list", tag="mar11"))["nodes"]
    above = await told(client, "/api/trace/context", tag="mar11", parent_ids=[near])
    [gpu] = (await asked(client, "/api/pool/list"))["workers"]

    experiments = [await shown(client, name) for name in (first, near, merged)]
    assert [(e["id"], e["parent_id"]) for e in experiments] == [(first, None), (near, first), (merged, near)]
    assert [answer["best"]["commit"] for answer in views if "best" in answer] == ["4f9a1c2"] * 3
    assert [answer["strategy_mode"] for answer in views if "strategy" in answer] == ["explore"] * 3
    assert miss["id"] == near
    assert {(first, None), (near, first)} <= {(n["id"], n["parent_id"]) for n in nodes}
    assert [(e["id"], e["parent_id"]) for e in above["branch"]["kept"]] == [(first, None)]
    names = [(g["id"], g["name"], g["current_experiment_id"]) for g in (added, gpu)]
    assert names == [("host:gpu0", "gpu-3", None), ("host:gpu0", "gpu-3", merged)]


async def selected(http: httpx.AsyncClient, **wish: Any) -> str:
    """The trace of an experiment that is made from a new selection, and ends as the values say."""
    chosen = await told(http, "/api/trace/select", tag="mar11", **wish)
    value = 1.0 - chosen["select_seq"] / 1000
    await tried(http, value, selection_id=chosen["selection_id"], category=wish.pop("category", "other"))
    return str(chosen["trace_id"])


async def test_history_tells_one_trace_of_a_status_and_category_page_by_page(
    client: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    await open_tag(client, policy={"traces.mode": "multi", "traces.max_parallel": 9})
    one, other = [await selected(client, intent="new_root") for _ in "12"]
    for trace in (one, other, one, other, one):
        await selected(client, trace_id=trace)
    failed = await told(client, "/api/trace/select", tag="mar11", trace_id=one)
    worse = await tried(client, 2.0, selection_id=failed["selection_id"], category="optimizer")

    async def listed(**asked: Any) -> tuple[list[str], int, int | None]:
        page = await told(client, "/api/experiment/history", tag="mar11", **asked)
        return [e["id"].partition("-")[2] for e in page["experiments"]], page["total"], page["next_cursor"]

    assert await listed(trace_id=one) == (["1", "3", "5", "7", "8"], 5, None)
    assert await listed(trace_id=other) == (["2", "4", "6"], 3, None)
    assert await listed(trace_id=one, status="keep") == (["1", "3", "5", "7"], 4, None)
    assert await listed(trace_id=one, status="discard", category="optimizer") == (["8"], 1, None)
    assert await listed(trace_id=other, category="optimizer") == ([], 0, None)
    assert await listed(trace_id=one, status="keep", limit=2) == (["5", "7"], 4, 5)
    assert await listed(trace_id=one, status="keep", limit=2, cursor=5) == (["1", "3"], 4, None)
    assert await listed(trace_id=one, status="keep", limit=3, order="oldest") == (["1", "3", "5"], 4, 5)
    assert worse["experiment_id"] == "mar11-8"
    assert (await told(operator, "/api/lab/audit"))["violations"] == []


async def test_history_of_a_trace_that_its_tag_does_not_have_is_not_found(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    await open_tag(client, "apr1", policy={"traces.mode": "multi"})
    chosen = await told(client, "/api/trace/select", tag="apr1")
    elsewhere, selection_id = chosen["trace_id"], chosen["selection_id"]
    await refused(client, 422, "/api/trace/context", tag="mar11", selection_id=selection_id)

    for name in ("mar11-t7", elsewhere):
        document = await refused(client, 404, "/api/experiment/history", tag="mar11", trace_id=name)

        assert name in document["detail"]
