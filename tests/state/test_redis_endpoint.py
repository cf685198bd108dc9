"""Whether a Redis server at a socket gives any sign of life."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from state.redis_server import says_anything


@contextlib.contextmanager
def listening(address: Path, serve: Callable[[socket.socket], None]) -> Iterator[None]:
    """A server that deals so with one connection."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(address))
        server.listen()
        thread = threading.Thread(target=lambda: serve(server.accept()[0]))
        thread.start()
        yield
        thread.join()


def test_a_server_that_refuses_and_hangs_up_before_it_is_asked_still_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = threading.Event()
    send = socket.socket.sendall

    def refuse(connection: socket.socket) -> None:
        send(connection, b"-ERR max number of clients reached\r\n")
        connection.close()
        gone.set()

    def send_late(connection: socket.socket, data: bytes) -> None:
        gone.wait()
        send(connection, data)

    monkeypatch.setattr(socket.socket, "sendall", send_late)
    with listening(tmp_path / "socket", refuse):
        answered = says_anything(tmp_path / "socket", 5.0)

    assert answered


def test_a_server_that_hangs_up_or_keeps_silent_and_none_at_all_do_not_answer(tmp_path: Path) -> None:
    assert not says_anything(tmp_path / "socket", 5.0)
    with listening(tmp_path / "socket", socket.socket.close):
        assert not says_anything(tmp_path / "socket", 5.0)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "silent"))
        server.listen()
        assert not says_anything(tmp_path / "silent", 0.2)
