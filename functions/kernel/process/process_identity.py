"""Identifies a process by host, pid and start, and checks that it lives."""

from __future__ import annotations

from pathlib import Path

from state.client_settings import ClientSettings, host_name


def birth_name(host: str, pid: int) -> str:
    """`<host>:<pid>:<start>`; the start time tells a recycled pid apart."""
    return f"{host}:{pid}:{_born(pid)}"


def is_alive(name: str, host: str) -> bool:
    """Whether that process lives. Always True for another host."""
    where, _, rest = name.partition(":")
    pid, _, born = rest.partition(":")
    if where != host:
        return True
    return born != "" and _born(int(pid)) == born


def boot_id() -> str | None:
    """Linux's id of this boot; None on other systems."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _born(pid: int) -> str:
    """When a process was started: boot id and clock ticks on Linux; empty if there is none, or only a zombie."""
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
    import psutil  # the commands do without it on Linux

    try:
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else str(round(process.create_time() * 100))
    except psutil.Error:
        return ""


def is_up(settings: ClientSettings) -> bool:
    """Whether this lab's web process runs on this machine. If not, another program may have its port now."""
    name, host = settings.written_by_web.get("process"), host_name()
    return isinstance(name, str) and name.startswith(f"{host}:") and is_alive(name, host)
