"""Endpoint of a private Redis server: its two files, and the commands that probe it."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from state.connection import connection_options
from state.redis_urls import client_of

SOCKET_DIR = "nightjar-redis-"
"""Prefix of the short directories for sockets whose path in the data directory would be too long."""

OURS = "redis.json"
WORKERS = "redis-worker.json"


def endpoint_url(data: Path, *, worker: bool = False) -> str | None:
    try:
        url = json.loads((data / (WORKERS if worker else OURS)).read_bytes())["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url if isinstance(url, str) else None


def forget(data: Path) -> None:
    """Remove the endpoint files, and the short socket directory that a killed owner left behind."""
    socket_dir = Path(unquote(urlsplit(endpoint_url(data) or "").path)).parent
    if socket_dir.name.startswith(SOCKET_DIR):
        with contextlib.suppress(OSError):
            (socket_dir / "redis.sock").unlink(missing_ok=True)
            socket_dir.rmdir()
    for name in (OURS, WORKERS):
        (data / name).unlink(missing_ok=True)


def _client(url: str) -> redis.Redis:
    return client_of(
        url,
        socket_timeout=2.0,
        socket_connect_timeout=2.0,
        retry=Retry(NoBackoff(), 0),
        **connection_options(url),
    )


def answers(url: str) -> bool:
    try:
        with _client(url) as client:
            return bool(client.ping())
    except (redis.RedisError, OSError, ValueError):
        return False


def says_anything(address: Path, within_s: float) -> bool:
    """Whether the server at this socket answers at all. "Loading", "full" and "unknown user" are answers."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(within_s)
            connection.connect(str(address))
            with contextlib.suppress(BrokenPipeError):  # one that is full answers and hangs up unasked
                connection.sendall(b"PING\r\n")
            return bool(connection.recv(1))
    except OSError:
        return False


def shut_down(url: str) -> bool:
    try:
        with _client(url) as client:
            client.shutdown()
    except (redis.RedisError, OSError, ValueError):
        return False
    return True
