"""A private Redis server: its two endpoint files, the commands that probe it, and the rights of its users."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from state.connection import connection_options
from state.keys import Keys
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


WORKER = "worker"
"""The workers' user of the embedded server."""

_OF_WORKERS = """
    auth hello ping select client|setname info time script|load evalsha multi exec discard watch unwatch
    del exists expire persist get set incr incrby unlink publish subscribe unsubscribe
    hdel hexists hget hgetall hincrby hincrbyfloat hlen hmget hset hsetnx hstrlen
    blmove lmove llen lpos lrange lrem rpush sadd scard sismember smembers srem
    xadd xlen xrange xrevrange xtrim
    zadd zcard zcount zrange zrangebyscore zrank zrem zremrangebyscore zscore
"""
"""RQ's commands. Every Redis since 7.0 knows all of them: a server refuses a list with one unknown name."""

_OF_THE_LAB = (
    "@all",
    "-@admin",
    "-@dangerous",
    "info",
    "restore",
    "client|pause",
    "client|unpause",
    "config|get",
    "keys",
)
"""RESTORE and CLIENT PAUSE are for backups. CONFIG GET shows how durable a write is. KEYS is for a prompt."""


def worker_rules() -> list[str]:
    """For RQ workers: its keys and channels alone. All else they ask the lab for, over HTTP."""
    return ["~rq:*", "&rq:pubsub:*", "-@all", *_granted(_OF_WORKERS.split())]


def lab_rules(lab: str) -> list[str]:
    """For web, events, clock and the commands that back up and restore."""
    mine = [f"~{Keys(lab)('*')}", "~rq:*", f"&nightjar:{lab}:*", "&rq:pubsub:*"]
    return [*mine, *_granted(_OF_THE_LAB)]


def hashed(password: str) -> str:
    """A password as Redis keeps it, for a place where it must not be read."""
    return f"#{sha256(password.encode()).hexdigest()}"


def setuser(name: str, password: str, rules: list[str]) -> str:
    """The command that makes a user, for redis-cli."""
    return " ".join(["ACL SETUSER", name, "reset", "on", f">{password}", *rules])


def _granted(commands: Sequence[str]) -> list[str]:
    return [command if command.startswith("-") else f"+{command}" for command in commands]
