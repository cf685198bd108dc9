"""What a Redis server that refused to start says about it in its log."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from state.errors import Unavailable
from state.redis_binary import Binary


def read_from(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace")


def reason(said: str) -> str:
    """What Redis logged as important, without its advice on the machine."""
    important = re.findall(r"^\S+ .*? # (?!WARNING)(.+)$", said, re.MULTILINE)
    lines = important or [line for line in said.splitlines() if line.strip()] or ["it said nothing"]
    return "; ".join(lines[-3:])


def refusal(said: str, binary: Binary, directory: Path) -> Unavailable:
    """The error for a server that logged `said` and ended. Damaged data is left untouched: see the hint."""
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
