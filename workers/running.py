"""Whether the process that runs an attempt still lives, seen from beside it."""

from __future__ import annotations

import psutil


def runner_name(host: str, pid: int) -> str:
    """Names a process so that a recycled pid is not mistaken for it."""
    return f"{host}:{pid}:{_born(pid)}"


def is_alive(runner: str, host: str) -> bool:
    """Whether that process lives; one of another host is believed to."""
    where, _, rest = runner.partition(":")
    pid, _, born = rest.partition(":")
    if where != host:
        return True
    return _born(int(pid)) == int(born) != 0


def _born(pid: int) -> int:
    """When a process was started, in centiseconds; 0 where there is none, or only its zombie."""
    try:
        process = psutil.Process(pid)
        return 0 if process.status() == psutil.STATUS_ZOMBIE else round(process.create_time() * 100)
    except psutil.Error:
        return 0
