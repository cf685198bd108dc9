"""Ports of this machine: which are free, and where the web process answers."""

from __future__ import annotations

import contextlib
import socket

from state.errors import Conflict, Unavailable
from state.settings import Settings


def local_url(settings: Settings) -> str:
    """Where this machine reaches the web process."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::", "localhost") else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def check_port(settings: Settings) -> None:
    """Refuse a port that is taken, before anything is started. Raises Conflict: it is."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as problem:
            raise Conflict(
                f"port {settings.port} is taken",
                hint="another lab may be running (./nightjar status); else choose one with --port",
            ) from problem


def shared_socket(host: str, port: int) -> socket.socket:
    """A socket for a port that other processes of this user may listen on, too."""
    found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
        found.setsockopt(socket.SOL_SOCKET, option, 1)
    found.bind((host, port))
    return found


def free_port(wanted: int) -> int:
    """`wanted` if it is free, else any free port of the loopback interface."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return int(probe.getsockname()[1])
    raise Unavailable("no loopback port is free", hint="close some programs")
