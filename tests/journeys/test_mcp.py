"""A coding agent's loop over MCP, with the official client: brief, suggest, submit, wait, query, diff."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.journeys.running import RunningLab, running_lab

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


@asynccontextmanager
async def mcp_client(lab: RunningLab, token: str | None) -> AsyncIterator[Client]:
    """The official client at the lab's address."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        url = f"http://127.0.0.1:{lab.port}/mcp"
        async with Client(streamable_http_client(url, http_client=http)) as client:
            yield client


async def told(client: Client, tool: str, **arguments: Any) -> Mapping[str, Any]:
    """The structured answer of a tool."""
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    found: Mapping[str, Any] = answer.structured_content
    return found


async def played(client: Client, lab: RunningLab, tag: str) -> None:
    """The loop of an agent, twice: the unchanged code, then a better one."""
    tools = {tool.name for tool in (await client.list_tools()).tools}
    assert tools == {"brief", "suggest", "submit", "wait", "report", "query", "diff", "stop"}

    brief = await told(client, "brief", tag=tag, agent="ann")
    assert brief["base_commit_sha"] == lab.base
    assert (await told(client, "suggest", tag=tag))["suggestions"]
    ids = []
    for value in (1.0, 0.9):
        idea = {"hypothesis": "h", "category": "other", "diff_summary": "VALUE", "agent": "ann"}
        delta = {"VALUE": value}
        submitted = await told(client, "submit", tag=tag, commit_sha=lab.base, config_delta=delta, **idea)
        ids.append(submitted["experiment_id"])
        assert "/api/" not in submitted["next"]
        outcome = await told(client, "wait", experiment_id=ids[-1], until="finished")
        while not outcome["finished"]:
            outcome = await told(client, "wait", experiment_id=ids[-1], until="finished")
        assert (outcome["status"], outcome["val_bpb"]) == ("keep", value)

    best = await told(client, "query", what="best", tag=tag)
    assert best["best"]["experiment_id"] == ids[1]
    history = await told(client, "query", what="history", tag=tag)
    assert [e["experiment_id"] for e in history["experiments"]] == ids
    difference = await told(client, "diff", experiment_a=ids[0], experiment_b=ids[1])
    assert difference["delta_bpb"] == pytest.approx(-0.1)


async def test_an_agent_researches_over_mcp_with_a_token_and_without(tmp_path: Path) -> None:
    with running_lab(tmp_path) as lab:
        lab.start()
        lab.setup("open")
        async with mcp_client(lab, None) as client:
            await played(client, lab, "open")

        lab.setup("closed")
        root = lab.post("token/issue", name="root", role="operator")["token"]
        lab.http.headers["Authorization"] = f"Bearer {root}"
        agent = lab.post("token/issue", name="ann", role="agent", tags=["closed"])["token"]
        async with mcp_client(lab, agent) as client:
            await played(client, lab, "closed")
            refused = await client.call_tool("brief", {"tag": "open"})

        assert refused.is_error
        assert "works on closed, not on 'open'" in refused.content[0].text  # type: ignore[union-attr]
        assert lab.stop() == 0
