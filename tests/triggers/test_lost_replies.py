"""Whoever does not get the answer about a token asks again, and nothing is lost or given twice."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from functions.kernel.process.lifecycle import Process, opened
from state.embedded import EmbeddedRedis
from state.settings import Settings
from tests.conftest import http_client
from tests.labs import events_of, problem, refused, told


@pytest.fixture
async def http(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """HTTP as an operator."""
    issued = await told(client, "/api/token/issue", name="root", role="operator")
    client.headers["authorization"] = f"Bearer {issued['token']}"
    return client


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


async def opens(http: httpx.AsyncClient, text: str) -> bool:
    return (await http.get("/api/token/whoami", headers=bearer(text))).status_code == 200


async def test_a_revocation_repeated_after_the_name_was_given_again_leaves_the_new_token_and_its_gpus(
    http: httpx.AsyncClient,
) -> None:
    first = await told(http, "/api/token/issue", name="ann", role="agent")
    await told(http, "/api/token/revoke", id=first["id"])
    second = await told(http, "/api/token/issue", name="ann", role="agent")
    gpu = {"gpu_id": "anns:0", "gpu_index": 0, "gpu_name": "H100", "vram_mb": 1.0}
    assert (await http.post("/api/pool/register", json=gpu, headers=bearer(second["token"]))).is_success

    again = await told(http, "/api/token/revoke", id=first["id"])

    assert again["gpus"] == []
    assert await opens(http, second["token"])
    await refused(http, 409, "/api/token/issue", name="ann", role="agent")


async def test_a_bearer_rotates_with_the_same_token_until_an_answer_arrives(http: httpx.AsyncClient) -> None:
    old = (await told(http, "/api/token/issue", name="w", role="worker"))["token"]

    answers = [await http.post("/api/token/rotate", json={}, headers=bearer(old)) for _ in range(4)]

    *lost, last = [answer.json()["token"] for answer in answers]
    assert await opens(http, old)
    assert await opens(http, last)
    assert [await opens(http, text) for text in lost] == [False] * 3
    ended = await http.post("/api/token/rotate", json={"overlap_s": 0}, headers=bearer(last))
    assert not await opens(http, old)
    assert not await opens(http, last)
    assert await opens(http, ended.json()["token"])


async def test_who_enrolls_again_has_lost_the_name_but_no_second_use(http: httpx.AsyncClient) -> None:
    ask = {"name": "swarm", "role": "worker", "kind": "enroll", "uses": 3}
    enroll = {"enroll_token": (await told(http, "/api/token/issue", **ask))["token"]}
    await told(http, "/api/token/enroll", **enroll, name="w1")

    document = await refused(http, 409, "/api/token/enroll", **enroll, name="w1")
    again = await told(http, "/api/token/enroll", **enroll, name="w2")

    assert "'w1' is taken" in document["detail"]
    assert await opens(http, again["token"])
    rows = (await told(http, "/api/token/list"))["tokens"]
    assert {row["name"]: row["uses_left"] for row in rows if row["kind"] == "enroll"} == {"swarm": 1}


async def test_what_is_issued_again_is_a_conflict_that_a_revocation_solves(
    http: httpx.AsyncClient, process: Process
) -> None:
    headers = {"idempotency-key": "k"}
    first, second = [
        await http.post("/api/token/issue", json={"name": "ann", "role": "agent"}, headers=headers)
        for _ in "12"
    ]

    document = problem(second, 409)
    assert "revokes it first" in document["hint"]
    await told(http, "/api/token/revoke", id=first.json()["id"])
    third = await told(http, "/api/token/issue", name="ann", role="agent")

    assert not await opens(http, first.json()["token"])
    assert await opens(http, third["token"])
    assert len(await events_of(process, "token.issued")) == 3


async def test_no_answer_about_a_token_is_undone_by_a_redis_that_is_killed(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data": tmp_path / "lab", "redis_appendfsync": "always"})
    with EmbeddedRedis.start(settings) as server:
        here = settings.model_copy(update={"redis_url": SecretStr(server.url)})
        async with opened("web", here) as process, http_client(process) as http:
            root = await told(http, "/api/token/issue", name="root", role="operator")
            http.headers["authorization"] = f"Bearer {root['token']}"
            kept = [await told(http, "/api/token/issue", name=f"a{n}", role="agent") for n in range(20)]
            for one in kept[:10]:
                await told(http, "/api/token/revoke", id=one["id"])
            rotated = await told(http, "/api/token/rotate", overlap_s=0)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)

    with EmbeddedRedis.start(settings) as server:
        here = settings.model_copy(update={"redis_url": SecretStr(server.url)})
        async with opened("web", here) as process, http_client(process) as http:
            assert [await opens(http, one["token"]) for one in kept] == [False] * 10 + [True] * 10
            assert not await opens(http, root["token"])
            assert await opens(http, rotated["token"])
