"""Webhooks: signed, at least once, each receiver for itself, and to public addresses only."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from standardwebhooks import Webhook as Reference

from functions.kernel.process.lifecycle import Process
from functions.people.webhooks import message_id, payload, sentence
from state.events import SENTENCES, UNREADABLE, Event
from state.settings import Settings
from state.webhooks import Receivers, is_public, seconds
from tests.labs import dump, events_of, eventually, open_tag, refused, settled, told
from triggers.events import LONGEST_BACKOFF_S, MAX_DELIVERIES, serve_webhooks


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"silent_s": 0.2, "webhook_private": True, "stale_s": 6.0})


@pytest.fixture(autouse=True)
def _retries_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triggers.delivery.FIRST_BACKOFF_S", 0.02)


@dataclass
class Got:
    """One request as a receiver saw it."""

    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass
class Receiver:
    """An HTTP server that answers as it is told."""

    answer: Callable[[Got], tuple[int, dict[str, str]]] = lambda got: (200, {})
    got: list[Got] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?token=s3cret"

    def accepted(self) -> set[str]:
        """Ids of the messages that were taken."""
        return {got.id for got, status in self._answers if 200 <= status < 300}

    def __post_init__(self) -> None:
        self._answers: list[tuple[Got, int]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            values = dict(line.split(": ", 1) for line in head[1:] if line)
            kept = {name.lower(): value for name, value in values.items()}
            body = await reader.readexactly(int(headers["content-length"]))
            got = Got(head[0].split()[1], kept, body)
            self.got.append(got)
            status, more = self.answer(got)
            self._answers.append((got, status))
            lines = [f"HTTP/1.1 {status} x", "content-length: 0", "connection: close"]
            lines += [f"{name}: {value}" for name, value in more.items()]
            writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiving(
    answer: Callable[[Got], tuple[int, dict[str, str]]] = lambda got: (200, {}),
) -> AsyncIterator[Receiver]:
    """A receiver on a port of its own."""
    receiver = Receiver(answer)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    async with server:
        yield receiver


@asynccontextmanager
async def delivering(process: Process) -> AsyncIterator[None]:
    """What the events process does for webhooks."""
    stop = asyncio.Event()
    task = asyncio.create_task(serve_webhooks(process, Receivers(private=True), stop))
    try:
        yield
    finally:
        stop.set()
        await task


async def dropped(process: Process, webhook_id: str) -> None:
    """Until its consumer group is there no more."""
    deadline = time.monotonic() + 60
    while f"webhook:{webhook_id}" in (await process.stream.lags())["bindings"]:
        assert time.monotonic() < deadline, "it never was"
        await asyncio.sleep(0.02)


async def added(client: httpx.AsyncClient, receiver: Receiver, **more: Any) -> tuple[str, str]:
    """Id and secret of a new webhook."""
    answer = await told(client, "/api/webhook/add", url=receiver.url, **more)
    return answer["id"], answer["secret"]


async def happen(client: httpx.AsyncClient, count: int, tag: str = "t") -> list[str]:
    """So many events `tag.created`; their subjects."""
    for nth in range(count):
        await open_tag(client, f"{tag}{nth}")
    return [f"{tag}{nth}" for nth in range(count)]


async def row(client: httpx.AsyncClient, webhook_id: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = (await told(client, "/api/webhook/list"))["webhooks"]
    return next(r for r in rows if r["id"] == webhook_id)


# -- delivery


async def test_an_event_arrives_signed_and_readable(client: httpx.AsyncClient, process: Process) -> None:
    async with receiving() as receiver, delivering(process):
        await open_tag(client, "before")
        webhook_id, secret = await added(client, receiver, types=["tag.created"], tag="mar11")
        await happen(client, 2)
        await open_tag(client, "mar11")
        await told(client, "/api/search/set-strategy", tag="mar11", mode="exploit", reason="r")
        await eventually(lambda: len(receiver.got) == 1)
        await settled(process, f"webhook:{webhook_id}")

    (got,) = receiver.got
    (event,) = [e for e in await process.stream.last(10) if (e.subject, e.type) == ("mar11", "tag.created")]
    assert Reference(secret).verify(got.body, got.headers) == got.json
    assert got.id == message_id(event.id, webhook_id)
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert got.target == "/hook?token=s3cret"
    assert got.json["type"] == "tag.created"
    assert (got.json["timestamp"], got.json["data"]) == (event.time, dict(event.data))
    assert (got.json["id"], got.json["tag"], got.json["lab"]) == (event.id, "mar11", process.settings.lab)
    assert got.json["text"] == got.json["content"] == f"[{process.settings.lab}] mar11 was opened."
    shown = await row(client, webhook_id)
    assert (shown["status"], shown["delivered"], shown["failed"], shown["last_status"]) == (
        "active",
        1,
        0,
        200,
    )


async def test_a_poisoned_receiver_ends_in_dead_letters_while_others_go_on(
    client: httpx.AsyncClient, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triggers.events.MAX_DELIVERIES", 3)
    async with receiving(lambda got: (500, {})) as bad, receiving() as good, delivering(process):
        bad_id, _ = await added(client, bad, types=["tag.created"])
        good_id, _ = await added(client, good, types=["tag.created"])
        subjects = await happen(client, 3)
        await eventually(lambda: len(good.accepted()) == 3)
        await eventually(lambda: len(bad.got) == 9)
        await settled(process, f"webhook:{bad_id}", f"webhook:{good_id}")
        letters = (await told(client, "/api/event/dead"))["dead"]
        first_ids = {g.id for g in bad.got}
        bad.answer = lambda got: (200, {})
        again = await told(client, "/api/event/redrive", id=letters[0]["id"])
        await eventually(lambda: len(bad.accepted()) == 1)
        await told(client, "/api/event/discard", id=letters[1]["id"])

    assert {letter["binding"] for letter in letters} == {f"webhook:{bad_id}"}
    assert sorted(letter["event"]["subject"] for letter in letters) == subjects
    assert letters[0]["error"] == "Undelivered: the receiver answered 500"
    assert again["redriven"] == [letters[0]["id"]]
    assert bad.accepted() <= first_ids  # the receiver knows it by its id
    assert len(good.got) == 3
    left = (await told(client, "/api/event/dead"))["dead"]
    assert [letter["id"] for letter in left] == [letters[2]["id"]]


def test_the_retries_outlast_a_receiver_that_is_down_for_an_hour() -> None:
    rests = [min(2.0**n, LONGEST_BACKOFF_S) for n in range(MAX_DELIVERIES - 1)]

    assert 3600 < sum(rests) < 7200


async def test_a_slow_receiver_delays_nobody(client: httpx.AsyncClient, process: Process) -> None:
    hang = asyncio.Event()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await hang.wait()
        writer.close()

    server = await asyncio.start_server(swallow, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, receiving() as good, delivering(process):
        slow = await told(client, "/api/webhook/add", url=f"http://127.0.0.1:{port}/")
        await added(client, good, types=["tag.created"])
        await happen(client, 5)
        await eventually(lambda: len(good.accepted()) == 5)
        owed = (await process.stream.lags())["bindings"][f"webhook:{slow['id']}"]
        hang.set()

    assert owed["undelivered"] + owed["unacknowledged"] > 0


async def test_a_receiver_that_asks_for_a_pause_gets_it(client: httpx.AsyncClient, process: Process) -> None:
    at: list[float] = []

    def busy_once(got: Got) -> tuple[int, dict[str, str]]:
        at.append(asyncio.get_running_loop().time())
        return (429, {"retry-after": "1"}) if len(at) == 1 else (200, {})

    async with receiving(busy_once) as receiver, delivering(process):
        await added(client, receiver, types=["tag.created"])
        await happen(client, 3)
        await eventually(lambda: len(receiver.accepted()) == 3)

    assert at[1] - at[0] >= 0.95


async def test_a_receiver_that_is_gone_for_good_is_disabled(
    client: httpx.AsyncClient, process: Process
) -> None:
    async with receiving(lambda got: (410, {})) as receiver, delivering(process):
        webhook_id, _ = await added(client, receiver, types=["tag.created"])
        await happen(client, 2)
        await eventually(lambda: len(receiver.got) == 1)
        await dropped(process, webhook_id)
        shown = await row(client, webhook_id)
        await happen(client, 2, "later")

    assert (shown["status"], shown["last_status"]) == ("disabled", 410)
    assert shown["disabled_reason"] == "the receiver answered 410"
    assert len(receiver.got) == 1
    (event,) = await events_of(process, "webhook.disabled")
    assert event["webhook_id"] == webhook_id
    assert f"webhook:{webhook_id}" not in (await process.stream.lags())["bindings"]


async def test_a_removed_webhook_gets_nothing_more_and_holds_nothing_back(
    client: httpx.AsyncClient, process: Process
) -> None:
    async with receiving() as receiver, receiving() as other, delivering(process):
        webhook_id, _ = await added(client, receiver, types=["tag.created"])
        await added(client, other, types=["tag.created"])
        await happen(client, 1)
        await eventually(lambda: len(receiver.got) == 1)
        await told(client, "/api/webhook/remove", id=webhook_id)
        await happen(client, 3, "later")
        await eventually(lambda: len(other.got) == 4)

    assert len(receiver.got) == 1
    assert f"webhook:{webhook_id}" not in (await process.stream.lags())["bindings"]
    left = {key: value for key, value in (await dump(process.lab)).items() if not key.endswith(":events")}
    assert webhook_id not in str(left)
    await refused(client, 404, "/api/webhook/remove", id=webhook_id)
    await refused(client, 404, "/api/webhook/test", id=webhook_id)


# -- requests that are refused


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("secret", secret) for secret in ("abc", "whsec_!!!!", "whsec_" + "QUJD" * 5)),
        *(("url", url) for url in ("file:///etc/passwd", "https://user:pw@example.com/", "http://[::1")),
        ("url", f"http://{'a' * 64}.example/"),
    ],
)
async def test_what_is_no_plain_url_or_secret_is_refused(
    client: httpx.AsyncClient, field: str, value: str
) -> None:
    document = await refused(client, 422, "/api/webhook/add", **{"url": "http://127.0.0.1/", field: value})

    assert field == "url" or document["errors"][0]["field"] == field


# -- addresses

PRIVATE = [
    *("127.0.0.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
    *("192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1"),
    *("fe80::1%eth0", "fd00::1", "fec0::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254"),
    *("64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2001:db8::1", "no address"),
]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_known(address: str) -> None:
    assert not is_public(address)


def resolving(*answers: Sequence[str]) -> Callable[[str, int], Any]:
    """A resolver that gives these answers, one after the other, then the last for ever."""
    left = list(answers)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["93.184.215.14", "10.0.0.1"], ["::ffff:10.0.0.1"]])
async def test_nothing_is_sent_where_one_address_is_private(addresses: list[str]) -> None:
    receivers = Receivers(private=False, resolve=resolving(addresses))

    reply = await receivers.send("http://hook.example/", {}, b"{}")

    assert (reply.status, reply.error) == (None, "the host's address is not public")


async def test_a_name_that_is_rebound_after_the_check_gets_nothing() -> None:
    async with receiving() as receiver:
        receivers = Receivers(private=False, resolve=resolving(["93.184.215.14"], ["127.0.0.1"]))
        url = f"http://hook.example:{receiver.port}/"

        await receivers.check(url)
        reply = await receivers.send(url, {}, b"{}")

    assert reply.error == "the host's address is not public"
    assert receiver.got == []


async def test_the_connection_goes_to_the_address_that_was_checked_under_the_hosts_name_and_by_no_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with receiving() as receiver:
        receivers = Receivers(private=True, resolve=resolving(["127.0.0.1"]))

        reply = await receivers.send(f"http://hook.invalid:{receiver.port}/a", {"x-a": "b"}, b"{}")

    assert reply.status == 200
    assert receiver.got[0].headers["host"] == f"hook.invalid:{receiver.port}"
    assert receiver.got[0].target == "/a"


async def test_a_private_address_is_refused_unless_the_setting_allows_it() -> None:
    with pytest.raises(Exception, match="not public") as refusal:
        await Receivers(private=False).check("http://127.1:3111/")

    assert "NIGHTJAR_WEBHOOK_PRIVATE" in refusal.value.hint  # type: ignore[attr-defined] # a NightjarError


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, 0),
        ("2", 2),
        ("1000000", 300),
        ("-1", 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
    ],
)
def test_a_wish_to_be_left_alone_is_bounded(header: str | None, expected: float) -> None:
    assert seconds(header) == expected


# -- messages


@given(
    st.sampled_from(sorted(SENTENCES)) | st.text(),
    st.dictionaries(
        st.text() | st.sampled_from(["reason", "hypothesis", "val_bpb"]), st.text() | st.floats()
    ),
)
def test_every_event_has_one_harmless_sentence(kind: str, data: dict[str, Any]) -> None:
    envelope = {"type": kind, "lab": "lab", "tag": None, "subject": "@everyone", "data": data}

    said = sentence(envelope)

    assert said
    assert len(said) <= 2000
    assert "\n" not in said
    assert "@everyone" not in said
    assert not set("<>") & set(said)


def test_what_an_agent_writes_mentions_nobody_and_links_nothing() -> None:
    hypothesis = "<!channel> @everyone <@U1> [click](http://evil.example) `x` **y**"
    envelope = {
        "type": "experiment.registered",
        "lab": "lab",
        "tag": "t",
        "subject": "t-1",
        "data": {"hypothesis": hypothesis},
    }

    said = sentence(envelope)

    for trap in ("<!channel", "@everyone", "<@", "](", "://", "**"):
        assert trap not in said


DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@example(data='{"a": 1e999}')
@example(data='{"a": [NaN]}')
@example(data='{"a": -Infinity}')
@example(data='{"a": ' + "[" * 900 + "]" * 900 + "}")
@example(data='{"a": ' + "9" * 5000 + "}")
@given(data=st.dictionaries(st.text(), DATA, max_size=3).map(json.dumps) | DATA.map(json.dumps) | st.text())
def test_whatever_an_event_holds_every_reader_can_read_what_is_sent_of_it(data: str) -> None:
    fields = {"type": "gpu.idle", "time": "now", "tag": "", "subject": "s", "data": data}

    event = Event.parse("lab", "1-1", fields)

    sent = json.loads(payload(event.envelope()), parse_constant=pytest.fail)
    assert sent["type"] == event.type
    assert json.dumps(event.envelope(), allow_nan=False)
    if event.type != UNREADABLE:
        assert event.data == json.loads(data)
