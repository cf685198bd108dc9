"""Server-sent events: every event exactly once and in order, however often the connection is cut."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx
import pytest

from functions.process import Process
from triggers.stream import SLOW_AFTER, Broadcast, Filter, broadcasting


@pytest.fixture
async def broadcast(process: Process) -> AsyncIterator[Broadcast]:
    async with broadcasting(process.stream) as found:
        yield found


async def happen(client: httpx.AsyncClient, tag: str, count: int = 1) -> None:
    """One event, or several."""
    for nth in range(count):
        answer = await client.post("/api/experiment/setup", json={"tag": f"{tag}{nth}"})
        assert answer.status_code == 200


def parsed(block: bytes) -> dict[str, Any]:
    """One block of the wire format."""
    fields = dict(line.split(": ", 1) for line in block.decode().strip().splitlines())
    return {"id": fields.get("id"), "event": fields["event"], **json.loads(fields["data"])}


async def read(
    broadcast: Broadcast, count: int, since: str | None = "0", wanted: Filter | None = None
) -> list[dict[str, Any]]:
    """The first events of a new connection."""
    found: list[dict[str, Any]] = []
    async with aclosing(broadcast.subscribe(wanted or Filter(), since)) as stream:
        async for block in stream:
            if not block.startswith(b":"):
                found.append(parsed(block))
            if len(found) == count:
                break
    return found


async def test_a_subscriber_sees_what_happened_and_then_what_happens(
    client: httpx.AsyncClient, broadcast: Broadcast
) -> None:
    await happen(client, "before", 3)
    reading = asyncio.create_task(read(broadcast, 5))
    await asyncio.sleep(0)
    await happen(client, "after", 2)

    found = await reading

    assert [e["subject"] for e in found] == ["before0", "before1", "before2", "after0", "after1"]
    assert [e["event"] for e in found] == ["tag.created"] * 5
    assert found[0]["lab"]
    assert found[0]["data"]["branch"] == "autoresearch/before0"


async def test_two_hundred_cuts_lose_nothing_and_repeat_nothing(
    client: httpx.AsyncClient, broadcast: Broadcast
) -> None:
    chance = random.Random(7)
    writing = asyncio.create_task(happen(client, "t", 500))
    seen: list[str] = []
    last = "0"
    for _ in range(200):
        for event in await read(broadcast, chance.randint(1, 2), since=last):
            seen.append(event["subject"])
            last = event["id"]
    await writing
    seen += [e["subject"] for e in await read(broadcast, 500 - len(seen), since=last)]

    assert seen == [f"t{n}" for n in range(500)]


async def test_only_what_was_asked_for_is_sent(client: httpx.AsyncClient, broadcast: Broadcast) -> None:
    await happen(client, "a", 2)
    await client.post(
        "/api/experiment/register",
        json={"tag": "a1", "hypothesis": "h", "category": "other", "commit_sha": "c", "diff_summary": "d"},
    )

    by_type = await read(broadcast, 1, wanted=Filter(types=frozenset({"experiment.registered"})))
    by_tag = await read(broadcast, 2, wanted=Filter(tag="a1"))

    assert by_type[0]["subject"] == "a1-1"
    assert [e["event"] for e in by_tag] == ["tag.created", "experiment.registered"]


async def test_a_gap_that_was_trimmed_is_announced(
    client: httpx.AsyncClient, process: Process, broadcast: Broadcast
) -> None:
    await happen(client, "t", 5)
    (first, *_) = await process.stream.after("0", 1)
    await process.lab.command("XTRIM", process.lab.keys("events"), "MAXLEN", 2)

    told = await read(broadcast, 3, since=first.id)

    assert told[0]["event"] == "reset"
    assert told[0]["first"] == told[1]["id"]
    assert [e["subject"] for e in told[1:]] == ["t3", "t4"]


async def test_a_slow_subscriber_is_dropped_and_the_others_go_on(
    client: httpx.AsyncClient, broadcast: Broadcast, process: Process
) -> None:
    slow = broadcast.subscribe(Filter(), None)
    waiting = asyncio.ensure_future(anext(slow))
    await asyncio.sleep(0.05)
    await happen(client, "first")
    await waiting
    (event,) = await process.stream.last(1)
    for _ in range(SLOW_AFTER + 1):
        broadcast._hand_out(event)

    with pytest.raises(StopAsyncIteration):
        await anext(slow)
    assert (await read(broadcast, 1))[0]["subject"] == "first0"


async def test_a_thousand_subscribers_cost_one_read_of_the_stream(
    client: httpx.AsyncClient, broadcast: Broadcast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    follow = process.stream.follow

    async def counted(*args: Any, **more: Any) -> Any:
        nonlocal reads
        reads += 1
        return await follow(*args, **more)

    monkeypatch.setattr(process.stream, "follow", counted)
    newest = await process.stream.newest()
    reading = [asyncio.create_task(read(broadcast, 10, since=newest)) for _ in range(1000)]
    await asyncio.sleep(0.1)
    await happen(client, "t", 10)

    found = await asyncio.gather(*reading)

    assert all([e["subject"] for e in one] == [f"t{n}" for n in range(10)] for one in found)
    assert reads < 100  # each of the ten events may wake each of the two readers of this process


@pytest.mark.parametrize("query", ["tag=../x", "types=no.such", "since=yesterday", "other=1"])
async def test_a_wrong_parameter_is_refused_with_a_hint(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.get(f"/api/events?{query}")

    assert answer.status_code == 422
    assert answer.json()["hint"]
