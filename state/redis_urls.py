"""URLs that name several servers of one Redis: its Sentinels, or nodes of its Cluster.

redis+sentinel://USER:PASSWORD@HOST:26379,HOST:26379/SERVICE
redis+cluster://USER:PASSWORD@HOST:6379,HOST:6379 (rediss+cluster:// for TLS)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.connection import parse_url
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
