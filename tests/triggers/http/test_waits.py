"""Calls that wait: so many of one token at once, others are asked to come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest

from functions.kernel import invoke
from functions.kernel.process.lifecycle import opened
from functions.kernel.table import table
from state.settings import Settings
from tests.conftest import http_client
from tests.labs import bearer, open_tag, problem, registered
from triggers import sse

EACH = 2


def test_what_waits_names_the_field_that_says_how_long() -> None:
    held = {name: declared for name, declared in table().items() if declared.held_for}

    assert set(held) == {
        "experiment::log",
        "experiment::wait",
        "pool::acquire",
        "pool::next",
        "trace::merge",
        "trace::select",
    }
    assert all(declared.held_for in declared.request.model_fields for declared in held.values())


@dataclass(frozen=True)
class Waiters:
    """Agents of one lab, where a token may have EACH calls that wait."""

    http: httpx.AsyncClient
    experiment: str
    eager: dict[str, str]
    patient: dict[str, str]
    stopping: asyncio.Event

    async def wait(self, who: dict[str, str], seconds: float = 50) -> httpx.Response:
        return await self.http.get(f"/api/experiment/{self.experiment}/wait?timeout={seconds}", headers=who)

    async def end(self) -> None:
        body = {"experiment_id": self.experiment, "val_bpb": 1.0}
        assert (await self.http.post("/api/experiment/complete", json=body)).status_code == 200


@pytest.fixture
async def waiters(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Waiters]:
    monkeypatch.setattr(invoke, "WAITS_EACH", EACH)
    async with opened("web", settings) as process, http_client(process) as http:
        await open_tag(http)
        experiment = await registered(http)
        eager, patient = [await bearer(process, name, "agent") for name in ("eager", "patient")]
        http.headers.update(await bearer(process, "olga", "operator"))
        yield Waiters(http, experiment, eager, patient, process.stopping)


async def test_one_more_wait_than_a_token_may_have_is_told_when_to_come_back(waiters: Waiters) -> None:
    calls = [asyncio.create_task(waiters.wait(waiters.eager)) for _ in range(EACH + 1)]
    (over,), others = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)

    body = {"experiment_id": waiters.experiment, "wait": 50}
    acquire = await waiters.http.post("/api/pool/acquire", json=body, headers=waiters.eager)
    look = await waiters.wait(waiters.eager, 0)
    other = asyncio.create_task(waiters.wait(waiters.patient))
    assert not (await asyncio.wait([other], timeout=0.2))[0]
    await waiters.end()

    told = problem(over.result(), 429)
    assert told["retry_after"] == 5.0
    assert "'eager'" in told["detail"]
    assert problem(acquire, 429)["retry_after"] == 5.0
    assert look.status_code == 200
    assert [call.result().status_code for call in (await asyncio.wait([*others, other]))[0]] == [200] * 3
    assert (await waiters.wait(waiters.eager)).status_code == 200


def test_a_token_waits_64_times_and_opens_16_event_streams_by_default() -> None:
    assert (invoke.WAITS_EACH, sse.STREAMS_EACH) == (64, 16)


async def test_who_waits_where_the_process_ends_is_told_to_ask_again(waiters: Waiters) -> None:
    waiting = asyncio.create_task(waiters.wait(waiters.eager))
    assert not (await asyncio.wait([waiting], timeout=0.2))[0]

    waiters.stopping.set()
    answer = await waiting

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["hint"] == "ask again in a moment"
