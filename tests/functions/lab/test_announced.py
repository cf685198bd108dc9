"""Agents that are announced: seen in lab::status while they are heard of, and nowhere else."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from functions.kernel.process.lifecycle import Process
from functions.lab.status import MOST_AGENTS
from state.presence import Presence
from tests.labs import asked, events_of, open_tag, refused, told

ANNOUNCE = "/api/agent/announce"


async def seen(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    agents: list[dict[str, Any]] = (await asked(client, "/api/lab/status"))["agents"]
    return agents


async def test_an_agent_is_shown_until_it_has_ended(client: httpx.AsyncClient) -> None:
    await told(client, ANNOUNCE, tag="mar11", agent="bob", state="waiting", starts=2)
    await told(
        client, ANNOUNCE, tag="mar11", agent="ada", state="working", experiments=3, tokens=1000, cost_usd=0.5
    )

    ada, bob = await seen(client)
    assert (ada["agent"], ada["state"], ada["tokens"], ada["cost_usd"]) == ("ada", "working", 1000, 0.5)
    assert (bob["agent"], bob["starts"], bob["tokens"], bob["cost_usd"]) == ("bob", 2, None, None)

    await told(client, ANNOUNCE, tag="mar11", agent="ada", state="ended")
    assert [a["agent"] for a in await seen(client)] == ["bob"]


async def test_no_flood_of_agents_is_remembered(client: httpx.AsyncClient, process: Process) -> None:
    presence = Presence(process.lab)
    for nth in range(MOST_AGENTS):
        await presence.announce(f"agent@/mar11/a{nth}", {"kind": "agent"})
    document = await refused(client, 409, ANNOUNCE, tag="mar11", agent="one-more", state="working")
    assert f"{MOST_AGENTS} agents are announced already" in document["detail"]
    await told(client, ANNOUNCE, tag="mar11", agent="a7", state="working")


LIMIT = {"since": 1795755600, "until": 1795759200, "said": "usage limit reached, resets 3am"}


async def limited(client: httpx.AsyncClient, agent: str = "ada", **limit: Any) -> None:
    await told(client, ANNOUNCE, tag="mar11", agent=agent, state="limited", limit={**LIMIT, **limit})


async def test_a_usage_limit_is_one_event_a_minute_and_shown(
    client: httpx.AsyncClient, process: Process
) -> None:
    await limited(client)  # there is no such tag yet
    await open_tag(client)
    await asyncio.gather(*(limited(client) for _ in range(3)))
    for since in (1, 2, 3):
        await limited(client, since=since)
    await told(client, ANNOUNCE, tag="mar11", agent="bob", state="working")

    [event] = await events_of(process, "agent.limited")
    assert (event["until"], event["said"]) == ("2026-11-27T06:00:00.000Z", LIMIT["said"])
    ada, _ = await seen(client)
    assert (ada["state"], ada["limit"], ada["until"]) == ("limited", LIMIT["said"], event["until"])
    night = await told(client, "/api/report/night", tag="mar11")
    assert [(limit["agent"], limit["times"]) for limit in night["limits"]] == [("ada", 1)]
    assert "| ada | 1 | 2026-11-27T05:00:00.000Z | 2026-11-27T06:00:00.000Z |" in night["markdown"]
    assert "`usage limit reached, resets 3am`" in night["markdown"]
