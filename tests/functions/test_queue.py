"""The wait queue's order: priority, then fair shares between agents, then first come first served."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from functions.process import Process
from state.experiments import Experiments


async def submit(client: httpx.AsyncClient, agent: str, nth: int, **more: Any) -> str:
    body = {
        "tag": "mar11",
        "hypothesis": "h",
        "category": "other",
        "commit_sha": f"{agent}{nth}",
        "diff_summary": "d",
        "agent": agent,
    }
    answer = await client.post("/api/experiment/submit", json=body | more)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["experiment_id"])


@pytest.fixture(autouse=True)
async def tag(client: httpx.AsyncClient) -> None:
    await client.post("/api/experiment/setup", json={"tag": "mar11"})


async def order(process: Process) -> list[str]:
    return [str(e.commit_sha) for e in await Experiments(process.lab).waiting()]


async def test_agents_take_turns_and_each_one_s_own_stay_in_order(
    client: httpx.AsyncClient, process: Process
) -> None:
    for nth in range(3):
        await submit(client, "ada", nth)
    await submit(client, "bob", 0)
    await submit(client, "bob", 1)

    assert await order(process) == ["ada0", "bob0", "ada1", "bob1", "ada2"]


async def test_an_agent_that_comes_late_does_not_have_to_wait_for_rounds_that_are_over(
    client: httpx.AsyncClient, process: Process
) -> None:
    for nth in range(4):
        await submit(client, "ada", nth)
    await client.post(
        "/api/pool/register", json={"gpu_id": "h:0", "gpu_index": 0, "gpu_name": "x", "vram_mb": 1}
    )
    for nth in range(2):
        await client.post("/api/pool/dispatch", json={})
        await client.post("/api/pool/release", json={"gpu_id": "h:0", "experiment_id": f"mar11-{nth + 1}"})
    await submit(client, "bob", 0)

    assert await order(process) == ["bob0", "ada2", "ada3"]


async def test_a_higher_priority_goes_first(client: httpx.AsyncClient, process: Process) -> None:
    await submit(client, "ada", 0)
    await submit(client, "ada", 1, priority=7)
    await submit(client, "ada", 2, priority=1)

    assert await order(process) == ["ada1", "ada2", "ada0"]


async def test_the_place_in_the_queue_is_told_with_the_way_to_start_a_worker(
    client: httpx.AsyncClient,
) -> None:
    await submit(client, "ada", 0)
    second = await submit(client, "ada", 1)

    answer = (await client.get(f"/api/experiment/{second}/wait?timeout=0")).json()

    assert answer["queue"] == {"position": 2, "workers": 0}
    assert "./nightjar worker" in answer["next"]
