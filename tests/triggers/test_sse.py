"""Server-sent events: every event exactly once and in order, however often the connection is cut."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import replace
from itertools import count, pairwise
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from state.errors import TooManyRequests
from state.events import Event
from state.stream import Stream, follows
from state.token_values import Proof
from tests.conftest import served_client
from tests.labs import open_tag, registered, tried
from triggers import sse
from triggers.sse import SLOW_AFTER, Broadcast, Filter, Outbox, Subscriber, broadcasting, encode


@pytest.fixture
async def broadcast(process: Process) -> AsyncIterator[Broadcast]:
    async with broadcasting(process) as found:
        yield found


@pytest.fixture
async def served(process: Process, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    """HTTP over a socket, as a stream that does not end needs it; at most two streams at once."""
    monkeypatch.setattr(sse, "STREAMS", 2)
    async with served_client(process) as http:
        yield http


async def streamed(
    http: httpx.AsyncClient, query: str, count: int, headers: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """The first events of GET /api/events."""
    text = b""
    async with http.stream("GET", f"/api/events?{query}", headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        async for piece in answer.aiter_bytes():
            text += piece
            if text.count(b"\nevent: ") >= count and text.endswith(b"\n\n"):
                break
    return parsed(text)


async def happen(client: httpx.AsyncClient, tag: str, count: int = 1) -> None:
    """One event, or several."""
    for nth in range(count):
        answer = await client.post("/api/experiment/setup", json={"tag": f"{tag}{nth}"})
        assert answer.status_code == 200


def parsed(sent: bytes) -> list[dict[str, Any]]:
    """The events in some whole blocks of the wire format."""
    found = []
    for block in sent.decode().strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines())
        if "data" in fields:
            found.append({"id": fields.get("id"), "event": fields["event"], **json.loads(fields["data"])})
    return found


async def read(
    broadcast: Broadcast, count: int, since: str | None = "0", wanted: Filter | None = None
) -> list[dict[str, Any]]:
    """The first events of a new connection, which is then cut."""
    found: list[dict[str, Any]] = []
    with broadcast.connected(wanted or Filter()) as subscriber:
        async with aclosing(broadcast.tell(subscriber, await broadcast.beginning(since))) as telling:
            async for sent in telling:
                found += parsed(sent)
                if len(found) >= count:
                    break
    return found[:count]


async def test_who_asks_for_the_head_of_a_stream_gets_it_and_holds_no_place(
    served: httpx.AsyncClient,
) -> None:
    answers = [await served.head("/api/events") for _ in range(5)]

    assert {(a.status_code, a.headers["content-type"].partition(";")[0]) for a in answers} == {
        (200, "text/event-stream")
    }
    assert (await served.get("/healthz")).status_code == 200


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


async def test_what_happens_before_the_reader_knows_where_to_begin_is_not_lost(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Stream(process.lab)  # the web process of `client` reads another
    after, newest, backlog_ends = own.after, own.newest, asyncio.Event()
    to_come = ["meanwhile"]

    async def looked(entry_id: str, count: int) -> list[Event]:
        page = await after(entry_id, count)
        if not page:
            backlog_ends.set()
        return page

    async def late() -> str:  # as while Redis is away
        with suppress(TimeoutError):
            await asyncio.wait_for(backlog_ends.wait(), 0.5)
        while to_come:
            await happen(client, to_come.pop())
        return await newest()

    monkeypatch.setattr(own, "after", looked)
    monkeypatch.setattr(own, "newest", late)
    await happen(client, "before")
    async with broadcasting(replace(process, stream=own)) as broadcast, asyncio.timeout(30):
        reading = asyncio.create_task(read(broadcast, 2))

        assert [e["subject"] for e in await reading] == ["before0", "meanwhile0"]


async def test_what_happens_while_an_idle_reader_looks_where_to_begin_is_not_lost(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Stream(process.lab)
    newest, looks = own.newest, count(1)
    async with broadcasting(replace(process, stream=own)) as broadcast:
        subscriber = Subscriber(Filter())

        async def meanwhile() -> str:
            if next(looks) == 2:  # nobody had come yet
                broadcast._subscribers.add(subscriber)
                await happen(client, "meanwhile")
            return await newest()

        monkeypatch.setattr(own, "newest", meanwhile)
        monkeypatch.setattr("triggers.sse.IDLE_S", 0.01)
        told = await asyncio.wait_for(subscriber.waiting.get(), 30)

    assert told is not None
    assert told.events[0][0].subject == "meanwhile0"


async def test_what_was_told_of_the_past_is_not_told_again(
    client: httpx.AsyncClient, broadcast: Broadcast
) -> None:
    told: list[str] = []
    with broadcast.connected(Filter()) as subscriber:
        await happen(client, "both")
        while subscriber.waiting.empty():  # noqa: ASYNC110 - a queue sets no event
            await asyncio.sleep(0.01)
        async with aclosing(broadcast.tell(subscriber, "0")) as telling, asyncio.timeout(30):
            async for sent in telling:
                told += [event["subject"] for event in parsed(sent)]
                if told == ["both0"]:
                    await happen(client, "later")
                elif told:
                    break

    assert told == ["both0", "later0"]


async def test_sixty_cuts_lose_nothing_and_repeat_nothing(
    client: httpx.AsyncClient, broadcast: Broadcast
) -> None:
    chance = random.Random(7)
    writing = asyncio.create_task(happen(client, "t", 150))
    seen: list[str] = []
    last = "0"
    for _ in range(60):
        for event in await read(broadcast, chance.randint(1, 2), since=last):
            seen.append(event["subject"])
            last = event["id"]
    await writing
    seen += [e["subject"] for e in await read(broadcast, 150 - len(seen), since=last)]

    assert seen == [f"t{n}" for n in range(150)]


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


async def test_a_token_gets_no_more_connections_by_reading_none_of_them(
    client: httpx.AsyncClient, process: Process
) -> None:
    broadcast, proof = Broadcast(process.stream, most=10, most_each=2), Proof("ann", "")
    await happen(client, "first")
    (event,) = await process.stream.last(1)

    with broadcast.connected(Filter(), proof) as slow, broadcast.connected(Filter(), proof):
        for _ in range(SLOW_AFTER + 1):
            broadcast._hand_out([event])
        assert broadcast.subscribers == 0
        assert await slow.next() is None
        with pytest.raises(TooManyRequests), broadcast.connected(Filter(), proof):
            pass

    with broadcast.connected(Filter(), proof):
        assert broadcast.subscribers == 1


async def test_two_hundred_subscribers_cost_one_read_of_the_stream(
    client: httpx.AsyncClient, broadcast: Broadcast, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_stream = Mock(wraps=process.stream.follow)
    monkeypatch.setattr(process.stream, "follow", read_stream)
    newest = await process.stream.newest()
    reading = [asyncio.create_task(read(broadcast, 10, since=newest)) for _ in range(200)]
    await asyncio.sleep(0.1)
    await happen(client, "t", 10)

    found = await asyncio.gather(*reading)

    assert all([e["subject"] for e in one] == [f"t{n}" for n in range(10)] for one in found)
    assert read_stream.call_count < 100  # each of the ten may wake each of the two readers of this process


async def test_a_subscriber_with_an_interval_is_sent_the_newest_of_each_tag_and_type(
    client: httpx.AsyncClient, broadcast: Broadcast
) -> None:
    for tag in ("a", "b"):
        await open_tag(client, tag)
    names = [await registered(client, tag) for tag in ("a", "a", "b", "a", "b")]

    found = await read(broadcast, 4, wanted=Filter(min_interval_s=60))

    assert [(e["event"], e["subject"]) for e in found] == [
        ("tag.created", "a"),
        ("tag.created", "b"),
        ("experiment.registered", names[3]),
        ("experiment.registered", names[4]),
    ]
    assert [e.get("superseded") for e in found] == [None, None, 2, 1]


def test_an_interval_passes_between_two_sends() -> None:
    outbox = Outbox(min_interval_s=10)

    def at(second: float, nth: int) -> float:
        event = Event(f"{nth}-0", "tag.created", "", "lab", "t", "t", {"n": nth}, None)
        outbox.add(event, encode(event))
        return outbox.due_in(second)

    assert at(100, 1) == 0  # the first after a quiet time waits for nothing
    assert [e["id"] for e in parsed(outbox.take(100))] == ["1-0"]
    assert outbox.due_in(101) == math.inf
    assert [at(101, 2), at(104, 3)] == [9, 6]
    assert outbox.due_in(110) == 0
    assert [(e["id"], e["superseded"]) for e in parsed(outbox.take(112))] == [("3-0", 1)]
    assert at(113, 4) == 9


async def test_a_cut_between_two_of_one_send_leaves_nothing_out_that_nothing_newer_stands_for(
    client: httpx.AsyncClient, broadcast: Broadcast
) -> None:
    chance = random.Random(3)
    for tag in ("a", "b", "c"):
        await open_tag(client, tag)
    writing = asyncio.gather(*[registered(client, chance.choice("abc")) for _ in range(100)])
    seen: list[dict[str, Any]] = []
    last = "0"
    for _ in range(60):
        seen += await read(broadcast, 1, since=last, wanted=Filter(min_interval_s=0.01))
        last = seen[-1]["id"]
        if writing.done() and last == await broadcast.beginning(None):
            break
    await writing

    ids = [e["id"] for e in seen]
    newest = {(e["tag"], e["event"]): e["id"] for e in await read(broadcast, 103)}
    assert all(follows(later, earlier) for earlier, later in pairwise(ids))
    assert set(newest.values()) <= set(ids)


async def test_the_last_events_are_the_last_of_those_that_are_wanted(
    served: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sse, "BACKLOG_PAGE", 3)
    await open_tag(served, "mar11")
    for value in (1.0, 0.9, 0.8, 0.7):
        await tried(served, value)
    await happen(served, "t", 5)

    bests = await streamed(served, "only=new_best&last=2", 2)
    all_there_are = await streamed(served, "only=new_best&last=100", 4)
    tag = await streamed(served, "tag=mar11&types=tag.created&last=1", 1)

    assert [e["data"]["val_bpb"] for e in bests] == [0.8, 0.7]
    assert [e["data"]["val_bpb"] for e in all_there_are] == [1.0, 0.9, 0.8, 0.7]
    assert [e["subject"] for e in tag] == ["mar11"]


async def test_last_event_id_wins_over_since_and_since_over_last(served: httpx.AsyncClient) -> None:
    await happen(served, "t", 5)
    ids = [e["id"] for e in await streamed(served, "since=0", 5)]

    header = await streamed(served, f"since={ids[0]}&last=5", 1, {"last-event-id": ids[2]})
    since = await streamed(served, f"since={ids[0]}&last=5", 1)

    assert header[0]["subject"] == "t3"
    assert since[0]["subject"] == "t1"


async def test_more_streams_than_one_process_serves_are_told_to_come_back(served: httpx.AsyncClient) -> None:
    async with served.stream("GET", "/api/events"), served.stream("GET", "/api/events"):
        refusal = await served.get("/api/events")

    assert refusal.status_code == 503
    assert refusal.headers["retry-after"]
    assert "Last-Event-ID" in refusal.json()["hint"]


async def test_a_quiet_stream_says_that_it_is_there(
    broadcast: Broadcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triggers.sse.HEARTBEAT_S", 0.05)
    with broadcast.connected(Filter(min_interval_s=3600)) as subscriber:
        async with aclosing(broadcast.tell(subscriber, await broadcast.beginning(None))) as telling:
            said = [await anext(telling) for _ in range(4)]

    assert said[1:] == [b": still here\n\n"] * 3


async def test_a_process_that_slept_lets_its_subscribers_come_back(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triggers.sse.AWAY_S", -1.0)  # every read counts as a sleep
    async with broadcasting(process) as broadcast:
        with broadcast.connected(Filter()) as subscriber:
            telling = broadcast.tell(subscriber, await broadcast.beginning(None))
            await anext(telling)
            reading = asyncio.ensure_future(anext(telling, None))
            await happen(client, "t")

            assert await reading is None


async def test_a_fault_of_one_read_ends_no_live_feed_for_good(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow, failed = process.stream.follow, asyncio.Event()

    async def faulty(entry_id: str, wait_s: float) -> list[Event]:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("something that nobody thought of")
        return await follow(entry_id, wait_s)

    monkeypatch.setattr(process.stream, "follow", faulty)
    async with broadcasting(process) as broadcast, asyncio.timeout(30):
        with broadcast.connected(Filter()) as subscriber:
            await failed.wait()
            await happen(client, "t")

            told = await subscriber.next()

    assert told is not None
    assert [event.type for event, _ in told.events] == ["tag.created"]


@pytest.mark.parametrize(
    "query",
    [
        *("tag=../x", "types=no.such", "since=yesterday", "since=99999999999999999999", "other=1"),
        *("min_interval=often", "min_interval=nan", "min_interval=-1", "min_interval=1e9", "only=old_best"),
        *("only=new_best&types=gpu.idle", "last=-1", "last=1001"),
    ],
)
async def test_a_wrong_parameter_is_refused_with_a_hint(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.get(f"/api/events?{query}")

    assert answer.status_code == 422
    assert answer.json()["hint"]
