"""A swarm's dimensions are measured as its results come in: how much each matters, by itself and with others."""

from __future__ import annotations

import math
from typing import Any

import pytest

from functions.kernel.process.lifecycle import Process
from tests.functions.swarm.test_swarm import Swarm
from tests.labs import events_of, refused, told

FEW, ENOUGH = 24, 30


@pytest.fixture
async def swarm(swarm: Swarm) -> Swarm:
    await swarm.policy(**{"sampler": "thompson", "stopping.rule": "none", "keep_rule": "strict"})
    await swarm.join("w1")
    return swarm


async def measured(swarm: Swarm) -> dict[str, int]:
    results: dict[str, int] = (await told(swarm.http, "/api/dimension/measure"))["results"]
    return results


async def shares(swarm: Swarm) -> dict[str, dict[str, Any]]:
    listed = await told(swarm.http, "/api/dimension/list", tag="swarm")
    return {each["name"]: each for each in listed["dimensions"]}


async def searched(swarm: Swarm, runs: int) -> None:
    """Runs whose value depends on the learning rate alone."""
    for _ in range(runs):
        given = await swarm.next("w1")
        away = abs(math.log10(given["config_delta"]["LR"]) + 3)
        await swarm.result("w1", given["run_id"], 1.0 + 0.1 * away)


async def test_what_matters_is_told_once_enough_is_new(swarm: Swarm, process: Process) -> None:
    await searched(swarm, FEW)
    assert await measured(swarm) == {}
    assert {each["importance"] for each in (await shares(swarm)).values()} == {None}
    await searched(swarm, ENOUGH - FEW)
    assert await measured(swarm) == {"swarm": ENOUGH}

    found = await shares(swarm)
    assert found["LR"]["importance"] > 0.7
    assert max(each["importance"] for name, each in found.items() if name != "LR") < 0.2
    assert {each["n_samples"] for each in found.values()} == {ENOUGH}
    assert all(0 <= each["interaction"] <= 1 for each in found.values())
    [event] = await events_of(process, "dimension.measured")
    assert (event["results"], event["importance"]["LR"]) == (ENOUGH, found["LR"]["importance"])
    synced = (await swarm.http.get("/sync/w1")).json()["dimensions"]
    assert [d["importance"] for d in synced if d["name"] == "LR"] == [found["LR"]["importance"]]
    await searched(swarm, 9)
    assert await measured(swarm) == {}
    await searched(swarm, 1)
    assert await measured(swarm) == {"swarm": ENOUGH + 10}


async def test_a_tag_without_a_swarm_is_not_measured_and_an_unknown_one_is_told(swarm: Swarm) -> None:
    await told(swarm.http, "/api/experiment/setup", tag="agents")
    assert (await told(swarm.http, "/api/dimension/measure", tag="agents"))["results"] == {}
    assert "nobody" in (await refused(swarm.http, 404, "/api/dimension/measure", tag="nobody"))["detail"]
