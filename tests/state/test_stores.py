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
from tests.labs import add_gpu, curl, dump, idea, open_tag, problem, registered


def lose_answer(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """The script runs, but its first answer never arrives: what a kill or a cut connection looks like."""
    move, lost = Lab.move, list[str]()

    async def cut(lab: Lab, name: str, **named: Any) -> Any:
        answer = await move(lab, name, **named)
        if name == script and not lost:
            lost.append(name)
            raise Unavailable("Redis did not answer in time", hint="try again", retry_after=2.0)
        return answer

    monkeypatch.setattr(Lab, "move", cut)


async def test_an_unanswered_request_frees_its_key_once_redis_answers_again(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state.answers.IN_FLIGHT_TTL_S", 600)  # so that no key is free because of its age
    await open_tag(client)
    body = idea()
    lose_answer(monkeypatch, "commit")

    lost = await curl(client, "/api/experiment/register", body, idempotency_key="k")
    async with asyncio.timeout(60):
        while (again := await curl(client, "/api/experiment/register", body, idempotency_key="k")).is_error:
            assert problem(again, 409)["retry_after"]
            await asyncio.sleep(0.01)

    assert (lost.status_code, again.json()["experiment_id"]) == (503, "mar11-1")


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
    lose_answer(monkeypatch, script)

    lost = await curl(client, path, {"experiment_id": name} | body)
    once = await dump(process.lab)
    again = await curl(client, path, {"experiment_id": name} | body)

    assert lost.status_code == 503
    assert again.status_code in (200, 202)
    assert await dump(process.lab) == once


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
