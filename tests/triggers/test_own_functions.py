"""Functions of your own behind every trigger: events and their dead letters, streams, webhooks, roles and limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.table import table
from functions.swarm.rules.populations import everyone
from state.settings import Settings
from tests.conftest import http_client
from tests.functions.kernel.test_own import RULES, forgotten, loaded
from tests.functions.swarm.test_swarm import DIMENSIONS, JOINING
from tests.labs import bearer, eventually, open_tag, problem, refused, settled, told
from tests.triggers.test_sse import read
from tests.triggers.test_webhooks import added, receiving
from tests.triggers.test_webhooks import delivering as delivering_webhooks
from triggers.delivery import run_binding
from triggers.events import bindings
from triggers.sse import Filter, broadcasting

__all__ = ["forgotten"]

BELLS = """
from nightjar import Http, On, Own, Request, Response, function

EVENTS = {"bell.rung": "somebody rang"}

class Ring(Request):
    text: str = ""

class Heard(Response):
    texts: list[str]

@function("bell::ring", role="agent", writes=True, body_limit=100)
async def ring(request: Ring, own: Own) -> None:
    await own.emit("bell.rung", "door", {"text": request.text})

@function("bell::hear", On("bell.rung", max_deliveries=3), role="operator", writes=True)
async def hear(request: Ring, own: Own) -> None:
    texts = [*await own.get("texts", []), request.text]
    await own.set("texts", texts)
    if request.text == "never" or texts.count(request.text) < 2:
        raise ArithmeticError(f"cannot take {request.text}")

@function("bell::heard", Http("GET", "/api/bell/heard"), role="viewer")
async def heard(request: Request, own: Own) -> Heard:
    return Heard(texts=await own.get("texts", []))
"""


@pytest.fixture(autouse=True)
def _retries_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triggers.delivery.FIRST_BACKOFF_S", 0.05)


@pytest.fixture
async def bells(settings: Settings, tmp_path: Path) -> AsyncIterator[Process]:
    changed = loaded(settings, tmp_path, bells=BELLS).model_copy(update={"webhook_private": True})
    async with opened("web", changed) as process:
        yield process


@pytest.fixture
async def http(bells: Process) -> AsyncIterator[httpx.AsyncClient]:
    async with http_client(bells) as client:
        yield client


@asynccontextmanager
async def hearing(process: Process) -> AsyncIterator[None]:
    """Deliver events to bell::hear meanwhile."""
    stop = asyncio.Event()
    found = bindings({"bell::hear": table()["bell::hear"]}, process)
    tasks = [asyncio.create_task(run_binding(binding, process.settings, stop)) for binding in found]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def rung(http: httpx.AsyncClient, text: str, **headers: str) -> httpx.Response:
    return await http.post("/api/bell/ring", json={"text": text}, headers=headers)


async def test_a_function_that_raises_gets_its_event_again_and_then_it_is_a_dead_letter(
    bells: Process, http: httpx.AsyncClient
) -> None:
    async with hearing(bells):
        await rung(http, "second")
        await rung(http, "never")
        await settled(bells, "bell::hear")
        texts: list[str] = (await http.get("/api/bell/heard")).json()["texts"]
        dead = (await told(http, "/api/event/dead"))["dead"]

    assert (texts.count("second"), texts.count("never")) == (2, 3)
    assert [(letter["binding"], letter["event"]["data"]) for letter in dead] == [
        ("bell::hear", {"text": "never"})
    ]
    assert dead[0]["error"] == "ArithmeticError: cannot take never"


async def test_an_event_of_your_own_reaches_streams_and_webhooks(
    bells: Process, http: httpx.AsyncClient
) -> None:
    async with broadcasting(bells) as broadcast, receiving() as receiver, delivering_webhooks(bells):
        await added(http, receiver, types=["bell.rung"])
        await rung(http, "hello")
        (streamed,) = await read(broadcast, 1, wanted=Filter(types=frozenset({"bell.rung"})))
        await eventually(lambda: bool(receiver.got))

    assert (streamed["event"], streamed["subject"], streamed["data"]) == (
        "bell.rung",
        "door",
        {"text": "hello"},
    )
    got: Any = receiver.got[0].json
    assert (got["type"], got["data"]) == ("bell.rung", {"text": "hello"})
    assert "bell.rung" in got["text"]


async def test_roles_and_bodies_of_your_own_functions_are_limited_as_those_of_ours(
    bells: Process, http: httpx.AsyncClient
) -> None:
    viewer, agent = await bearer(bells, "vic", "viewer"), await bearer(bells, "ann", "agent")

    for headers in (viewer, agent):
        problem(await http.post("/api/bell/hear", json={}, headers=headers), 403)
    problem(await rung(http, "x", **viewer), 403)
    problem(await rung(http, "x" * 100, **agent), 413)
    problem(await http.post("/api/bell/ring", json={"txt": "x"}, headers=agent), 422)
    assert (await rung(http, "x", **agent)).status_code == 204


async def test_a_broken_sampler_of_your_own_keeps_no_other_swarm_waiting(
    settings: Settings, tmp_path: Path
) -> None:
    async with (
        opened("web", loaded(settings, tmp_path, rules=RULES)) as process,
        http_client(process) as http,
    ):
        for tag, sampler in (("a", "rules.Wild"), ("b", "rules.Steady"), ("c", "thompson")):
            await open_tag(http, tag, policy={"sampler": sampler})
            await told(http, "/api/dimension/define", tag=tag, dimensions=DIMENSIONS)
            await told(http, "/register", **JOINING | {"worker_id": f"w-{tag}", "tag": tag})
        refusal = await refused(http, 409, "/api/swarm/refill")
        queues = [process.lab.keys("proposals", tag, everyone(tag).population_id) for tag in "abc"]
        waiting = [await process.lab.command("ZCARD", queue) for queue in queues]

    assert "the sampler 'rules.Wild' failed with ValueError" in refusal["detail"]
    assert waiting == [0, 8, 8]
