"""Webhooks: receivers of the lab's events over HTTP, with counts of their deliveries, and how a delivery is sent.

Redis holds two secrets in plain text: the signing key, since every delivery is signed with it, and the URL, which is
a secret of some receivers. Neither appears in events, logs or answers, except the answer of `webhook::add`.

Deliveries go to public addresses only. All addresses of a name are checked, and the connection goes to a checked
address. A later change of the name has no effect."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

from pydantic import Field

from state.change import NOW, Change, exists, hmget, size, zscore
from state.errors import Conflict, Invalid, NotFound
from state.facts import Spread
from state.reads import Store, main_noise
from state.records import Record
from state.stream import Stream, Subscription

if TYPE_CHECKING:
    import httpx


TIMEOUT_S = 10.0
"""For a whole delivery, from resolving the name to reading the status."""
MOST_ADDRESSES = 4
LONGEST_RETRY_AFTER_S = 300.0
NAT64 = IPv6Network("64:ff9b::/96")
GLOBAL_UNICAST = IPv6Network("2000::/3")
"""The assigned public IPv6 addresses; `is_global` is also true for the old site-local ones."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host name, for a port."""


@dataclass(frozen=True)
class Reply:
    """The result of one delivery."""

    status: int | None
    """The HTTP status; None if there was no answer."""
    error: str = ""
    """The error, without the URL; empty if the event was delivered."""
    retry_after_s: float = 0.0
    """Seconds that the receiver asks us to wait."""


async def resolve(host: str, port: int) -> list[str]:
    """Ask the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Receivers:
    """Sends to receivers; `private` allows addresses that are not public."""

    def __init__(self, *, private: bool, resolve: Resolve = resolve) -> None:
        self._private = private
        self._resolve = resolve

    async def check(self, url: str) -> None:
        """Check that events may be sent to this URL.

        Raises:
            Invalid: it is not a plain http(s) URL, its name does not resolve, or an address is not public.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._addresses(parsed(url))
        except TimeoutError as problem:
            raise Invalid("the host's name did not resolve in time", hint="check the URL") from problem

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """POST once."""
        import httpx  # imported late, here and below: it takes a tenth of a second, and few processes need it

        try:
            async with asyncio.timeout(TIMEOUT_S):
                target = parsed(url)
                for address in (found := await self._addresses(target)):
                    try:
                        return await self._post(target, address, headers, body)
                    except (httpx.ConnectError, httpx.ConnectTimeout):
                        if address == found[-1]:
                            raise
        except Invalid as problem:
            return Reply(None, problem.detail)
        except (TimeoutError, httpx.TimeoutException):
            return Reply(None, f"no answer within {TIMEOUT_S:.0f} s")
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            return Reply(None, f"the connection failed: {type(problem).__name__}")
        raise AssertionError("a name that resolves has an address")

    async def _addresses(self, url: httpx.URL) -> Sequence[str]:
        host = url.raw_host.decode("ascii")
        try:
            found = await self._resolve(host, url.port or (443 if url.scheme == "https" else 80))
        except (OSError, UnicodeError) as problem:  # UnicodeError: a label is empty or too long
            raise Invalid("the host's name does not resolve", hint="check the URL") from problem
        if not found:
            raise Invalid("the host's name has no address", hint="check the URL")
        if not self._private and not all(is_public(address) for address in found):
            raise Invalid(
                "the host's address is not public",
                hint="NIGHTJAR_WEBHOOK_PRIVATE=true allows private addresses, for all callers who may add webhooks",
            )
        return found[:MOST_ADDRESSES]

    async def _post(self, url: httpx.URL, address: str, headers: Mapping[str, str], body: bytes) -> Reply:
        import httpx

        name = url.raw_host.decode("ascii")
        # one client per delivery, so that two names with one address never share a connection
        async with (
            httpx.AsyncClient(verify=self._tls, trust_env=False, timeout=TIMEOUT_S / 2) as http,
            http.stream(
                "POST",
                url.copy_with(host=address),
                headers={**headers, "host": url.netloc.decode("ascii")},
                content=body,
                extensions={"sni_hostname": name},
                follow_redirects=False,
            ) as response,
        ):
            return reply(response.status_code, response.headers.get("retry-after"))

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        import httpx

        return httpx.create_ssl_context(trust_env=False)


def reply(status: int, retry_after: str | None) -> Reply:
    """The result for a status: only 2xx is a delivery."""
    if 200 <= status < 300:
        return Reply(status)
    what = ": redirects are not followed" if 300 <= status < 400 else ""
    busy = status in (429, 503)
    return Reply(status, f"the receiver answered {status}{what}", seconds(retry_after) if busy else 0.0)


def seconds(retry_after: str | None) -> float:
    """A Retry-After header in seconds, at most LONGEST_RETRY_AFTER_S; 0 if it is empty or not valid."""
    if not retry_after:
        return 0.0
    try:
        if retry_after.strip().isdecimal():
            wanted = float(retry_after)
        else:
            wanted = parsedate_to_datetime(retry_after).timestamp() - time.time()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(wanted, 0.0), LONGEST_RETRY_AFTER_S)


def parsed(url: str) -> httpx.URL:
    """Parse a webhook's URL. Raises Invalid: no URL, not http(s), or it holds a user name or password."""
    import httpx

    try:
        found = httpx.URL(url)
        host = found.host  # decodes an international name
    except (httpx.InvalidURL, UnicodeError) as problem:
        raise Invalid("this is not a URL", hint="send https://host/path") from problem
    if found.scheme not in ("http", "https") or not host:
        raise Invalid("a webhook's URL begins with https:// or http://", hint="send https://host/path")
    if found.userinfo:
        raise Invalid(
            "a webhook's URL must not hold a user name or password", hint="check the signature instead"
        )
    return found


def shown(url: str) -> str:
    """A URL without its path, which may hold a receiver's secret."""
    import httpx

    found = httpx.URL(url)
    return f"{found.scheme}://{found.netloc.decode('ascii')}/..."


def is_public(address: str) -> bool:
    """Whether an address and any IPv4 address inside it are public."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = _wrapped(found)
    if isinstance(found, IPv6Address) and not inner and found not in GLOBAL_UNICAST:
        return False
    return all(ip.is_global and not ip.is_multicast and not ip.is_reserved for ip in (inner or (found,)))


def _wrapped(address: IPv4Address | IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses inside an IPv6 address (mapped, 6to4, Teredo, NAT64)."""
    if isinstance(address, IPv4Address):
        return ()
    if address.ipv4_mapped:
        return (address.ipv4_mapped,)
    if address.sixtofour:
        return (address.sixtofour,)
    if address.teredo:
        return address.teredo
    return (IPv4Address(int(address) & 0xFFFFFFFF),) if address in NAT64 else ()


MOST = 100
"""Most webhooks of a lab: each has its own consumer group."""


class Webhook(Record):
    """A receiver of events."""

    id: str
    url: str = Field(repr=False)
    secret: str = Field(repr=False)
    """`whsec_<base64>`."""
    types: tuple[str, ...] | None = None
    """None: every type."""
    tag: str | None = None
    description: str = ""
    created_at: float
    disabled_at: float | None = None
    disabled_reason: str | None = None

    @property
    def binding(self) -> str:
        """Its consumer group; dead letters name it."""
        return _group(self.id)


class Deliveries(Record):
    """Delivery attempts to one receiver."""

    delivered: int = 0
    failed: int = 0
    """Number of attempts, not of events."""
    last_at: float | None = None
    last_status: int | None = None
    last_error: str | None = None


def new_secret() -> str:
    """A random signing secret of 32 bytes."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


class Webhooks(Store):
    """All webhooks of the lab."""

    async def add(
        self, *, url: str, secret: str, types: tuple[str, ...] | None, tag: str | None, description: str
    ) -> str:
        """Register a receiver, for events from now on; answers its id. Raises Conflict: there are MOST."""
        webhook_id = f"wh_{secrets.token_hex(8)}"
        keys, group = self._lab.keys, _group(webhook_id)
        told = {"webhook_id": webhook_id, "types": types, "tag": tag, "description": description}

        async def decide(change: Change) -> None:
            (count,) = await change.read(size(keys("webhooks")))
            if count >= MOST:
                raise Conflict(
                    f"there are {MOST} webhooks, the most that a lab may have",
                    hint="POST /api/webhook/remove some",
                )
            change.hset(
                keys("webhooks", webhook_id),
                {
                    "url": url,
                    "secret": secret,
                    "types": json.dumps(types),
                    "tag": tag or "",
                    "description": description,
                    "created_at": NOW,
                },
            )
            change.zadd(keys("webhooks"), {webhook_id: NOW})
            change.xgroup_create(keys("events"), group, "$")
            change.xgroup_create(keys("redriven", group), group, "0")
            change.zadd(keys("bindings"), dict.fromkeys(_bindings(group), NOW))
            change.emit("webhook.added", None, webhook_id, told)

        await self._lab.change(decide)
        return webhook_id

    async def get(self, webhook_id: str) -> Webhook:
        """One webhook. Raises NotFound: there is none with this id."""
        stored = await self._lab.hash(self._lab.keys("webhooks", webhook_id))
        if not stored:
            raise NotFound(f"there is no webhook {webhook_id!r}", hint="POST /api/webhook/list names them")
        return Webhook.parse({**stored, "id": webhook_id})

    async def all(self) -> list[Webhook]:
        """Every webhook, oldest first."""
        return [webhook for webhook, _ in await self.with_deliveries()]

    async def with_deliveries(self) -> list[tuple[Webhook, Deliveries]]:
        """Every webhook with the counts of its deliveries, oldest first."""
        keys = self._lab.keys
        ids: list[str] = await self._lab.command("ZRANGE", keys("webhooks"), 0, -1)
        stored = await self._lab.hashes([keys(part, i) for i in ids for part in ("webhooks", "deliveries")])
        return [
            (Webhook.parse({**one, "id": i}), Deliveries.parse(went))
            for i, one, went in zip(ids, stored[::2], stored[1::2], strict=True)
            if one
        ]

    async def spread(self, tag: str) -> Spread:
        """The noise of a tag's main class of GPU; it says how many digits a value has in a message."""
        return await self._lab.one(main_noise(self._lab, tag))

    async def remove(self, webhook_id: str) -> None:
        """Delete a receiver and its consumer group. Raises NotFound: there is none with this id."""
        keys = self._lab.keys

        async def decide(change: Change) -> bool:
            added_at, has_events = await change.read(
                zscore(keys("webhooks"), webhook_id), exists(keys("events"))
            )
            if added_at is None:
                return False
            self._end(change, webhook_id, has_events)
            change.zrem(keys("webhooks"), webhook_id)
            change.delete(keys("webhooks", webhook_id), keys("deliveries", webhook_id))
            change.emit("webhook.removed", None, webhook_id, {"webhook_id": webhook_id})
            return True

        if not await self._lab.change(decide):
            raise NotFound(f"there is no webhook {webhook_id!r}", hint="POST /api/webhook/list names them")

    async def disable(self, webhook_id: str, reason: str) -> bool:
        """Stop sending to it; operators still see it. False if it was disabled or removed before."""
        keys = self._lab.keys

        async def decide(change: Change) -> bool:
            webhook, has_events = await change.read(
                hmget(keys("webhooks", webhook_id), "created_at", "disabled_at"), exists(keys("events"))
            )
            if webhook["created_at"] is None or webhook["disabled_at"] is not None:
                return False
            self._end(change, webhook_id, has_events)
            change.hset(keys("webhooks", webhook_id), {"disabled_at": NOW, "disabled_reason": reason})
            told = {"webhook_id": webhook_id, "reason": reason}
            change.emit("webhook.disabled", None, webhook_id, told)
            return True

        return await self._lab.change(decide)

    async def note(self, webhook_id: str, status: int | None, error: str) -> None:
        """Count a delivery attempt; `error` is empty if it succeeded."""
        keys = self._lab.keys

        async def decide(change: Change) -> None:
            (added_at,) = await change.read(zscore(keys("webhooks"), webhook_id))
            if added_at is None:
                return
            deliveries = keys("deliveries", webhook_id)
            change.hincrby(deliveries, "failed" if error else "delivered")
            change.hset(deliveries, {"last_at": NOW, "last_status": status or "", "last_error": error[:500]})

        await self._lab.change(decide)

    def subscriptions(self, webhook: Webhook, consumer: str, stream: Stream) -> list[Subscription]:
        """Its subscriptions to the lab's events and to its redriven dead letters."""
        return [
            stream.events(webhook.binding, consumer, made=True),
            stream.redriven(webhook.binding, consumer, made=True),
        ]

    def _end(self, change: Change, webhook_id: str, has_events: bool) -> None:
        """Drop its consumer group and what waits for it alone."""
        keys, group = self._lab.keys, _group(webhook_id)
        change.zrem(keys("bindings"), *_bindings(group))
        if has_events:
            change.xgroup_destroy(keys("events"), group)
        change.delete(keys("redriven", group))


def _group(webhook_id: str) -> str:
    return f"webhook:{webhook_id}"


def _bindings(group: str) -> tuple[str, str]:
    """Its bindings to events and to redriven dead letters."""
    return f"events {group}", f"redriven:{group} {group}"
