"""A worker's client: answers of its lab, and of other servers at its URL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest
from pydantic import SecretStr

from functions.kernel.process.remote import Remote
from state.errors import Conflict, Damaged, NightjarError, Unauthenticated, Unavailable
from workers.lab_client import HANDED_IN, RemoteLab, patiently

REMOTE = Remote(url="http://lab.example", token=SecretStr("nj_secret"), name="box-1")


async def answered(respond: Callable[[httpx.Request], httpx.Response]) -> dict[str, object]:
    transport = httpx.MockTransport(respond)
    async with httpx.AsyncClient(base_url=REMOTE.url, transport=transport) as http:
        return await RemoteLab(REMOTE, ["pool::next"], http).call("pool::next", {"gpu_id": "g"})


def problem(status: int, title: str, **more: object) -> httpx.Response:
    return httpx.Response(status, json={"title": title, "status": status, "detail": "so it is", **more})


async def test_a_function_is_called_at_its_own_route() -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        assert (request.method, request.url.path, request.content) == (
            "POST",
            "/api/pool/next",
            b'{"gpu_id":"g"}',
        )
        return httpx.Response(200, json={"work": None})

    assert await answered(respond) == {"work": None}


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (problem(409, "Conflict"), Conflict),
        (problem(401, "Unauthenticated"), Unauthenticated),
        (problem(429, "Too many requests", retry_after=3), Unavailable),
        (problem(503, "Service unavailable", retry_after=3), Unavailable),
        (httpx.Response(502, text="<html>bad gateway</html>"), Unavailable),
        (problem(408, "Request too slow"), Unavailable),
        (httpx.Response(404, text="<html>nothing here</html>"), Unavailable),
        (httpx.Response(301, headers={"location": "https://elsewhere.example/"}), Unavailable),
        (httpx.Response(200, text="<html>welcome to the hotel</html>"), Unavailable),
    ],
)
async def test_what_may_pass_is_asked_again_and_all_else_is_an_error(
    response: httpx.Response, kind: type[NightjarError]
) -> None:
    with pytest.raises(NightjarError) as raised:
        await answered(lambda _: response)

    assert type(raised.value) is kind
    if kind is Unavailable:
        assert raised.value.retry_after is not None


async def test_a_lab_that_does_not_answer_may_answer_later() -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(Unavailable, match=r"no lab answers at http://lab\.example"):
        await answered(respond)


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "15"}, {}, 15.0),
        ({"retry-after": "15"}, {"retry_after": 3}, 3.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, {}, 1.0),
        ({}, {}, 1.0),
    ],
)
async def test_it_is_asked_again_when_the_lab_says_so_in_its_answer_or_its_header(
    headers: dict[str, str], body: dict[str, object], seconds: float
) -> None:
    said = {"title": "Nothing free", "detail": "paused", **body}

    with pytest.raises(Unavailable) as raised:
        await answered(lambda _: httpx.Response(503, headers=headers, json=said))

    assert raised.value.retry_after == seconds


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (Unavailable("paused", retry_after=15), "paused; asking again in 15 s"),
        (Unavailable("away", hint="is it up?"), "away (is it up?); asking again in 1 s"),
    ],
)
async def test_a_step_is_repeated_not_before_the_lab_says_and_not_once_the_worker_is_stopped(
    error: Unavailable, line: str
) -> None:
    stop, said = asyncio.Event(), list[str]()

    async def step() -> str:
        raise error

    def say(told: str) -> None:
        said.append(told)
        stop.set()

    assert await patiently(step, stop, say) is None
    assert said == [line]


async def test_a_refusal_ends_a_step_unless_it_may_pass() -> None:
    problems: list[NightjarError] = [Conflict("no"), Conflict("no")]

    async def step() -> str:
        if problems:
            raise problems.pop()
        return "done"

    with pytest.raises(Conflict):
        await patiently(step, asyncio.Event(), lambda _: None)
    assert await patiently(step, asyncio.Event(), lambda _: None, NightjarError) == "done"


async def test_a_function_that_this_worker_does_not_call_is_refused_as_a_damaged_request() -> None:
    async with httpx.AsyncClient(base_url=REMOTE.url) as http:
        with pytest.raises(Damaged, match="'experiment::ended'"):
            await RemoteLab(REMOTE, HANDED_IN, http).call("experiment::ended", {})
