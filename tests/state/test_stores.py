"""The stores' moves: once each, even where the answer was lost on its way."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from functions.kernel.process.running import ended
from state.client import Lab
from state.errors import Unavailable
from state.experiments import Experiments
from state.leases import GpuLease
from state.pool import Pool
from tests.labs import (
    add_gpu,
    curl,
    dump,
    events_of,
    idea,
    open_tag,
    problem,
    registered,
    running,
    told,
    waiting,
)


class LostAnswer:
    """The script runs, but its answer never arrives: what a kill or a cut connection looks like."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
        self.left = 1

        move = Lab.move

        async def cut(lab: Lab, name: str, **named: Any) -> Any:
            answer = await move(lab, name, **named)
            if name == script and self.left:
                self.left -= 1
                raise Unavailable("Redis did not answer in time", hint="try again", retry_after=2.0)
            return answer

        monkeypatch.setattr(Lab, "move", cut)


@pytest.mark.parametrize("in_body", [True, False], ids=["request_id", "header"])
async def test_a_registration_repeated_after_a_lost_answer_gives_the_first_id(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch, in_body: bool
) -> None:
    await open_tag(client)
    body = idea(diff="+x\n") | ({"request_id": "r1"} if in_body else {})
    headers = {} if in_body else {"idempotency_key": "r1"}
    LostAnswer(monkeypatch, "commit")

    lost = await curl(client, "/api/experiment/register", body, **headers)
    await forget_answers(process)  # the web process that held the key is gone, too
    again = await curl(client, "/api/experiment/register", body, **headers)
    later = await told(client, "/api/experiment/register", **idea())

    assert lost.status_code == 503
    assert lost.headers["retry-after"] == "2"
    assert again.json()["experiment_id"] == "mar11-1"
    assert again.json()["duplicate_of"] is None
    page = await told(client, "/api/experiment/history", tag="mar11")
    assert [e["experiment_id"] for e in page["experiments"]] == ["mar11-1", later["experiment_id"]]


async def test_an_unanswered_request_frees_its_key_once_redis_answers_again(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_tag(client)
    body = idea()
    LostAnswer(monkeypatch, "commit")

    lost = await curl(client, "/api/experiment/register", body, idempotency_key="k")
    async with asyncio.timeout(60):
        while (again := await curl(client, "/api/experiment/register", body, idempotency_key="k")).is_error:
            assert problem(again, 409)["retry_after"]
            await asyncio.sleep(0.01)

    assert lost.status_code == 503
    assert again.json()["experiment_id"] == "mar11-1"


async def forget_answers(process: Process) -> None:
    for key in await dump(process.lab):
        if ":answers:" in key:
            await process.lab.command("DEL", key)


@pytest.mark.parametrize(
    ("script", "path", "body"),
    [
        ("commit", "/api/experiment/complete", {"val_bpb": 0.9}),
        ("commit", "/api/experiment/crash", {"error": "boom"}),
        ("commit", "/api/experiment/stop", {}),
        ("commit", "/api/gpu/train", {}),
        ("lease_gpu", "/api/pool/acquire", {}),
    ],
)
async def test_a_move_repeated_after_a_lost_answer_happens_once(
    client: httpx.AsyncClient,
    process: Process,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    path: str,
    body: dict[str, Any],
) -> None:
    await open_tag(client)
    await add_gpu(client, "g0")
    await add_gpu(client, "g1")
    name = await registered(client)
    LostAnswer(monkeypatch, script)

    lost = await curl(client, path, {"experiment_id": name} | body)
    once = await dump(process.lab)
    again = await curl(client, path, {"experiment_id": name} | body)

    assert lost.status_code == 503
    assert again.status_code in (200, 202)
    assert await dump(process.lab) == once


async def test_an_old_fence_neither_renews_nor_releases(client: httpx.AsyncClient, process: Process) -> None:
    await open_tag(client)
    await add_gpu(client)
    e = await running(client, process)
    experiments, pool = Experiments(process.lab), Pool(process.lab)
    before = await dump(process.lab)

    orders = [
        await experiments.renew(e.experiment_id, "host:gpu0", fence, 60, (1.0, 0.5))
        for fence in (0, e.fence + 1)
    ]
    released = await pool.release("host:gpu0", e.experiment_id, e.fence - 1, proven=True)

    assert orders == ["lost", "lost"]
    assert released == "other"
    assert await dump(process.lab) == before


async def test_a_fence_is_never_given_twice(client: httpx.AsyncClient, process: Process) -> None:
    await open_tag(client)
    for n in range(4):
        await add_gpu(client, f"g{n}")
    experiments, pool = Experiments(process.lab), Pool(process.lab)
    found = [await experiments.get(await registered(client)) for _ in range(4)]

    async def lend(e: Any) -> int:
        lease = await pool.lend(e, ["g0", "g1", "g2", "g3"], lease_s=60, stale_s=60)
        assert isinstance(lease, GpuLease)
        return lease.fence

    fences = await asyncio.gather(*map(lend, found))

    assert sorted(fences) == [1, 2, 3, 4]
    assert len({e["gpu_id"] for e in await events_of(process, "gpu.leased")}) == 4


async def test_agents_take_turns_in_the_queue_and_priority_goes_first(
    client: httpx.AsyncClient, process: Process
) -> None:
    await open_tag(client)
    for agent, priority in [("a", 0), ("a", 0), ("a", 0), ("b", 0), ("b", 0), ("c", 1)]:
        await told(client, "/api/experiment/submit", **idea(agent=agent, priority=priority))

    found = await waiting(process.lab)

    assert [(e.agent, e.number) for e in found] == [
        ("c", 6),
        ("a", 1),
        ("b", 4),
        ("a", 2),
        ("b", 5),
        ("a", 3),
    ]


async def test_a_message_that_is_none_of_ours_does_not_end_the_wake_ups(process: Process) -> None:
    async def publish(message: str) -> int:
        return int(await process.lab.command("PUBLISH", process.lab.channel("test"), message))

    with process.wakeups.subject("mar11-1") as woken:
        listeners = 0
        while not listeners:
            listeners = await publish("no json")
            await asyncio.sleep(0.01)
        for message in ("[]", "{}", '{"subject": "mar11-1"}'):
            await publish(message)
        await asyncio.wait_for(woken.wait(), 30)


async def test_a_task_that_swallows_its_cancellation_is_ended_all_the_same() -> None:
    swallowed = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            swallowed.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)

    await ended(task)

    assert swallowed.is_set()
    assert task.cancelled()
