"""A paused tag: nothing of it begins, nothing of it is lost, and nobody else waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from functions.kernel.contract import On
from functions.kernel.process.lifecycle import Process
from functions.kernel.table import table
from state.experiments import Experiments
from tests.labs import (
    add_gpu,
    asked,
    begun,
    crashed,
    dump,
    events_of,
    idea,
    open_tag,
    registered,
    running,
    told,
    waiting,
)


@pytest.fixture(autouse=True)
async def tags(client: httpx.AsyncClient) -> None:
    await open_tag(client, "mar11")
    await open_tag(client, "other")


async def submit(client: httpx.AsyncClient, tag: str = "mar11", **more: Any) -> str:
    return str((await told(client, "/api/experiment/submit", **idea(tag, **more)))["experiment_id"])


async def pause(client: httpx.AsyncClient, **more: Any) -> dict[str, Any]:
    return await told(client, "/api/tag/pause", tag="mar11", **more)


async def unpause(client: httpx.AsyncClient) -> dict[str, Any]:
    return await told(client, "/api/tag/unpause", tag="mar11")


async def dispatched(client: httpx.AsyncClient) -> list[str]:
    return list((await told(client, "/api/pool/dispatch"))["leased"])


async def status(client: httpx.AsyncClient, experiment: str) -> str:
    return str((await asked(client, f"/api/experiment/{experiment}"))["experiment"]["status"])


async def outcome(client: httpx.AsyncClient, experiment: str) -> dict[str, Any]:
    return await asked(client, f"/api/experiment/{experiment}/wait?timeout=0")


async def in_order(client: httpx.AsyncClient) -> None:
    """The audit finds nothing."""
    assert (await told(client, "/api/lab/audit"))["violations"] == []


# -- what waits


async def test_everything_is_back_in_its_place_afterwards(
    client: httpx.AsyncClient, process: Process
) -> None:
    await add_gpu(client, "g0")
    await add_gpu(client, "g1")
    for nth in range(60):
        pin = [{}, {}, {"gpu_id": "g0"}, {"gpu_id": "g1"}][nth % 4]
        agent, priority = f"agent{nth % 3}", nth % 2
        await submit(client, "mar11" if nth % 5 else "other", agent=agent, priority=priority, **pin)
    queues = [process.lab.keys.queue(gpu) for gpu in (None, "g0", "g1")]
    reads = [("ZRANGE", queue, 0, -1, "WITHSCORES") for queue in queues]
    before = await process.lab.pipeline(reads)

    await pause(client)
    meanwhile = await process.lab.pipeline(reads)
    await in_order(client)
    answer = await unpause(client)

    assert not any(member.startswith("mar11-") for queue in meanwhile for member in queue)
    assert await process.lab.pipeline(reads) == before
    assert (answer["paused"], answer["changed"], answer["waiting"]) == (False, True, 48)
    assert not [key for key in await dump(process.lab) if ":parked:" in key]
    await in_order(client)


async def test_an_agents_own_stay_in_order_though_the_queue_ran_empty_while_it_was_paused(
    client: httpx.AsyncClient, process: Process
) -> None:
    before = [await submit(client, agent="ada") for _ in range(3)]
    await submit(client, "other", agent="bob")
    await pause(client)
    await add_gpu(client)
    await dispatched(client)  # bob's: the common queue is empty now

    after = await submit(client, agent="ada")
    await unpause(client)

    found = [e.experiment_id for e in await waiting(process.lab)]
    assert found == [*before, after]


async def test_what_is_submitted_to_a_paused_tag_is_told_that_it_waits_and_others_are_served(
    client: httpx.AsyncClient,
) -> None:
    await add_gpu(client)
    held = [await submit(client) for _ in range(3)]
    paused = await pause(client, reason="prices are high")

    answer = await told(client, "/api/experiment/submit", **idea())
    other = await submit(client, "other")

    assert (paused["waiting"], paused["reason"], paused["changed"]) == (3, "prices are high", True)
    assert (answer["status"], answer["queue"]["position"]) == ("queued", 4)
    assert "paused (prices are high)" in answer["hint"]
    assert "paused" in answer["next"]
    assert await dispatched(client) == [other]
    assert await status(client, held[0]) == "queued"
    waited = await outcome(client, answer["experiment_id"])
    assert waited["paused"] is True
    assert "paused" in waited["next"]
    await in_order(client)
    await unpause(client)
    await told(client, "/api/experiment/stop", experiment_id=other)
    gpu = (await asked(client, "/api/pool/list"))["workers"][0]
    await told(client, "/api/pool/give-back", gpu_id=gpu["gpu_id"], fence=gpu["fence"], reason="stopped")
    assert await dispatched(client) == held[:1]
    assert (await outcome(client, answer["experiment_id"]))["paused"] is False


def test_resuming_wakes_the_dispatcher() -> None:
    assert any("tag.resumed" in t.events for t in table()["pool::dispatch"].triggers if isinstance(t, On))


async def test_one_that_waits_can_be_stopped_and_its_agent_gets_the_turn_back(
    client: httpx.AsyncClient, process: Process
) -> None:
    await submit(client, agent="bob")
    stays, goes = await submit(client, agent="ada"), await submit(client, agent="ada")
    await pause(client)

    await told(client, "/api/experiment/stop", experiment_id=goes)

    after = await submit(client, agent="ada")
    await in_order(client)
    await unpause(client)
    assert await status(client, goes) == "stopped"
    found = [e.experiment_id for e in await waiting(process.lab)]
    assert found == ["mar11-1", stays, after]


# -- what runs


async def test_runs_in_progress_are_stopped_on_demand(client: httpx.AsyncClient, process: Process) -> None:
    await add_gpu(client, "g0")
    await add_gpu(client, "g1")
    e = await running(client, process)
    leased = await submit(client)
    await dispatched(client)
    await submit(client)

    answer = await pause(client, stop_running=True, reason="prices are high")
    again = await pause(client, stop_running=True)

    assert sorted(answer["stopping"]) == sorted(again["stopping"]) == sorted([e.experiment_id, leased])
    assert (answer["waiting"], again["changed"]) == (1, False)
    assert await Experiments(process.lab).renew(e.experiment_id, "g0", e.fence, 60) == "stop"
    found = await asked(client, f"/api/experiment/{leased}")
    assert found["experiment"]["stop_reason"] == "prices are high"


async def test_a_run_that_dies_waits_aside_for_its_next_attempt(
    client: httpx.AsyncClient, process: Process
) -> None:
    await add_gpu(client)
    e = await running(client, process)
    await pause(client)

    await told(client, "/api/pool/give-back", gpu_id=e.gpu_id, fence=e.fence, reason="killed")

    assert await status(client, e.experiment_id) == "queued"
    assert await dispatched(client) == []
    await in_order(client)
    await unpause(client)
    assert await dispatched(client) == [e.experiment_id]
    assert (await begun(process, e.experiment_id)).attempt == 2


async def test_the_only_gpu_does_not_stand_idle_for_what_a_pause_holds_back(
    client: httpx.AsyncClient,
) -> None:
    await add_gpu(client)
    name, own = [await registered(client) for _ in "12"]
    await told(client, "/api/pool/acquire", experiment_id=name)
    await pause(client)

    queued = await told(client, "/api/gpu/train", experiment_id=name)
    await in_order(client)
    refusal = await told(client, "/api/pool/acquire", experiment_id=own)
    verdict = await told(client, "/api/experiment/complete", experiment_id=own, val_bpb=1.0)
    other = await submit(client, "other")
    served = await dispatched(client)
    await told(client, "/api/experiment/stop", experiment_id=other)
    gpu = (await asked(client, "/api/pool/list"))["workers"][0]
    await told(client, "/api/pool/give-back", gpu_id=gpu["gpu_id"], fence=gpu["fence"], reason="stopped")
    await unpause(client)

    assert (queued["status"], refusal["acquired"], verdict["status"]) == ("queued", False, "keep")
    assert "paused" in refusal["reason"]
    assert served == [other]
    assert await dispatched(client) == [name]
    await in_order(client)


# -- what is told


async def test_pausing_twice_is_pausing_once_and_lifting_a_pause_is_not_lifting_an_abort(
    client: httpx.AsyncClient, process: Process
) -> None:
    await submit(client)
    for _ in range(3):
        await crashed(client)

    answers = await asyncio.gather(*(pause(client, reason="r") for _ in range(10)))
    await told(client, "/api/experiment/resume", tag="mar11")
    still = await told(client, "/api/report/summary", tag="mar11")
    resumed = await asyncio.gather(*(unpause(client) for _ in range(10)))

    assert sum(a["changed"] for a in answers) == sum(a["changed"] for a in resumed) == 1
    [paused] = await events_of(process, "tag.paused")
    assert (paused["tag"], paused["reason"], paused["waiting"]) == ("mar11", "r", 1)
    assert still["paused"] is True
    by_crashes, event = await events_of(process, "tag.resumed")
    assert by_crashes["lifted"] == "crashes"
    assert (event["lifted"], event["reason"], event["waiting"]) == ("pause", "r", 1)


async def test_a_pause_is_seen_wherever_one_looks(client: httpx.AsyncClient) -> None:
    await told(client, "/api/experiment/complete", experiment_id=await registered(client), val_bpb=1.0)
    await pause(client, reason="prices are high")

    summary = await told(client, "/api/report/summary", tag="mar11")
    brief = await told(client, "/api/report/brief", tag="mar11")
    suggestion = await told(client, "/api/search/suggest", tag="mar11")
    listed = {tag["name"]: tag for tag in (await asked(client, "/api/report/tags"))["tags"]}
    lab = await asked(client, "/api/lab/status")
    new = await told(client, "/api/experiment/register", **idea())

    assert (summary["paused"], summary["pause_reason"]) == (True, "prices are high")
    for hint in (summary["hint"], brief["next"], suggestion["hint"], listed["mar11"]["hint"], new["hint"]):
        assert "POST /api/tag/unpause" in hint
    assert (listed["mar11"]["paused"], listed["other"]["paused"]) == (True, False)
    assert lab["paused_tags"] == ["mar11"]
    assert any("mar11 is paused" in hint for hint in lab["hints"])


async def test_all_tags_are_paused_and_resumed_at_once(client: httpx.AsyncClient) -> None:
    await told(client, "/api/tag/pause", tag="mar11", reason="its data moves")

    paused = await told(client, "/api/tag/pause-all", reason="the machines move")
    status = (await client.get("/api/lab/status")).json()
    again = await told(client, "/api/tag/pause", tag="mar11")
    resumed = await told(client, "/api/tag/unpause-all")

    assert paused == {"paused": ["other"], "total": 2}
    assert status["paused_tags"] == ["mar11", "other"]
    assert again["reason"] == "its data moves"
    assert resumed == {"resumed": ["mar11", "other"]}
    assert (await client.get("/api/lab/status")).json()["paused_tags"] == []
