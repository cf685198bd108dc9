"""A paused tag: nothing of it begins, nothing of it is lost, and nobody else waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from functions.kernel.contract import On
from functions.kernel.table import table
from tests.functions.conftest import TagUnderTest
from tests.labs import add_gpu, begun, crashed, dump, idea, open_tag, registered, running, waiting


@pytest.fixture(autouse=True)
async def tags(tag: TagUnderTest) -> None:
    for name in ("mar11", "other"):
        await open_tag(tag.client, name)


async def pause(tag: TagUnderTest, **more: Any) -> dict[str, Any]:
    return await tag.told("/api/tag/pause", tag="mar11", **more)


async def unpause(tag: TagUnderTest) -> dict[str, Any]:
    return await tag.told("/api/tag/unpause", tag="mar11")


async def status(tag: TagUnderTest, name: str) -> str:
    return str((await tag.experiment(name))["status"])


async def stopped(tag: TagUnderTest, name: str) -> None:
    """The run on the one GPU is stopped, and the GPU is idle."""
    await tag.told("/api/experiment/stop", experiment_id=name)
    gpu = (await tag.asked("/api/pool/list"))["workers"][0]
    await tag.told("/api/pool/give-back", gpu_id=gpu["gpu_id"], fence=gpu["fence"], reason="stopped")


async def queued(tag: TagUnderTest) -> list[str]:
    """The experiments of the common queue."""
    return [e.experiment_id for e in await waiting(tag.lab)]


async def test_everything_is_back_in_its_place_afterwards(tag: TagUnderTest) -> None:
    await add_gpu(tag.client, "g0")
    await add_gpu(tag.client, "g1")
    for nth in range(60):
        pin = [{}, {}, {"gpu_id": "g0"}, {"gpu_id": "g1"}][nth % 4]
        agent, priority = f"agent{nth % 3}", nth % 2
        await tag.submit(tag="mar11" if nth % 5 else "other", agent=agent, priority=priority, **pin)
    queues = [tag.lab.keys.queue(gpu) for gpu in (None, "g0", "g1")]
    reads = [("ZRANGE", queue, 0, -1, "WITHSCORES") for queue in queues]
    before = await tag.lab.pipeline(reads)

    await pause(tag)
    meanwhile = await tag.lab.pipeline(reads)
    assert await tag.faults() == []
    answer = await unpause(tag)

    assert not any(member.startswith("mar11-") for queue in meanwhile for member in queue)
    assert await tag.lab.pipeline(reads) == before
    assert (answer["paused"], answer["changed"], answer["waiting"]) == (False, True, 48)
    assert not [key for key in await dump(tag.lab) if ":parked:" in key]


async def test_an_agents_own_stay_in_order_though_the_queue_ran_empty_meanwhile(tag: TagUnderTest) -> None:
    before = [await tag.submit(agent="ada") for _ in range(3)]
    await tag.submit(tag="other", agent="bob")
    await pause(tag)
    await add_gpu(tag.client)
    await tag.leased()  # bob's: the common queue is empty now

    after = await tag.submit(agent="ada")
    await unpause(tag)

    assert await queued(tag) == [*before, after]


async def test_what_is_submitted_to_a_paused_tag_waits_and_others_are_served(tag: TagUnderTest) -> None:
    await add_gpu(tag.client)
    held = [await tag.submit() for _ in range(3)]
    paused = await pause(tag, reason="prices are high")

    answer = await tag.told("/api/experiment/submit", **idea())
    other = await tag.submit(tag="other")

    assert (paused["waiting"], paused["reason"], paused["changed"]) == (3, "prices are high", True)
    assert (answer["status"], answer["queue"]["position"]) == ("queued", 4)
    summary, brief = await tag.summary(), await tag.told("/api/report/brief", tag="mar11")
    suggestion = await tag.told("/api/search/suggest", tag="mar11")
    listed = {tag["name"]: tag for tag in (await tag.asked("/api/report/tags"))["tags"]}
    for hint in (summary["hint"], brief["next"], suggestion["hint"], listed["mar11"]["hint"], answer["hint"]):
        assert "paused (prices are high)" in hint
        assert "POST /api/tag/unpause" in hint
    assert (listed["mar11"]["paused"], listed["other"]["paused"]) == (True, False)
    assert any("mar11 is paused" in hint for hint in (await tag.asked("/api/lab/status"))["hints"])
    assert "paused" in answer["next"]
    assert await tag.leased() == [other]
    assert await status(tag, held[0]) == "queued"
    waited = await tag.asked(f"/api/experiment/{answer['experiment_id']}/wait?timeout=0")
    assert waited["paused"] is True
    assert "paused" in waited["next"]
    assert await tag.faults() == []
    await unpause(tag)
    await stopped(tag, other)
    assert await tag.leased() == held[:1]
    assert (await tag.asked(f"/api/experiment/{answer['experiment_id']}/wait?timeout=0"))["paused"] is False


def test_resuming_wakes_the_dispatcher() -> None:
    assert any("tag.resumed" in t.events for t in table()["pool::dispatch"].triggers if isinstance(t, On))


async def test_one_that_waits_can_be_stopped_and_its_agent_gets_the_turn_back(tag: TagUnderTest) -> None:
    await tag.submit(agent="bob")
    stays, goes = await tag.submit(agent="ada"), await tag.submit(agent="ada")
    await pause(tag)

    await tag.told("/api/experiment/stop", experiment_id=goes)

    after = await tag.submit(agent="ada")
    assert await tag.faults() == []
    await unpause(tag)
    assert await status(tag, goes) == "stopped"
    assert await queued(tag) == ["mar11-1", stays, after]


async def test_runs_in_progress_are_stopped_on_demand(tag: TagUnderTest) -> None:
    await add_gpu(tag.client, "g0")
    await add_gpu(tag.client, "g1")
    e = await running(tag.client, tag.process)
    leased = await tag.submit()
    await tag.leased()
    await tag.submit()

    answer = await pause(tag, stop_running=True, reason="prices are high")
    again = await pause(tag, stop_running=True)

    assert sorted(answer["stopping"]) == sorted(again["stopping"]) == sorted([e.experiment_id, leased])
    assert (answer["waiting"], again["changed"]) == (1, False)
    assert await tag.experiments.renew(e.experiment_id, "g0", e.fence, 60) == "stop"
    found = await tag.asked(f"/api/experiment/{leased}")
    assert found["experiment"]["stop_reason"] == "prices are high"


async def test_a_run_that_dies_waits_aside_for_its_next_attempt(tag: TagUnderTest) -> None:
    await add_gpu(tag.client)
    e = await running(tag.client, tag.process)
    await pause(tag)

    await tag.told("/api/pool/give-back", gpu_id=e.gpu_id, fence=e.fence, reason="killed")

    assert await status(tag, e.experiment_id) == "queued"
    assert await tag.leased() == []
    assert await tag.faults() == []
    await unpause(tag)
    assert await tag.leased() == [e.experiment_id]
    assert (await begun(tag.process, e.experiment_id)).attempt == 2


async def test_the_only_gpu_does_not_stand_idle_for_what_a_pause_holds_back(tag: TagUnderTest) -> None:
    await add_gpu(tag.client)
    name, own = [await registered(tag.client) for _ in "12"]
    await tag.told("/api/pool/acquire", experiment_id=name)
    await pause(tag)

    queued = await tag.told("/api/gpu/train", experiment_id=name)
    assert await tag.faults() == []
    refusal = await tag.told("/api/pool/acquire", experiment_id=own)
    verdict = await tag.told("/api/experiment/complete", experiment_id=own, val_bpb=1.0)
    other = await tag.submit(tag="other")
    served = await tag.leased()
    await stopped(tag, other)
    await unpause(tag)

    assert (queued["status"], refusal["acquired"], verdict["status"]) == ("queued", False, "keep")
    assert "paused" in refusal["reason"]
    assert served == [other]
    assert await tag.leased() == [name]


async def test_pausing_twice_is_pausing_once_and_lifting_a_pause_lifts_no_abort(tag: TagUnderTest) -> None:
    await tag.submit()
    for _ in range(3):
        await crashed(tag.client)

    answers = await asyncio.gather(*(pause(tag, reason="r") for _ in range(10)))
    await tag.told("/api/experiment/resume", tag="mar11")
    still = await tag.told("/api/report/summary", tag="mar11")
    resumed = await asyncio.gather(*(unpause(tag) for _ in range(10)))

    assert sum(a["changed"] for a in answers) == sum(a["changed"] for a in resumed) == 1
    [paused] = await tag.events("tag.paused")
    assert (paused["tag"], paused["reason"], paused["waiting"]) == ("mar11", "r", 1)
    assert still["paused"] is True
    by_crashes, event = await tag.events("tag.resumed")
    assert by_crashes["lifted"] == "crashes"
    assert (event["lifted"], event["reason"], event["waiting"]) == ("pause", "r", 1)


async def test_all_tags_are_paused_and_resumed_at_once(tag: TagUnderTest) -> None:
    await tag.told("/api/tag/pause", tag="mar11", reason="its data moves")

    paused = await tag.told("/api/tag/pause-all", reason="the machines move")
    status = await tag.asked("/api/lab/status")
    again = await tag.told("/api/tag/pause", tag="mar11")
    resumed = await tag.told("/api/tag/unpause-all")

    assert paused == {"paused": ["other"], "total": 2}
    assert status["paused_tags"] == ["mar11", "other"]
    assert again["reason"] == "its data moves"
    assert resumed == {"resumed": ["mar11", "other"]}
    assert (await tag.asked("/api/lab/status"))["paused_tags"] == []
