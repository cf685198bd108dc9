"""report::agents: ideas, keeps, gains and GPU hours of each agent of a tag."""

from __future__ import annotations

import httpx
import pytest

from tests.functions.conftest import TagUnderTest
from tests.labs import crashed, open_tag, registered, told, tried

HOUR = {"training_seconds": 3600.0}


async def test_agents_come_by_their_total_gain(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    await tried(client, 1.0, agent="ann", result=HOUR)
    await tried(client, 0.9, agent="bob", result=HOUR)
    await tried(client, 0.7, agent="ann", result=HOUR)
    await tried(client, 0.8, agent="ann", result=HOUR)
    await tried(client, 0.65, agent="ann", result=HOUR)
    await crashed(client)
    await registered(client, agent="bob")

    answer = await told(client, "/api/report/agents", tag="mar11")

    ann, bob, nobody = answer["agents"]
    assert answer["runs"] == 6
    assert (ann["agent"], ann["ideas"], ann["keeps"], ann["gpu_hours"]) == ("ann", 4, 3, pytest.approx(4.0))
    assert (ann["best_gain"], ann["total_gain"]) == (pytest.approx(0.2), pytest.approx(0.25))
    assert (bob["agent"], bob["ideas"], bob["keeps"], bob["open_runs"]) == ("bob", 1, 1, 1)
    assert bob["last_seen"] > ann["last_seen"]
    assert (nobody["agent"], nobody["crashes"], nobody["keeps"]) == (None, 1, 0)
    assert (nobody["best_gain"], nobody["total_gain"]) == (None, 0)


async def test_luck_and_open_claims_are_no_gains(tag: TagUnderTest) -> None:
    await tag.open()
    await tag.baseline(1.002, 0.998)
    await tag.trained(0.995, agent="ann")
    await tag.measured("mar11-2.2", 1.01)
    await tag.claimed(0.5, agent="bob")

    accounts = {a["agent"]: a for a in (await told(tag.client, "/api/report/agents", tag="mar11"))["agents"]}

    ann, bob = accounts["ann"], accounts["bob"]
    assert (ann["ideas"], ann["keeps"], ann["demoted"], ann["total_gain"]) == (1, 0, 1, 0)
    assert (bob["ideas"], bob["open_claims"], bob["total_gain"], bob["open_runs"]) == (0, 1, 0, 0)
