"""Dimensions of a search, over HTTP: those that agents propose are tried, and all are measured."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from functions.swarm.rules.trial_proposals import CYCLE, LEAST_RESULTS
from functions.swarm.rules.trial_verdicts import JUDGED_AFTER, JUDGED_BY, LEAST_VARIED
from tests.conftest import http_client
from tests.functions.swarm.test_swarm import DIMENSIONS, Swarm
from tests.labs import asked, bearer, dump, events_of, problem, refused, told

PROPOSE = "/api/dimension/propose"
FOLLOW = "/api/dimension/follow-trials"
LISTED = "/dimension_proposals"
WARMUP: dict[str, Any] = {"name": "WARMUP", "dtype": "float", "min": 0.0, "max": 0.5, "default_value": 0.0}
WARMUP |= {"rationale": "the loss jumps in the first steps", "train_py_line": "WARMUP = 0.0"}
Truth = Callable[[Mapping[str, Any]], float]
"""What a run with a config measures."""


def flat(config: Mapping[str, Any]) -> float:
    return 1.0


def helped(config: Mapping[str, Any]) -> float:
    return 0.99 if "WARMUP" in config else 1.0


@pytest.fixture
async def swarm(swarm: Swarm) -> Swarm:
    await swarm.policy(**{"sampler": "thompson", "stopping.rule": "none", "keep_rule": "strict"})
    await swarm.join("w1")
    return swarm


async def searched(swarm: Swarm, runs: int, truth: Truth = flat) -> list[Mapping[str, Any]]:
    """The configs of so many runs, retests aside; after each what follows of its event is done."""
    configs = []
    for _ in range(runs):
        given = await swarm.next("w1")
        await swarm.result("w1", given["run_id"], truth(given["config_delta"]))
        await told(swarm.http, FOLLOW, tag="swarm")
        if "." not in given["run_id"]:  # no retest
            configs.append(given["config_delta"])
    return configs


async def proposed(swarm: Swarm, **changes: Any) -> dict[str, Any]:
    return await told(swarm.http, PROPOSE, tag="swarm", **(WARMUP | changes))


async def listed(swarm: Swarm) -> dict[str, dict[str, Any]]:
    found = await asked(swarm.http, LISTED)
    assert found["count"] == len(found["proposals"])
    return {each["name"]: each for each in found["proposals"]}


async def dimensions(swarm: Swarm) -> dict[str, dict[str, Any]]:
    found = await told(swarm.http, "/api/dimension/list", tag="swarm")
    return {each["name"]: each for each in found["dimensions"]}


async def on_trial(swarm: Swarm) -> None:
    """Let WARMUP be proposed in two stall cycles."""
    await searched(swarm, LEAST_RESULTS)
    assert (await proposed(swarm))["counted"]
    await searched(swarm, CYCLE)
    assert (await proposed(swarm))["counted"]
    await told(swarm.http, FOLLOW, tag="swarm")
    found = (await listed(swarm))["WARMUP"]
    assert found["state"] == "on_trial", found["reason"]


async def test_a_dimension_that_helps_is_proposed_tried_and_promoted(swarm: Swarm, process: Process) -> None:
    await on_trial(swarm)
    canary = (await dimensions(swarm))["WARMUP"]
    assert (canary["is_canary"], canary["canary_prob"], canary["importance"]) == (True, 0.12, 0.08)
    assert canary["default_value"] == 0.0

    configs = await searched(swarm, JUDGED_AFTER, helped)
    while (await listed(swarm))["WARMUP"]["state"] == "on_trial":
        configs += await searched(swarm, 1, helped)

    found, varied = (await listed(swarm))["WARMUP"], sum("WARMUP" in config for config in configs)
    names = ("state", "adopted", "eligible", "signal_count", "varied", "gain")
    assert [found[name] for name in names] == ["promoted", True, False, 2, varied, pytest.approx(0.01)]
    assert varied >= LEAST_VARIED
    assert JUDGED_AFTER <= len(configs) < JUDGED_BY
    free = (await dimensions(swarm))["WARMUP"]
    assert (free["is_canary"], free["canary_prob"]) == (False, None)
    assert all("WARMUP" in config for config in await searched(swarm, 5))
    for kind in ("adopted", "promoted"):
        [event] = await events_of(process, f"dimension.{kind}")
        assert event["name"] == event["subject"] == "WARMUP"
    assert not await events_of(process, "dimension.reverted")


async def test_a_run_whose_script_lacks_the_constant_counts_for_nothing(swarm: Swarm) -> None:
    await on_trial(swarm)
    before = (await asked(swarm.http, "/health"))["experiments"]
    given = await swarm.next("w1")
    while "WARMUP" not in given["config_delta"]:
        await swarm.result("w1", given["run_id"], 1.0)
        before += 1
        given = await swarm.next("w1")

    lacks = {"error": "no such constant: WARMUP"}
    answers = [await swarm.result("w1", given["run_id"], None, **lacks) for _ in range(2)]

    assert [each["total_experiments"] for each in answers] == [before, before]
    assert (await swarm.record(given["run_id"])).status == "lost"
    assert (await swarm.next("w1"))["config_delta"] != given["config_delta"]
    shown = await asked(swarm.http, "/sync/w1")
    [canary] = [each for each in shown["dimensions"] if each["name"] == "WARMUP"]
    assert (canary["is_canary"], canary["default_value"]) == (True, 0.0)


async def test_followers_at_once_adopt_and_remove_once(swarm: Swarm, process: Process) -> None:
    async def followed() -> None:
        await asyncio.gather(*(told(swarm.http, FOLLOW, tag="swarm") for _ in range(8)))

    await searched(swarm, LEAST_RESULTS)
    await asyncio.gather(*(proposed(swarm, name=f"D{n}", train_py_line=None) for n in range(5)))
    await searched(swarm, CYCLE)
    await asyncio.gather(*(proposed(swarm, name=f"D{n}", train_py_line=None) for n in range(5)))
    await followed()

    first = [each for each in (await listed(swarm)).values() if each["adopted"]]
    assert len(first) == 1
    assert len(await events_of(process, "dimension.adopted")) == 1
    before = await dump(process.lab)
    await followed()
    assert await dump(process.lab) == before

    for _ in range(JUDGED_BY):
        given = await swarm.next("w1")
        await swarm.result("w1", given["run_id"], 1.0)
    await followed()

    [removed] = first
    assert [e["name"] for e in await events_of(process, "dimension.reverted")] == [removed["name"]]
    found = await listed(swarm)
    assert {each["state"] for each in found.values() if each["adopted"]} == {"on_trial"}
    assert (found[removed["name"]]["state"], found[removed["name"]]["adopted"]) == ("reverted", False)
    assert "none improved the best" in found[removed["name"]]["reason"]
    assert removed["name"] not in await dimensions(swarm)
    changes = [(e["added"], e["removed"]) for e in await events_of(process, "dimension.defined")][1:3]
    assert (changes[0], changes[1][1]) == (([removed["name"]], []), [removed["name"]])
    again = await proposed(swarm, name=removed["name"], train_py_line=None)
    assert (again["counted"], again["proposal"]["state"]) == (False, "reverted")


async def test_an_agent_proposes_to_its_own_tag_and_a_worker_to_none(process: Process) -> None:
    root = await bearer(process, "ops", "operator")
    agent = await bearer(process, "ada", "agent", tags=["swarm"])
    worker = await bearer(process, "gpu-1", "worker")
    async with http_client(process) as http:
        defined = {"tag": "swarm", "dimensions": DIMENSIONS}
        assert (await http.post("/api/dimension/define", json=defined, headers=root)).status_code == 200
        body = {"tag": "swarm", **WARMUP}

        by_agent = await http.post(PROPOSE, json=body, headers=agent)
        by_operator = await http.post(PROPOSE, json=body, headers=root)

        assert by_agent.json()["proposal"]["source"] == "agent"
        assert by_operator.json()["proposal"]["source"] == "operator"
        assert by_operator.json()["proposal"]["times"] == 2
        problem(await http.post(PROPOSE, json=body | {"tag": "elsewhere"}, headers=agent), 403)
        problem(await http.post(PROPOSE, json=body, headers=worker), 403)


async def test_of_an_unknown_tag_nothing_is_listed_followed_or_proposed(client: httpx.AsyncClient) -> None:
    assert await asked(client, LISTED) == {"count": 0, "proposals": []}
    problem(await client.get(LISTED, params={"tag": "nowhere"}), 404)
    await refused(client, 404, FOLLOW, tag="nowhere")
    await refused(client, 404, PROPOSE, tag="nowhere", **WARMUP)


FEW, ENOUGH = 24, 30


async def measured(swarm: Swarm) -> dict[str, int]:
    results: dict[str, int] = (await told(swarm.http, "/api/dimension/measure"))["results"]
    return results


async def varied(swarm: Swarm, runs: int) -> None:
    """Runs whose value depends on the learning rate alone."""
    for _ in range(runs):
        given = await swarm.next("w1")
        away = abs(math.log10(given["config_delta"]["LR"]) + 3)
        await swarm.result("w1", given["run_id"], 1.0 + 0.1 * away)


async def test_what_matters_is_told_once_enough_is_new(swarm: Swarm, process: Process) -> None:
    await varied(swarm, FEW)
    assert await measured(swarm) == {}
    assert {each["importance"] for each in (await dimensions(swarm)).values()} == {None}
    await varied(swarm, ENOUGH - FEW)
    assert await measured(swarm) == {"swarm": ENOUGH}

    found = await dimensions(swarm)
    assert found["LR"]["importance"] > 0.7
    assert max(each["importance"] for name, each in found.items() if name != "LR") < 0.2
    assert {each["n_samples"] for each in found.values()} == {ENOUGH}
    assert all(0 <= each["interaction"] <= 1 for each in found.values())
    [event] = await events_of(process, "dimension.measured")
    assert (event["results"], event["importance"]["LR"]) == (ENOUGH, found["LR"]["importance"])
    synced = (await swarm.http.get("/sync/w1")).json()["dimensions"]
    assert [d["importance"] for d in synced if d["name"] == "LR"] == [found["LR"]["importance"]]
    await varied(swarm, 9)
    assert await measured(swarm) == {}
    await varied(swarm, 1)
    assert await measured(swarm) == {"swarm": ENOUGH + 10}


async def test_a_tag_without_a_swarm_is_not_measured_and_an_unknown_one_is_told(swarm: Swarm) -> None:
    await told(swarm.http, "/api/experiment/setup", tag="agents")
    assert (await told(swarm.http, "/api/dimension/measure", tag="agents"))["results"] == {}
    assert "nobody" in (await refused(swarm.http, 404, "/api/dimension/measure", tag="nobody"))["detail"]
