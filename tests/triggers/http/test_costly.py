"""Costly functions: so many calls of one caller at once, others are asked to come back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from functions.kernel.process.lifecycle import opened
from functions.kernel.table import table
from state.settings import Settings
from tests.conftest import http_client
from tests.labs import bearer, open_tag, problem

EACH = 2
PLOT = "/api/report/progress.png?tag=mar11"


def test_what_takes_seconds_is_declared_costly() -> None:
    assert {name for name, declared in table().items() if declared.costly} == {
        "lab::archive",
        "lab::audit",
        "report::diff",
        "report::night",
        "report::progress",
        "report::tsv",
        "trace::audit",
        "trust::distil",
        "trust::distilled",
    }


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("functions.kernel.invoke.COSTLY_EACH", EACH)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No plot is drawn before this is set."""
    may_draw = threading.Event()

    def drawing(*_: object) -> bytes:
        may_draw.wait(60)
        return b"a picture"

    monkeypatch.setattr("functions.people.plot.draw_progress", drawing)
    yield may_draw
    may_draw.set()


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    async with opened("web", settings) as process, http_client(process) as http:
        await open_tag(http)
        for name in ("eager", "patient"):
            http.headers[name] = (await bearer(process, name, "viewer"))["authorization"]
        yield http


async def asked(http: httpx.AsyncClient, who: str, path: str = PLOT) -> httpx.Response:
    return await http.get(path, headers={"authorization": http.headers[who]})


async def refused_one(
    http: httpx.AsyncClient, who: str
) -> tuple[httpx.Response, list[asyncio.Task[httpx.Response]]]:
    """The refusal of one call more than may be under way, and those that are."""
    calls = [asyncio.create_task(asked(http, who)) for _ in range(EACH + 1)]
    (over,), _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    return over.result(), [call for call in calls if call is not over]


async def test_one_more_than_a_token_may_have_under_way_is_told_when_to_come_back(
    client: httpx.AsyncClient, gate: threading.Event
) -> None:
    over, under_way = await refused_one(client, "eager")

    told = problem(over, 429)
    assert told["retry_after"] == 1.0
    assert over.headers["retry-after"] == "1"
    assert "'eager'" in told["detail"]
    assert "report::progress" in told["detail"]
    gate.set()
    assert [answer.status_code for answer in await asyncio.gather(*under_way)] == [200] * EACH
    assert (await asked(client, "eager")).status_code == 200


async def test_what_one_token_has_under_way_refuses_nobody_else_and_no_cheap_call(
    client: httpx.AsyncClient, gate: threading.Event
) -> None:
    _, under_way = await refused_one(client, "eager")

    other = asyncio.create_task(asked(client, "patient"))
    cheap = await client.get("/api/report/tags", headers={"authorization": client.headers["eager"]})
    gate.set()

    assert cheap.status_code == 200
    assert (await other).status_code == 200
    await asyncio.gather(*under_way)


async def test_who_goes_away_makes_room(client: httpx.AsyncClient, gate: threading.Event) -> None:
    _, under_way = await refused_one(client, "eager")
    for call in under_way:
        call.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)

    again = asyncio.create_task(asked(client, "eager"))
    gate.set()

    assert (await again).status_code == 200


async def test_without_tokens_the_callers_of_this_machine_are_one(
    settings: Settings, gate: threading.Event
) -> None:
    async with opened("web", settings) as process, http_client(process) as http:
        await open_tag(http)
        calls = [asyncio.create_task(http.get(PLOT)) for _ in range(EACH + 1)]
        (over,), others = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        gate.set()

        problem(over.result(), 429)
        assert {answer.status_code for answer in await asyncio.gather(*others)} == {200}
