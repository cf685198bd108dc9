"""The log of a run as server-sent events: what is there, then what comes, until the run has ended."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from state.experiments import Experiments
from state.records import Role
from tests.conftest import served_client
from tests.labs import add_gpu, bearer, open_tag, problem, registered, running, told

LOG = "/api/experiment/mar11-1/log"


@pytest.fixture
async def http(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    async with served_client(process) as found:
        await open_tag(found)
        await registered(found)
        yield found


class Follower:
    """Somebody who reads the stream."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.aiter_lines()

    async def next(self) -> dict[str, Any]:
        """The next answer; empty after the end of the stream."""
        fields: dict[str, str] = {}
        async for line in self._lines:
            name, _, value = line.partition(": ")
            if name in ("id", "event", "data"):
                fields[name] = value
            elif not line and "data" in fields:
                assert fields["event"] == "log"
                found: dict[str, Any] = json.loads(fields["data"])
                assert found["version"] == fields["id"]
                return found
        return {}


@asynccontextmanager
async def follows(
    http: httpx.AsyncClient, more: str = "", path: str = LOG, **headers: str
) -> AsyncIterator[Follower]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with http.stream("GET", f"{path}?follow=true{more}", headers=named) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Follower(answer)


async def say(process: Process, text: str) -> None:
    """The run's worker brings what the run has printed so far."""
    experiments = Experiments(process.lab)
    await experiments.keep_log(await experiments.get("mar11-1"), text)


async def end(http: httpx.AsyncClient) -> None:
    await told(http, "/api/experiment/complete", experiment_id="mar11-1", val_bpb=0.5)


async def test_a_follower_is_told_what_is_there_then_what_comes_and_the_end(
    http: httpx.AsyncClient, process: Process
) -> None:
    await say(process, "one\n")

    async with follows(http) as follower:
        first = await follower.next()
        await say(process, "one\ntwo\n")
        second = await follower.next()
        await end(http)
        last = await follower.next()
        over = await follower.next()

    assert [at["log"] for at in (first, second, last)] == ["one\n", "one\ntwo\n", "one\ntwo\n"]
    assert [at["finished"] for at in (first, second, last)] == [False, False, True]
    assert (last["status"], over) == ("keep", {})


async def test_a_follower_is_told_each_report(process: Process) -> None:
    async with served_client(process) as http:
        await open_tag(http, policy={"baseline_first": False})
        await add_gpu(http)
        run = await running(http, process)
        experiments = Experiments(process.lab)

        async with follows(http) as follower:
            first = await follower.next()
            heard = []
            for progress in (0.25, 0.5):
                await experiments.renew(
                    run.experiment_id, "host:gpu0", run.fence, 60, (3 - progress, progress)
                )
                heard.append(await follower.next())

    assert first["progress"] is None
    assert [(at["progress"], at["metric"]) for at in heard] == [(0.25, 2.75), (0.5, 2.5)]


async def test_a_follower_who_comes_back_is_told_only_what_is_new(
    http: httpx.AsyncClient, process: Process
) -> None:
    await say(process, "one\n")
    async with follows(http) as follower:
        first = await follower.next()

    async with follows(http, last_event_id=first["version"]) as follower:
        await say(process, "one\ntwo\n")
        again = await follower.next()
    async with follows(http, f"&after={first['version']}") as follower:
        other = await follower.next()

    assert again == other
    assert again["log"] == "one\ntwo\n"


async def test_a_run_that_has_ended_is_told_once_even_to_who_has_seen_it(http: httpx.AsyncClient) -> None:
    await end(http)
    async with follows(http) as follower:
        first, over = await follower.next(), await follower.next()

    async with follows(http, last_event_id=first["version"]) as follower:
        again = await follower.next()

    assert first == again
    assert first["finished"]
    assert over == {}


async def test_logs_that_are_followed_count_as_event_streams_of_their_token_and_end_with_it(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triggers.sse.STREAMS_EACH", 1)
    headers = await bearer(process, "ann", "agent")
    async with served_client(process) as http:
        await open_tag_as(http, headers)
        async with follows(http, **headers) as follower:
            await follower.next()
            refused = await http.get(f"{LOG}?follow=true", headers=headers)
            events = await http.get("/api/events", headers=headers)
            plain = await http.get(LOG, headers=headers)
            (token,) = [token for token in await process.tokens.all() if token.name == "ann"]
            await process.tokens.revoke(token)

            assert await follower.next() == {}

    assert problem(refused, 429)["retry_after"] == 10.0
    problem(events, 429)
    assert plain.status_code == 200


@pytest.mark.parametrize(("role", "status"), [("viewer", 200), ("worker", 403), (None, 401)])
async def test_a_log_is_followed_by_who_may_read_it(process: Process, role: Role | None, status: int) -> None:
    headers = await bearer(process, "ann", "agent")
    async with served_client(process, by_key=False) as http:
        await open_tag_as(http, headers)
        result = {"experiment_id": "mar11-1", "val_bpb": 0.5}
        assert (await http.post("/api/experiment/complete", json=result, headers=headers)).is_success
        reader = {} if role is None else await bearer(process, "vera", role)

        answer = await http.get(f"{LOG}?follow=true", headers=reader)

    assert answer.status_code == status
    assert answer.is_success or problem(answer, status)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/experiment/mar11-9/log?follow=true", 404),
        (f"{LOG}?follow=perhaps", 422),
        (f"{LOG}?follow=true&timeout=5", 422),
        (f"{LOG}?follow=true&after={'x' * 65}", 422),
    ],
)
async def test_a_stream_that_cannot_be_is_refused_before_it_begins(
    http: httpx.AsyncClient, path: str, status: int
) -> None:
    problem(await http.get(path), status)


async def open_tag_as(http: httpx.AsyncClient, headers: dict[str, str]) -> None:
    """The tag with its one registered experiment, made by the bearer of a token."""
    http.headers.update(headers)
    await open_tag(http)
    await registered(http)
    http.headers.pop("authorization")
