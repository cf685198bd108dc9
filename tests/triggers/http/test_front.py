"""What surrounds every HTTP request: its ids, its trace, its one line."""

from __future__ import annotations

import gc
import uuid

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from state.client import Lab
from tests.labs import idea, open_tag
from tests.logged import logged
from triggers.http import front
from triggers.http.exchange import Exchange

TRACE = f"00-{'a' * 32}-{'b' * 16}-01"


async def test_an_ordinary_request_logs_nothing_at_info_and_one_line_at_debug(
    client: httpx.AsyncClient,
) -> None:
    await open_tag(client)
    named = (await client.post("/api/experiment/register", json=idea())).json()["experiment_id"]
    headers = {"X-Request-Id": "r-1", "traceparent": TRACE}

    with logged("INFO") as quiet:
        response = await client.get(f"/api/experiment/{named}", headers=headers)
        await client.get("/healthz")
    with logged("DEBUG") as lines:
        await client.get(f"/api/experiment/{named}", headers=headers)

    assert quiet.text == ""
    line = lines.one(message="GET /api/experiment/{experiment_id} 200")
    assert line["route"] == "/api/experiment/{experiment_id}"
    assert (line["method"], line["status"], line["level"]) == ("GET", 200, "debug")
    assert (line["experiment_id"], line["request_id"], line["trace_id"]) == (named, "r-1", "a" * 32)
    assert 0 <= line["duration_s"] < 60
    assert response.headers["x-request-id"] == "r-1"
    assert response.headers["traceresponse"] == TRACE


@pytest.mark.parametrize(
    ("path", "route", "status"),
    [
        ("/api/nothing/CANARY", "(none)", 404),
        ("/api/experiment/CANARY", "/api/experiment/{experiment_id}", 404),
        ("/api/report/tags?token=CANARY", "/api/report/tags", 422),
    ],
)
async def test_a_refused_request_logs_one_line_without_its_path_and_query(
    client: httpx.AsyncClient, path: str, route: str, status: int
) -> None:
    canary = f"c{uuid.uuid4().hex}"

    with logged("INFO") as lines:
        await client.get(path.replace("CANARY", canary))

    line = lines.one()
    assert (line["route"], line["status"], line["level"]) == (route, status, "info")
    assert line["request_id"]
    line.pop("experiment_id", None)  # an id is one whoever made it up
    assert canary not in str(line)


async def test_a_slow_request_logs_a_line_unless_its_route_may_wait(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "SLOW_S", 0.0)
    await open_tag(client)
    await client.post("/api/experiment/register", json=idea())

    with logged("INFO") as lines:
        await client.get("/api/report/tags")
        await client.get("/api/experiment/mar11-1/wait", params={"timeout": 0})

    assert lines.one()["message"] == "GET /api/report/tags 200"


async def test_bodies_and_headers_are_not_logged_whatever_becomes_of_the_request(
    client: httpx.AsyncClient,
) -> None:
    canary = f"c{uuid.uuid4().hex}"
    await open_tag(client)
    headers = {"X-Api-Key": canary, "Cookie": f"s={canary}"}

    with logged("DEBUG") as lines:
        for n, body in enumerate(
            (
                idea(hypothesis=canary, diff_summary=canary),
                idea() | {canary: 1},
                idea(category=canary),
                idea(tag=canary),
            )
        ):
            key = {"Idempotency-Key": f"{canary}-{n}"}
            await client.post("/api/experiment/register", json=body, headers=headers | key)
        await client.post("/api/experiment/register", content=f"{{{canary}")
        for name, value in (("Authorization", f"Bearer {canary}"), ("X-Worker-Token", canary)):
            await client.post("/api/experiment/register", json=idea(), headers={name: value})

    assert [line["status"] for line in lines.all(route="/api/experiment/register")] == [
        200,
        422,
        422,
        404,
        400,
        401,
        401,
    ]
    assert lines.all(refused="NotFound")
    assert not [line for line in lines.all() if line["level"] != "debug" and canary in str(line)]


async def test_a_bug_is_answered_and_logs_one_line_with_its_traceback_and_the_request_s_id(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("nobody expected this")

    monkeypatch.setattr(Lab, "pipeline", broken)
    with logged("INFO") as lines:
        response = await client.get("/api/pool/list")

    assert response.status_code == 500
    assert "nobody expected this" not in response.text
    line = lines.one()
    assert (line["level"], line["status"], line["route"]) == ("error", 500, "/api/pool/list")
    assert line["exception"][0]["exc_type"] == "ZeroDivisionError"
    assert line["request_id"] == response.headers["x-request-id"]


@pytest.mark.parametrize("given", ["", "x" * 97, "a b", "a\tb", "é", '"><script>'])
async def test_a_request_id_that_cannot_stand_in_a_log_is_replaced(
    client: httpx.AsyncClient, given: str
) -> None:
    response = await client.get("/healthz", headers=[(b"x-request-id", given.encode())])

    own = response.headers["x-request-id"]
    assert own != given
    assert len(own) == 16


async def test_answered_requests_leave_nothing_for_a_look_for_garbage(client: httpx.AsyncClient) -> None:
    def kept() -> set[int]:
        return {id(one) for one in gc.get_objects() if type(one) is Exchange}

    await client.get("/healthz")
    gc.collect()
    others = kept()  # by another test's stream
    gc.disable()
    try:
        for path in ("/healthz", "/api/report/tags", "/nowhere"):
            await client.get(path)
        left = kept() - others
    finally:
        gc.enable()

    assert not left
