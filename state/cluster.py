"""Connections to the node of a Redis Cluster that owns a lab's slot.

All keys of a lab have one hash tag, so one node has them all. A plain client on that node does what a lab needs.
Pub/Sub reaches every node.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis import exceptions
from redis.asyncio.connection import Connection, SSLConnection
from redis.crc import key_slot

from state.redis_urls import ASKED_S, Address, Servers


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
