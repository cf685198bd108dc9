"""The log of one attempt, capped: its beginning and its end are kept."""

from __future__ import annotations

import logging
from pathlib import Path
from types import TracebackType
from typing import Self

_log = logging.getLogger(__name__)

CAP_BYTES = 8 * 1024 * 1024


class CappedLog:
    """Half of the cap is for the beginning, half for the end, which holds the metrics block.

    The beginning is written at once; the end stays in memory until the log is closed.
    If the disk is full, the file is cut short and the run goes on.
    """

    def __init__(self, path: Path, *, cap_bytes: int = CAP_BYTES) -> None:
        self._half = cap_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0
        self._path = path
        self._file = path.open("wb", buffering=0)
        self.written = 0
        """Bytes received so far, kept or not."""

    def write(self, data: bytes) -> None:
        self.written += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            self._store(data[:room])
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._half:  # cut rarely: each cut moves the whole buffer
            self._cut()

    def text(self) -> str:
        """The kept text; a line in brackets says how many bytes are left out."""
        self._cut()
        return (self._head + self._gap() + self._tail).decode("utf-8", "replace")

    def newest(self, count: int = 16 * 1024) -> str:
        """About the last `count` bytes."""
        kept = self._tail[-count:] if len(self._tail) >= count else (self._head + self._tail)[-count:]
        return kept.decode("utf-8", "replace")

    def close(self) -> None:
        self._cut()
        self._store(self._gap() + self._tail)
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _cut(self) -> None:
        surplus = len(self._tail) - self._half
        if surplus > 0:
            self._left_out += surplus
            del self._tail[:surplus]

    def _gap(self) -> bytes:
        return b"\n[%d bytes left out]\n" % self._left_out if self._left_out else b""

    def _store(self, data: bytes | bytearray) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            _log.warning("the log %s is incomplete: %s", self._path, error)
