"""Who is let in, to what, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process, opened
from state.private import read_key
from state.records import Role
from state.settings import Settings
from state.tokens import Tokens
from tests.conftest import http_client, served_client
from tests.labs import (
    add_gpu,
    bearer,
    curl,
    dump,
    eventually,
    idea,
    open_tag,
    problem,
    refused,
    registered,
    told,
)


@pytest.fixture
async def http(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    """HTTP by the operator's key, until a test lets it be somebody else."""
    async with http_client(process) as found:
        yield found


async def as_(process: Process, http: httpx.AsyncClient, name: str, role: Role, **more: Any) -> None:
    """Let this client be somebody."""
    http.headers.update(await bearer(process, name, role, **more))


async def test_a_program_without_a_token_is_local_and_the_key_is_the_operator_s(
    local: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    answers = [(await http.get("/api/token/whoami")).json() for http in (local, operator)]

    assert answers == [
        {"name": "local", "role": "local", "tags": None, "token_id": None},
        {"name": "operator", "role": "operator", "tags": None, "token_id": None},
    ]


async def test_the_key_opens_a_closed_lab_and_no_other_lab(process: Process, settings: Settings) -> None:
    await bearer(process, "me", "operator")
    elsewhere = settings.model_copy(update={"lab": f"{settings.lab}b"})

    async with http_client(process) as http:
        assert (await http.get("/api/token/whoami")).json()["name"] == "operator"
    async with opened("web", elsewhere) as other, http_client(other, by_key=False) as http:
        shown = {"authorization": f"Bearer {read_key(settings)}"}
        problem(await http.get("/api/token/whoami", headers=shown), 401)


async def test_the_key_stands_in_no_redis_key(process: Process, operator: httpx.AsyncClient) -> None:
    key = read_key(process.settings) or ""
    await open_tag(operator)
    for path in ("/api/event/ticket", "/api/token/sign-in", "/api/token/list", "/api/lab/status"):
        answer = await (operator.get(path) if path.endswith("status") else operator.post(path, json={}))
        assert key[-43:] not in answer.text
    async with http_client(process, by_key=False) as browser:
        await browser.post("/api/session", json={"token": key})

    assert key[-43:] not in str(await dump(process.lab, without=frozenset()))


@pytest.mark.parametrize(
    "name", ["forwarded", "via", "x-forwarded-for", "x-forwarded-proto", "x-real-ip", "x-client-ip"]
)
async def test_without_tokens_nobody_comes_through_a_proxy(local: httpx.AsyncClient, name: str) -> None:
    document = problem(await local.get("/api/lab/status", headers={name: "10.1.2.3"}), 401)

    assert "token issue" in document["hint"]


async def test_a_body_of_a_caller_who_may_not_is_never_read(
    process: Process, http: httpx.AsyncClient
) -> None:
    await as_(process, http, "v", "viewer")

    document = problem(await http.post("/api/experiment/register", content=b"no json"), 403)

    assert "agent" in document["detail"]


@pytest.mark.parametrize(
    ("policy", "largest", "allowed"),
    [
        ({"budgets.base_s": 86400}, 660, {"budgets.base_s": 60, "budgets.max_timeout_s": 660}),
        ({"budgets.max_timeout_s": 7 * 86400}, 660, {"budgets.max_timeout_s": 660}),
        ({"budgets.overrun": 1.5}, 1.25, {"budgets.overrun": 1.1}),
        (
            {"stopping.rule": "stochastic", "budgets.extend_s": 121},
            120,
            {"stopping.rule": "stochastic", "budgets.extend_s": 120},
        ),
    ],
    ids=["budget", "time limit", "overrun", "extension"],
)
async def test_an_agent_opens_no_tag_whose_runs_may_take_longer_than_any_other_s(
    process: Process, http: httpx.AsyncClient, policy: dict[str, Any], largest: float, allowed: dict[str, Any]
) -> None:
    ann, olga = await bearer(process, "ann", "agent"), await bearer(process, "olga", "operator")
    http.headers.update(ann)

    document = await refused(http, 403, "/api/experiment/setup", tag="long", policy=policy)

    assert document["largest"] == largest
    assert [*policy][-1] in document["hint"]
    await open_tag(http, "short", policy=allowed)
    http.headers.update(olga)
    await open_tag(http, "long", policy=policy)


async def test_the_same_idempotency_key_of_another_caller_is_another_key(
    process: Process, http: httpx.AsyncClient
) -> None:
    await open_tag(http)
    body, key = idea(), {"idempotency-key": "k"}
    answers = []
    for name in ("ann", "bob"):
        headers = await bearer(process, name, "agent") | key
        answers += [await http.post("/api/experiment/register", json=body, headers=headers) for _ in "12"]

    ids = [a.json()["experiment_id"] for a in answers]

    assert ids == ["mar11-1", "mar11-1", "mar11-2", "mar11-2"]
    assert [a.headers.get("idempotent-replayed") for a in answers] == [None, "true", None, "true"]


async def test_who_asks_too_often_is_told_when_to_come_back(process: Process) -> None:
    slow = process.settings.model_copy(update={"rate_per_s": 0.01})
    reads, looks, talks = [await bearer(process, name, "viewer") for name in ("reads", "looks", "talks")]
    swarm = await process.tokens.issue(name="swarm", role="worker", kind="enroll", uses=9, issued_by="me")
    lists = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with opened("web", slow) as hurried, http_client(hurried) as http:
        answers = [
            [
                await http.get("/api/report/tags", headers=reads),
                await http.get("/health", headers=looks),  # open to anyone
                await http.post("/mcp", json=lists, headers=talks | {"accept": "application/json"}),
                await http.post("/api/token/enroll", json={"enroll_token": swarm.text, "name": f"w{nth}"}),
            ]
            for nth in range(3)
        ]

    for first, *others in zip(*answers, strict=True):
        assert first.is_success, first.text
        for answer in others:
            assert answer.status_code == 429, answer.request.url
            assert 90 <= int(answer.headers["retry-after"]) <= 100


async def test_an_enroll_token_opens_nothing_but_its_door(process: Process, http: httpx.AsyncClient) -> None:
    await bearer(process, "me", "operator")
    issued = await process.tokens.issue(name="swarm", role="worker", kind="enroll", uses=1, issued_by="me")

    problem(await http.get("/api/lab/status", headers={"authorization": f"Bearer {issued.text}"}), 403)
    problem(await http.post("/api/session", json={"token": issued.text}), 403)
    joined = await told(http, "/api/token/enroll", enroll_token=issued.text, name="w1")
    again = await refused(http, 401, "/api/token/enroll", enroll_token=issued.text, name="w2")

    http.headers["authorization"] = f"Bearer {joined['token']}"
    assert (await http.get("/api/token/whoami")).json()["role"] == "worker"
    await add_gpu(http, "w1:gpu0")
    await refused(http, 403, "/api/report/summary", tag="t")
    assert "used up" in again["detail"]


async def test_a_stranger_s_body_is_short(http: httpx.AsyncClient) -> None:
    body = {"enroll_token": "x", "name": "y" * 5000}

    problem(await http.post("/api/token/enroll", json=body), 413)


async def test_a_wait_ends_with_its_token(process: Process, http: httpx.AsyncClient) -> None:
    await open_tag(http)
    await as_(process, http, "ann", "agent")
    waited_for = await registered(http)
    asking = [
        asyncio.create_task(http.get(f"/api/experiment/{waited_for}/wait?timeout=50")),
        asyncio.create_task(curl(http, "/api/pool/acquire", {"experiment_id": waited_for, "wait": 50})),
    ]
    await asyncio.sleep(0.2)

    await process.tokens.revoke((await process.tokens.all())[-1])

    for answer in await asyncio.wait_for(asyncio.gather(*asking), 30):
        assert "revoked" in problem(answer, 401)["detail"]


async def test_rotating_one_s_own_token_needs_no_operator(process: Process, http: httpx.AsyncClient) -> None:
    await as_(process, http, "w", "worker")
    (root, _) = await process.tokens.all()

    await refused(http, 403, "/api/token/rotate", id=root.id)
    rotated = await told(http, "/api/token/rotate", overlap_s=0)

    problem(await http.get("/api/token/whoami"), 401)
    http.headers["authorization"] = f"Bearer {rotated['token']}"
    assert (await http.get("/api/token/whoami")).json()["name"] == "w"


async def test_a_secret_that_was_rotated_out_does_not_rotate_its_token(
    process: Process, http: httpx.AsyncClient
) -> None:
    await as_(process, http, "ann", "agent")
    present = await told(http, "/api/token/rotate", overlap_s=300)
    newer = {"authorization": f"Bearer {present['token']}"}
    assert (await http.get("/api/token/whoami", headers=newer)).status_code == 200
    _, old = await process.tokens.recognise(http.headers["authorization"].removeprefix("Bearer "))
    await Tokens(process.lab).take(old, 1.0)  # at another web process, after the newer one
    before = await dump(process.lab)

    refusal = await refused(http, 403, "/api/token/rotate", overlap_s=0)
    await refused(http, 403, "/api/token/rotate", id=present["id"], overlap_s=86400)

    assert "rotated out" in refusal["detail"]
    assert await dump(process.lab) == before
    assert (await http.get("/api/token/whoami", headers=newer)).status_code == 200


async def test_event_streams_end_with_what_opened_them(process: Process) -> None:
    ended: dict[str, float] = {}
    clock = asyncio.get_running_loop().time
    async with served_client(process, by_key=False) as http:

        async def read(name: str, **request: Any) -> None:
            async with http.stream("GET", "/api/events", **request) as stream:
                assert stream.status_code == 200, await stream.aread()
                reading.add(name)
                async for _ in stream.aiter_raw():
                    pass
            ended[name] = clock()

        reading: set[str] = set()
        local = asyncio.create_task(read("local"))
        await eventually(lambda: "local" in reading)
        ann, bob = await bearer(process, "ann", "viewer"), await bearer(process, "bob", "viewer")
        await asyncio.wait_for(local, 30)  # with the first token nobody stays without one

        _, proof = await process.tokens.recognise(ann["authorization"].removeprefix("Bearer "))
        ticket = (await http.post("/api/event/ticket", headers=ann)).json()["ticket"]
        session = await process.tokens.open_session(proof)
        closed = await process.tokens.open_session(proof)
        port = http.base_url.port
        streams = [
            asyncio.create_task(read("token", headers=ann)),
            asyncio.create_task(read("ticket", params={"ticket": ticket})),
            *(
                asyncio.create_task(read(name, headers={"cookie": f"nightjar_session_{port}={each.name}"}))
                for name, each in (("session", session), ("closed session", closed))
            ),
            asyncio.create_task(read("other", headers=bob)),
        ]
        await eventually(lambda: len(reading) == 6)
        problem(await http.get("/api/events", params={"ticket": ticket}), 401)
        await process.tokens.close_session(closed.name)
        await asyncio.wait_for(streams[3], 30)
        await process.tokens.revoke(await process.tokens.get(proof.token_id))

        await asyncio.wait_for(asyncio.gather(*streams[:3]), 30)
        assert not streams[4].done()
        streams[4].cancel()
        await asyncio.wait(streams)

    assert set(ended) == {"local", "token", "ticket", "session", "closed session"}
