"""gpu::history: the load of a GPU over the last hours, in one bounded key."""

from __future__ import annotations

import json
from typing import Any

import httpx

from functions.kernel.process.lifecycle import Process
from state.pool import HISTORY_EVERY_S, HISTORY_S
from tests.labs import add_gpu, refused, told

GPU = "host:gpu0"
SAMPLE = {"utilization_percent": 97.4, "memory_used_mb": 4096.6, "memory_total_mb": 81559}
SAMPLE["temperature_c"] = 61


async def beat(client: httpx.AsyncClient, **health: Any) -> None:
    await told(client, "/api/pool/heartbeat", gpu_id=GPU, health={**SAMPLE, **health})


async def history(client: httpx.AsyncClient, **request: Any) -> dict[str, Any]:
    return await told(client, "/api/gpu/history", gpu_id=GPU, **request)


async def an_older_sample(process: Process, seconds: float) -> None:
    """As if the newest sample were so old."""
    lab, key = process.lab, process.lab.keys.gpu_history(GPU)
    _, *values = json.loads(await lab.command("LINDEX", key, -1))
    await lab.command("LSET", key, -1, json.dumps([int(await lab.now() - seconds), *values]))


async def test_a_sample_is_kept_every_two_minutes_and_the_hours_asked_for_are_answered(
    client: httpx.AsyncClient, process: Process
) -> None:
    await add_gpu(client, GPU)
    await beat(client)
    await beat(client, utilization_percent=1)
    await an_older_sample(process, 7300)
    await beat(client, utilization_percent=0, temperature_c=None)

    found, short = await history(client, hours=3), await history(client, hours=2)

    assert (found["utilization_percent"], found["memory_used_mb"]) == ([97.4, 0], [4096.6, 4096.6])
    assert found["temperature_c"] == [61, None]
    assert (short["utilization_percent"], short["memory_total_mb"]) == ([0], 81559)
    assert found["at"][1] - found["at"][0] >= found["every_s"] == HISTORY_EVERY_S
    await refused(client, 422, "/api/gpu/history", gpu_id=GPU, hours=25)


async def test_a_history_is_bounded_and_goes_with_a_gpu(client: httpx.AsyncClient, process: Process) -> None:
    lab, key = process.lab, process.lab.keys.gpu_history(GPU)
    await add_gpu(client, GPU, environment=["python==3.11.9", "torch==2.4.1"])
    empty = await history(client)
    assert empty["environment"] == ["python==3.11.9", "torch==2.4.1"]
    assert (empty["at"], empty["temperature_c"], empty["memory_total_mb"]) == ([], [], None)
    await lab.command("RPUSH", key, *(f"[{n},1,2,3]" for n in range(2000)))

    await beat(client)

    assert await lab.command("LLEN", key) == HISTORY_S // HISTORY_EVERY_S
    await told(client, "/api/pool/deregister", gpu_id=GPU)
    assert await lab.command("EXISTS", key, lab.keys("environments")) == 0
    await refused(client, 404, "/api/gpu/history", gpu_id=GPU)
