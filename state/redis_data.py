"""Why a Redis server cannot read its data, with the remedy.

A manifest names the files of the append-only log. A server that finds no manifest begins an empty database, and
appends to the files that are there.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from state.errors import Unavailable
from state.redis_binary import Binary

MANIFEST = Path("appendonlydir", "appendonly.aof.manifest")


def check_manifest(directory: Path) -> None:
    """Refuse a server's directory that has lost its manifest; nothing is written.

    Raises:
        Unavailable: the manifest is missing.
    """
    manifest = directory / MANIFEST
    if manifest.exists() or not ((directory / "version").exists() or any(manifest.parent.glob("*.aof.*"))):
        return
    raise Unavailable(
        f"the lab's data cannot be read: {manifest} is not there",
        hint=f"restore a backup of {str(directory)!r}, or begin an empty lab with another --data",
    )


def read_from(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace")


def reason(said: str) -> str:
    """The important lines of Redis' log, without its advice about the machine."""
    important = re.findall(r"^\S+ .*? # (?!WARNING)(.+)$", said, re.MULTILINE)
    lines = important or [line for line in said.splitlines() if line.strip()] or ["it said nothing"]
    return "; ".join(lines[-3:])


def refusal(said: str, binary: Binary, directory: Path) -> Unavailable:
    """The error for a server that ended with this log. The data stays untouched: see the hint."""
    why = reason(said)
    if "RDB format version" in said:
        return Unavailable(
            f"the data in {str(directory)!r} was written by a newer server than {binary}: {why}",
            hint="name a newer redis-server with NIGHTJAR_REDIS_SERVER",
        )
    if not re.search(r"AOF|append only file|RDB|manifest", why):
        return Unavailable(f"Redis did not start: {why}", hint=f"its log: {str(directory / 'redis.log')!r}")
    data = shlex.quote(str(directory))
    manifest = shlex.quote(str(directory / "appendonlydir" / "appendonly.aof.manifest"))
    check = f"exec -a {binary.product}-check-aof {shlex.quote(binary.path)}"
    return Unavailable(
        f"Redis refuses the data in {str(directory)!r}: {why}",
        hint="nothing was changed.\n"
        f"  back up:  cp -a {data} {data}.backup\n"
        f"  check:    bash -c {shlex.quote(f'{check} {manifest}')}\n"
        "  repair (cuts off everything after the first damage), then start again:\n"
        f"            bash -c {shlex.quote(f'{check} --fix {manifest}')}",
    )
