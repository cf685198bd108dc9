"""URLs that name several servers of one Redis: its Sentinels, or nodes of its Cluster.

redis+sentinel://USER:PASSWORD@HOST:26379,HOST:26379/SERVICE
redis+cluster://USER:PASSWORD@HOST:6379,HOST:6379 (rediss+cluster:// for TLS)
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import redis
from redis import exceptions
from redis.asyncio.connection import Connection, SSLConnection
from redis.connection import parse_url
from redis.crc import key_slot
from redis.sentinel import Sentinel

PORTS = {"redis+sentinel": 26379, "redis+cluster": 6379, "rediss+cluster": 6379}
"""Default port of the servers, by the URL's scheme."""
ASKED_S = 2.0
"""Seconds for one server to say where the primary is; then the next one is asked."""

Address = tuple[str, int]


@dataclass(frozen=True)
class Servers:
    """Servers that know the primary of a lab."""

    addresses: tuple[Address, ...]
    service: str | None
    """Name under which Sentinels know the primary; None: the servers are nodes of a Cluster."""
    options: dict[str, Any]
    """Options of a connection to the primary, as redis-py names them."""


def servers_of(url: str) -> Servers | None:
    """The Sentinels or nodes that a URL names; None: it names a Redis itself.

    Raises:
        ValueError: no service of Sentinels, a database of a Cluster other than 0, or a port that is no number.
    """
    at = urlsplit(url)
    if at.scheme not in PORTS:
        return None
    scheme, _, kind = at.scheme.partition("+")
    user, _, hosts = at.netloc.rpartition("@")
    service, _, db = (
        at.path.strip("/").partition("/") if kind == "sentinel" else (None, "", at.path.strip("/"))
    )
    addresses = []
    for host in hosts.split(","):
        name = urlsplit(f"//{host}")
        addresses.append((name.hostname or "localhost", name.port or PORTS[at.scheme]))
    plain = f"{scheme}://{user}@localhost/{db}?{at.query}"
    options: dict[str, Any] = dict(parse_url(plain))  # type: ignore[no-untyped-call, unused-ignore]
    del options["host"]
    if service == "" or (service is None and (db not in ("", "0") or options.get("db"))):
        raise ValueError("no service, or a database that a Cluster does not have")
    return Servers(tuple(addresses), service, options)


def client_of(url: str, **options: Any) -> redis.Redis:
    """A client of the Redis at this URL, or of the primary that its Sentinels name at each connection.

    Raises:
        ValueError: it is no such URL, or one of a Cluster.
    """
    if (found := servers_of(url)) is None or found.service is None:
        return redis.Redis.from_url(url, **options)  # type: ignore[no-any-return, no-untyped-call, unused-ignore]
    sentinel = Sentinel(found.addresses, socket_timeout=ASKED_S)  # type: ignore[no-untyped-call, unused-ignore]
    return sentinel.master_for(found.service, **{**found.options, **options})  # type: ignore[no-any-return, no-untyped-call, unused-ignore]


class OwnerConnection(Connection):
    """A connection to the primary that owns a slot. Each opening asks the nodes which one it is."""

    def __init__(self, *, nodes: list[Address], slot: int, **options: Any) -> None:
        super().__init__(**options)
        self._nodes = nodes
        """Shared by all connections. A node that does not answer is asked last from then on."""
        self._slot = slot

    async def connect(self) -> None:
        """Raises RedisError: no node knows the owner, the owner does not answer, or it refuses us."""
        if self.is_connected:
            return
        owner = await self._owner()
        if owner != (self.host, self.port):
            await self.disconnect(nowait=True)
            await self._connect_to(owner)

    async def read_response(self, *shape: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*shape, **options)
        except exceptions.MovedError:
            await self.disconnect(nowait=True)  # the next opening finds the owner
            raise

    async def _owner(self) -> Address:
        """The owner's address. The connection to the node that named it stays open."""
        failed: exceptions.RedisError = exceptions.ConnectionError("no node of the Cluster is named")
        for node in tuple(self._nodes):
            try:
                async with asyncio.timeout(ASKED_S):
                    await self._connect_to(node)
                    await self.send_command("CLUSTER", "SLOTS")
                    ranges = await self.read_response()
                for first, last, (host, port, *_), *_ in ranges:
                    if first <= self._slot <= last:
                        return str(host or node[0]), int(port)
                failed = exceptions.ClusterDownError("no node owns the slot of the lab")
            except (exceptions.ConnectionError, exceptions.TimeoutError) as problem:
                failed = problem
            except TimeoutError:
                failed = exceptions.TimeoutError(f"no answer from {node[0]}:{node[1]}")
            await self.disconnect(nowait=True)
            self._nodes.remove(node)
            self._nodes.append(node)
        raise failed

    async def _connect_to(self, address: Address) -> None:
        self.host, self.port = address
        await super().connect()  # type: ignore[no-untyped-call]


class SecureOwnerConnection(OwnerConnection, SSLConnection):
    """The same with TLS."""


def owner_options(servers: Servers, key: str) -> dict[str, Any]:
    """Options of a pool whose connections lead to the owner of a key."""
    secure = "connection_class" in servers.options
    return {
        **servers.options,
        "connection_class": SecureOwnerConnection if secure else OwnerConnection,
        "nodes": list(servers.addresses),
        "slot": key_slot(key.encode()),
    }
