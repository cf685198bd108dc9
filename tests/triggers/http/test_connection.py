"""Who sends too much, too slowly or nothing at all is answered, and let go."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from tests.conftest import served_client
from tests.labs import problem
from tests.logged import logged
from triggers.http import connection

HOST = b"Host: 127.0.0.1\r\n"
PATIENCE_S = 60


@pytest.fixture
async def http(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    async with served_client(process) as found:
        yield found


async def said(http: httpx.AsyncClient, *pieces: bytes, every_s: float = 0.0) -> bytes:
    """All that the server says until it hangs up, when sent these pieces; what it no longer reads is no fault."""
    reader, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)

    async def send() -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(every_s)

    sending, received = asyncio.create_task(send()), b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while piece := await reader.read(65536):
                received += piece
            return received
    except ConnectionError:
        return received
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.close()


def refusal(received: bytes, status: int) -> dict[str, Any]:
    """The problem document in an answer as it came."""
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0].split()[1] == str(status), received
    return problem(
        httpx.Response(status, headers=dict(line.split(": ", 1) for line in lines[1:]), content=body), status
    )


MANY = b"".join(b"x-%d: y\r\n" % n for n in range(20_000))


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\n" + HOST + b"x: " + b"y" * 70_000 + b"\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n" + HOST + MANY + b"\r\n",
        b"GET /healthz HTTP/1.1\r\n" + HOST + b"x: " + b"y" * 5_000_000,
        b"GET /healthz?" + b"y" * 70_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /api/experiment/" + b"y" * 5_000_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    ],
    ids=["a long header", "many headers", "a header without end", "a long query", "a long path"],
)
async def test_a_head_of_more_than_64_kilobytes_is_refused(http: httpx.AsyncClient, head: bytes) -> None:
    received = await said(http, head)

    if received:  # a client that goes on sending may find the connection gone before it looks for the answer
        assert "64 KiB" in refusal(received, 431)["detail"]
    assert len(head) > 1_000_000 or received
    assert (await http.get("/healthz")).status_code == 200


CHUNKED = b"POST /api/experiment/setup HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"


@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x02\x00\x01\r\n\r\n", CHUNKED], ids=["no HTTP", "no chunk"])
async def test_what_is_no_http_gets_a_problem_document(http: httpx.AsyncClient, sent: bytes) -> None:
    assert refusal(await said(http, sent), 400)["hint"]


H2C = b"Connection: Upgrade, HTTP2-Settings, close\r\nUPgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


async def test_a_body_behind_an_offer_of_another_protocol_is_not_read_as_a_request(
    http: httpx.AsyncClient,
) -> None:
    hidden = b"GET /api/lab/status HTTP/1.1\r\n" + HOST + b"\r\n"
    length = b"Content-Length: %d\r\n\r\n" % len(hidden)
    first = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"

    alone = await said(http, b"POST /api/event/list HTTP/1.1\r\n" + HOST + H2C + length, hidden, every_s=0.1)
    behind = await said(http, first + b"POST /api/event/list HTTP/1.1\r\n" + HOST + H2C + length + hidden)

    assert alone.count(b"HTTP/1.1 ") == 1
    assert b'"lab"' not in alone + behind


@pytest.mark.parametrize("size", [1, 3, 7, 10_000])
async def test_requests_sent_at_once_are_answered_in_order_whatever_they_offer(
    http: httpx.AsyncClient, size: int
) -> None:
    """Java's HttpClient and `curl --http2` offer another protocol with each first request."""
    body = b'{"tag": "mar11"}\r\n'
    post = b"POST /api/experiment/setup HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % len(body)
    offers = H2C.replace(b", close", b"")
    good = b'{"tag": "mar12"}\n'
    length = b"Content-Length: %d\r\n\r\n" % len(good)
    second = b"POST /api/experiment/setup HTTP/1.1\r\n" + HOST + offers + length + good
    third = b"GET /healthz HTTP/1.1\r\n" + HOST + offers + b"\r\n"
    last = b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    whole = post + body + second + third + last

    received = await said(http, *(whole[at : at + size] for at in range(0, len(whole), size)))

    assert re.findall(rb"HTTP/1\.1 (\d+)", received) == 4 * [b"200"]
    assert b'"mar12"' in received


async def test_a_head_that_does_not_end_is_answered_in_time(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 0.3)

    drip = [b"GET /healthz HTTP/1.1\r\n", *[b"x: y\r\n"] * 1000]
    answers = await asyncio.gather(said(http, *drip, every_s=0.05), said(http, b""))

    assert "0.3 seconds" in refusal(answers[0], 408)["detail"]
    assert answers[1] == b""  # who never said a word gets none


@pytest.mark.parametrize("announced", [b"Content-Length: 1000\r\n", b"Transfer-Encoding: chunked\r\n"])
async def test_a_body_that_drips_is_answered_in_time_and_its_connection_ends(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, announced: bytes
) -> None:
    monkeypatch.setattr(connection, "BODY_S", 0.3)
    monkeypatch.setattr(connection, "LINGER_S", 0.3)
    piece = b"1\r\n \r\n" if b"chunked" in announced else b" "
    head = b"POST /api/experiment/setup HTTP/1.1\r\n" + HOST + announced + b"\r\n"

    received = await said(http, head, *[piece] * 500, every_s=0.05)

    assert "0.3 seconds" in refusal(received, 408)["detail"]


@pytest.mark.parametrize("announced", [b"Content-Length: 1000\r\n", b"Transfer-Encoding: chunked\r\n"])
async def test_a_body_that_its_client_cuts_off_is_no_fault_of_ours(
    http: httpx.AsyncClient, announced: bytes
) -> None:
    head = b"POST /api/experiment/setup HTTP/1.1\r\n" + HOST + announced + b"\r\n"
    piece = b'8\r\n{"tag": \r\n' if b"chunked" in announced else b'{"tag": '

    with logged("INFO") as lines:
        _, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)
        writer.write(head + piece)
        await writer.drain()
        await asyncio.sleep(0.1)
        writer.close()
        async with asyncio.timeout(PATIENCE_S):
            while not lines.all(route="/api/experiment/setup"):  # noqa: ASYNC110 - a line sets no event
                await asyncio.sleep(0.01)

    line = lines.one(route="/api/experiment/setup")
    assert (line["status"], line["level"]) == (499, "info")
    assert not lines.all(level="error")


# -- how deep, how long


def nested(levels: int) -> str:
    return '{"tag": ' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (nested(33), "nested more than 32 levels"),
        (nested(1000), "nested more than 32 levels"),
        ("[" * 100_000, "nested more than 32 levels"),
        (json.dumps({"tag": [0] * 10_001}), "tag has 10001 entries, over 10000"),
        (json.dumps({"tag": {str(n): n for n in range(10_001)}}), "tag has 10001 entries, over 10000"),
        (json.dumps({"tag": [[0] * 9_999] * 11}), "past the first 100000 values"),
        ('{"tag": {"a": [1, {"b": [NaN]}]}}', "tag.a[1].b[0] is not a finite number"),
        ('{"tag": {"a\\u0000": 1}}', "holds a NUL character"),
    ],
)
async def test_what_no_request_needs_is_refused_where_it_stands(
    client: httpx.AsyncClient, body: str, detail: str
) -> None:
    document = problem(await client.post("/api/experiment/setup", content=body), 422)

    assert detail in document["detail"]


async def test_an_answer_to_a_client_that_left_is_dropped() -> None:
    transport = Mock(spec=asyncio.Transport)
    transport.is_closing.return_value = False
    writes = connection.JoinedWrites(transport, asyncio.get_running_loop())

    writes.write(b"too late")
    transport.is_closing.return_value = True  # uvloop's raise where they are written to then
    await asyncio.sleep(0)
    writes.close()

    transport.write.assert_not_called()


async def test_nobody_opens_a_websocket(http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    asks = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"

    for host, status in ((HOST, 404), (b"Host: evil.example\r\n", 403)):
        received = await said(http, b"GET /api/no HTTP/1.1\r\n" + host + asks + b"\r\n")
        refusal(received, status)

    assert not [r for r in caplog.records if r.levelname == "WARNING"]
