"""Calls that wait or take seconds: so many of one token at once, others are asked to come back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

import httpx
import pytest

from functions.kernel import invoke
from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.table import table
from state.settings import Settings
from tests.conftest import http_client
from tests.labs import bearer, open_tag, problem, registered, told
from triggers import sse

EACH = 2
PLOT = "/api/report/progress.png?tag=mar11"
WAIT = "/api/experiment/mar11-1/wait?timeout=50"
COSTLY = """lab::archive lab::audit report::diff report::night report::progress report::tsv trace::audit trust::distil
trust::distilled"""
HELD = "experiment::log experiment::wait pool::acquire pool::next trace::merge trace::select"


def test_what_waits_or_takes_seconds_is_declared() -> None:
    held = {name: declared for name, declared in table().items() if declared.held_for}

    assert {name for name, declared in table().items() if declared.costly} == set(COSTLY.split())
    assert set(held) == set(HELD.split())
    assert all(declared.held_for in declared.request.model_fields for declared in held.values())


def test_a_token_waits_64_times_and_opens_16_event_streams_by_default() -> None:
    assert (invoke.WAITS_EACH, sse.STREAMS_EACH) == (64, 16)


@pytest.fixture
async def process(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Process]:
    monkeypatch.setattr(invoke, "COSTLY_EACH", EACH)
    monkeypatch.setattr(invoke, "WAITS_EACH", EACH)
    async with opened("web", settings) as found:
        yield found


@pytest.fixture
async def http(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    """The operator of a lab with an experiment."""
    async with http_client(process) as found:
        await open_tag(found)
        await registered(found)
        yield found


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


def begun(asking: Coroutine[Any, Any, httpx.Response]) -> asyncio.Task[httpx.Response]:
    return asyncio.create_task(asking)


async def refused_one(
    http: httpx.AsyncClient, path: str, headers: dict[str, str]
) -> tuple[httpx.Response, list[asyncio.Task[httpx.Response]]]:
    """The refusal of one call more than may be under way, and those that are."""
    calls = [begun(http.get(path, headers=headers)) for _ in range(EACH + 1)]
    (over,), _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    return over.result(), [call for call in calls if call is not over]


async def test_one_more_slow_call_than_a_token_may_have_under_way_is_told_when_to_come_back(
    process: Process, http: httpx.AsyncClient, gate: threading.Event
) -> None:
    eager, patient = [await bearer(process, name, "viewer") for name in ("eager", "patient")]
    over, under_way = await refused_one(http, PLOT, eager)
    document = problem(over, 429)

    cheap = await http.get("/api/report/tags", headers=eager)
    for call in under_way:
        call.cancel()  # who goes away makes room
    await asyncio.wait(under_way)
    others = [begun(http.get(PLOT, headers=headers)) for headers in (eager, patient)]
    gate.set()

    assert (document["retry_after"], over.headers["retry-after"]) == (1.0, "1")
    assert "'eager'" in document["detail"]
    assert "report::progress" in document["detail"]
    assert cheap.status_code == 200
    assert [answer.status_code for answer in await asyncio.gather(*others)] == [200] * 2
    assert (await http.get(PLOT, headers=eager)).status_code == 200


async def test_one_more_wait_than_a_token_may_have_is_told_when_to_come_back(
    process: Process, http: httpx.AsyncClient
) -> None:
    eager, patient = [await bearer(process, name, "agent") for name in ("eager", "patient")]
    over, under_way = await refused_one(http, WAIT, eager)

    body = {"experiment_id": "mar11-1", "wait": 50}
    acquire = await http.post("/api/pool/acquire", json=body, headers=eager)
    look = await http.get(WAIT.replace("50", "0"), headers=eager)
    other = begun(http.get(WAIT, headers=patient))
    assert not (await asyncio.wait([other], timeout=0.2))[0]
    await told(http, "/api/experiment/complete", experiment_id="mar11-1", val_bpb=1.0)

    document = problem(over, 429)
    assert document["retry_after"] == problem(acquire, 429)["retry_after"] == 5.0
    assert "'eager'" in document["detail"]
    assert look.status_code == 200
    assert [answer.status_code for answer in await asyncio.gather(*under_way, other)] == [200] * 3
    assert (await http.get(WAIT, headers=eager)).status_code == 200


async def test_who_waits_where_the_process_ends_is_told_to_ask_again(
    process: Process, http: httpx.AsyncClient
) -> None:
    waiting = begun(http.get(WAIT))
    assert not (await asyncio.wait([waiting], timeout=0.2))[0]

    process.stopping.set()
    answer = await waiting

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["hint"] == "ask again in a moment"
