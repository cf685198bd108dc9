"""Names the process that runs an attempt, and tells whether it still lives."""

from __future__ import annotations

from pathlib import Path

import psutil

from workers.options import boot_id


def runner_name(host: str, pid: int) -> str:
    """`<host>:<pid>:<start>`; the start time tells a recycled pid apart."""
    return f"{host}:{pid}:{_born(pid)}"


def is_alive(runner: str, host: str) -> bool:
    """Whether that process lives; True for another host, which cannot be asked."""
    where, _, rest = runner.partition(":")
    pid, _, born = rest.partition(":")
    if where != host:
        return True
    return born != "" and _born(int(pid)) == born


def _born(pid: int) -> str:
    """When a process was started; empty if there is none, or only a zombie.

    On Linux: the boot id and the clock ticks since boot, because the time of day can be set.
    """
    boot = boot_id()
    if boot is None:
        return _born_by_the_clock(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    state, *fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces and parentheses
    return "" if state in "ZX" else f"{boot}/{fields[18]}"  # starttime is field 22, state is field 3


def _born_by_the_clock(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else str(round(process.create_time() * 100))
    except psutil.Error:
        return ""
