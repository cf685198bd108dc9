"""Where a private Redis server answers: its redis.json, and the few commands that tell whether it lives."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

SOCKET_DIR = "nightjar-redis-"
"""Prefix of the short directories that hold a socket whose place in the data directory is too long."""


def endpoint_url(data: Path) -> str | None:
    try:
        url = json.loads((data / "redis.json").read_bytes())["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return url if isinstance(url, str) else None


def forget(data: Path) -> None:
    """Remove redis.json, and the short socket directory that a killed owner left behind."""
    socket_dir = Path(unquote(urlsplit(endpoint_url(data) or "").path)).parent
    if socket_dir.name.startswith(SOCKET_DIR):
        with contextlib.suppress(OSError):
            (socket_dir / "redis.sock").unlink(missing_ok=True)
            socket_dir.rmdir()
    (data / "redis.json").unlink(missing_ok=True)


def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        url, socket_timeout=2.0, socket_connect_timeout=2.0, retry=Retry(NoBackoff(), 0)
    )


def answers(url: str) -> bool:
    try:
        with _client(url) as client:
            return bool(client.ping())
    except (redis.RedisError, OSError, ValueError):
        return False


def says_anything(address: Path, within_s: float) -> bool:
    """Whether the server at this socket gives any answer: that it loads, is full or knows no such user is one."""
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


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, and for our eyes only."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
