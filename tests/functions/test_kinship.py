"""Who holds a connection: told by the processes that really hold it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from functions.process.kinship import children_of, descendants_of, is_held_below

pytestmark = pytest.mark.process

CALLER = """
import os, socket, subprocess, sys
if len(sys.argv) > 2:
    subprocess.run([sys.executable, "-c", sys.argv[1], sys.argv[1]], stdin=0)
else:
    connected = socket.create_connection(("127.0.0.1", int(os.environ["AT"])))
    sys.stdin.read()
"""


ENDING = """
import ctypes, os, socket, sys, threading
if os.fork() == 0:
    os._exit(0)  # never waited for
connected = socket.create_connection(("127.0.0.1", int(os.environ["AT"])))
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0))).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@contextmanager
def caller(
    server: socket.socket, *more: str, code: str = CALLER
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A process that holds a connection, or has a child that does; the caller's port."""
    command = [sys.executable, "-c", code, code, *more]
    environ = {**os.environ, "AT": str(server.getsockname()[1])}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environ) as process:
        connection, (_, port, *_) = server.accept()
        with connection:
            yield process, port
            assert process.stdin is not None
            process.stdin.close()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.mark.parametrize("more", [(), ("by a child",)], ids=["child", "grandchild"])
def test_a_connection_is_known_by_whoever_holds_it(server: socket.socket, more: tuple[str, ...]) -> None:
    ours = server.getsockname()[1]
    with (
        caller(server, *more) as (process, port),
        subprocess.Popen(["sleep", "600"]) as another,
        socket.create_connection(server.getsockname()) as own,
    ):
        assert is_held_below([os.getpid()], port, ours)
        assert not is_held_below([another.pid], port, ours)
        assert not is_held_below([process.pid, another.pid], own.getsockname()[1], ours)
        assert another.pid in children_of(os.getpid())
        assert {process.pid, another.pid} <= {*descendants_of([os.getpid()])}
        another.kill()


def test_a_connection_that_nobody_holds_any_more_is_not_taken_for_a_stranger_s(server: socket.socket) -> None:
    with socket.create_connection(server.getsockname()) as gone:
        port = gone.getsockname()[1]

    assert is_held_below([os.getppid()], port, server.getsockname()[1])


def test_a_connection_is_known_where_threads_and_children_have_ended(server: socket.socket) -> None:
    ours = server.getsockname()[1]
    with (
        caller(server, code=ENDING) as (process, port),
        socket.create_connection(server.getsockname()) as own,
    ):
        first = psutil.Process(process.pid)
        while first.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)

        assert is_held_below([os.getpid()], port, ours)
        assert not is_held_below([os.getpid()], own.getsockname()[1], ours)
