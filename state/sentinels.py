"""URLs that name the Sentinels of a Redis: redis+sentinel://USER:PASSWORD@HOST:26379,HOST:26379/SERVICE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.connection import parse_url
from redis.sentinel import Sentinel

SCHEME = "redis+sentinel"
PORT = 26379
ASKED_S = 2.0
"""Seconds for one Sentinel to answer; then the next one is asked."""


@dataclass(frozen=True)
class Sentinels:
    """Addresses of Sentinels, and the service whose primary they know."""

    addresses: tuple[tuple[str, int], ...]
    service: str
    options: dict[str, Any]
    """Options of a connection to the primary, as redis-py names them."""


def sentinels_of(url: str) -> Sentinels | None:
    """The Sentinels that a URL names; None: it names a Redis itself.

    Raises:
        ValueError: it names no service, or a port is no number.
    """
    at = urlsplit(url)
    if at.scheme != SCHEME:
        return None
    user, _, hosts = at.netloc.rpartition("@")
    service, _, db = at.path.strip("/").partition("/")
    if not service:
        raise ValueError("no service")
    addresses = []
    for host in hosts.split(","):
        name = urlsplit(f"//{host}")
        addresses.append((name.hostname or "localhost", name.port or PORT))
    plain = f"redis://{user}@localhost/{db}?{at.query}"
    options: dict[str, Any] = dict(parse_url(plain))  # type: ignore[no-untyped-call, unused-ignore]
    del options["host"]
    return Sentinels(tuple(addresses), service, options)


def client_of(url: str, **options: Any) -> redis.Redis:
    """A client of the Redis at this URL, or of the primary that its Sentinels name at each connection."""
    if (found := sentinels_of(url)) is None:
        return redis.Redis.from_url(url, **options)  # type: ignore[no-any-return, no-untyped-call, unused-ignore]
    sentinel = Sentinel(found.addresses, socket_timeout=ASKED_S)  # type: ignore[no-untyped-call, unused-ignore]
    return sentinel.master_for(found.service, **{**found.options, **options})  # type: ignore[no-any-return, no-untyped-call, unused-ignore]
