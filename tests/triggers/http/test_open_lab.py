"""A lab is open until its first operator's token; a token that is shown there counts, right or wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest

from functions.process.lifecycle import Process
from state.tokens import Issued
from tests.conftest import http_client, served_client
from tests.labs import bearer, joined, problem
from triggers.http.identity import COOKIE, still_admitted

UNKNOWN = "nj_aaaaaaaaaa_" + "A" * 43
WRONG: list[Mapping[str, str]] = [
    {"authorization": f"Bearer {UNKNOWN}"},
    {"authorization": "Bearer"},
    {"authorization": "Basic bWU6eA=="},
    {"x-worker-token": UNKNOWN},
    {"cookie": f"{COOKIE}={'A' * 43}"},
]
TOOLS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.fixture
async def wes(process: Process) -> Issued:
    """The token of a worker who joined the open lab."""
    return await joined(process, "wes")


@pytest.fixture
async def http(process: Process, wes: Issued) -> AsyncIterator[httpx.AsyncClient]:
    async with http_client(process) as found:
        yield found


def by(token: Issued) -> dict[str, str]:
    return {"x-worker-token": token.text}


async def whoami(http: httpx.AsyncClient, headers: Mapping[str, str]) -> Any:
    return (await http.get("/api/token/whoami", headers=dict(headers))).json()


async def test_a_worker_s_token_leaves_the_lab_open_and_is_its_bearer_s(
    http: httpx.AsyncClient, wes: Issued
) -> None:
    assert (await whoami(http, {}))["role"] == "operator"
    told = await whoami(http, by(wes))
    assert (told["name"], told["role"]) == ("wes", "worker")
    problem(await http.post("/api/lab/audit", json={}, headers=by(wes)), 403)
    assert (await http.post("/api/lab/audit", json={})).json()["violations"] == []


async def test_an_operator_s_token_closes_the_lab_and_workers_go_on(
    process: Process, http: httpx.AsyncClient, wes: Issued
) -> None:
    olga = (await process.tokens.issue(name="olga", role="operator", issued_by="local")).text

    problem(await http.get("/api/token/whoami"), 401)
    assert (await whoami(http, by(wes)))["name"] == "wes"
    assert (await whoami(http, {"authorization": f"Bearer {olga}"}))["role"] == "operator"


async def test_a_wrong_token_is_refused_at_every_door(
    process: Process, http: httpx.AsyncClient, wes: Issued
) -> None:
    await process.tokens.revoke(wes.token)

    for headers in (*WRONG, by(wes)):
        for path in ("/api/lab/status", "/api/events?since=0", "/metrics", "/api/session"):
            problem(await http.get(path, headers=dict(headers)), 401)
        shown = {"x-nightjar-page": "1", **headers}
        problem(await http.post("/api/experiment/setup", json={"tag": "t"}, headers=shown), 401)
        assert (await http.post("/mcp", json=TOOLS, headers=shown)).status_code == 401


async def test_what_a_proxy_forwards_needs_a_token_and_a_right_one_suffices(
    http: httpx.AsyncClient, wes: Issued
) -> None:
    forwarded = {"x-forwarded-for": "10.1.2.3"}

    problem(await http.get("/api/token/whoami", headers=forwarded), 401)
    assert (await whoami(http, forwarded | by(wes)))["name"] == "wes"


async def test_mcp_takes_a_worker_for_a_worker(http: httpx.AsyncClient, wes: Issued) -> None:
    accept = {"accept": "application/json"}
    mine, all_ = [
        {tool["name"] for tool in (await http.post("/mcp", json=TOOLS, headers=h)).json()["result"]["tools"]}
        for h in (accept | by(wes), accept)
    ]

    assert mine < all_


async def test_who_waits_is_let_on_while_the_token_holds_and_without_one_while_the_lab_is_open(
    process: Process, wes: Issued
) -> None:
    _, proof = await process.tokens.recognise(wes.text)

    assert await still_admitted(process.tokens, [None, proof]) == {None, proof}
    await bearer(process, "olga", "operator")
    assert await still_admitted(process.tokens, [None, proof]) == {proof}
    await process.tokens.revoke(wes.token)
    assert await still_admitted(process.tokens, [None, proof]) == set()


async def test_an_event_stream_in_an_open_lab_is_its_bearer_s(process: Process, wes: Issued) -> None:
    async with served_client(process) as http:
        mine = await http.get("/api/events?since=0", headers=by(wes))
        async with http.stream("GET", "/api/events?since=0") as local:
            assert local.status_code == 200

    problem(mine, 403)  # a worker reads no events
