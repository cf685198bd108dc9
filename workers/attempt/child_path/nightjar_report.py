"""report(metric, progress) sends a tick to the lab, and ends the run when the lab asks for it.

One file, standard library only. Without a worker it does nothing, so a script may always call it.

    from nightjar_report import report

    for step in range(steps):
        ...
        report(val_loss, step / steps)

It raises nothing but SystemExit(0), when the run is to stop, and blocks for at most about a second.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import stat
import sys
import time

_PATIENCE_S = 1.0


class _Line:
    """The pipes to the worker; only the process that imported this module first uses them, not its forks."""

    def __init__(self) -> None:
        # removed from the environment: a subprocess that imports this module must not write to these pipes
        self.report_fd = _pipe(os.environ.pop("NIGHTJAR_REPORT_FD", ""))
        self.answer_fd = _pipe(os.environ.pop("NIGHTJAR_ANSWER_FD", ""))
        self.owner = os.getpid()
        self.unanswered = 0
        self.received = b""
        self.stopped = False

    def is_open(self) -> bool:
        return self.report_fd >= 0 and self.answer_fd >= 0 and self.owner == os.getpid()

    def close(self) -> None:
        self.report_fd = self.answer_fd = -1

    def send(self, metric: float, progress: float) -> None:
        self.receive(0.0)
        was_answered = self.unanswered == 0
        message = json.dumps({"m": metric, "p": progress}).encode() + b"\n"
        try:
            os.write(self.report_fd, message)  # shorter than PIPE_BUF, so it is written whole or not at all
        except BlockingIOError:
            return  # the pipe is full: this tick is lost, the next one replaces it
        self.unanswered += 1
        # wait only if the worker answered every earlier tick
        self.receive(_PATIENCE_S if was_answered else 0.0)

    def receive(self, patience_s: float) -> None:
        """Read all answers that have come, and wait at most `patience_s` for missing ones."""
        deadline = time.monotonic() + patience_s
        while self.unanswered > 0 and _readable(self.answer_fd, deadline - time.monotonic()):
            received = os.read(self.answer_fd, 4096)
            if not received:
                self.close()  # the worker is gone
                return
            self.received += received
            while b"\n" in self.received:
                answer, self.received = self.received.split(b"\n", 1)
                self.unanswered = max(0, self.unanswered - 1)
                self.obey(answer.decode("ascii", "replace").split())

    def obey(self, words: list[str]) -> None:
        global budget_s
        if words[:1] == ["stop"]:
            self.stopped = True
        elif words[:1] == ["extend"]:
            granted = float(words[1])
            if math.isfinite(granted):
                budget_s = granted


def report(metric: float, progress: float = 0.0) -> None:
    """Tell the lab the newest value of the metric and how much of the run is done (0 to 1).

    Takes any number, also of NumPy or PyTorch; values that are not finite are not sent. Once the lab has asked this
    run to stop, every call raises SystemExit(0).
    """
    if _line.stopped and _line.owner == os.getpid():
        _stop()
    if not _line.is_open():
        return
    try:
        number, share = float(metric), float(progress)
        if math.isfinite(number) and math.isfinite(share):
            _line.send(number, share)
    except OSError:
        _line.close()
    except Exception:  # noqa: BLE001 - a failed tick must not end a training run
        return
    if _line.stopped:
        _stop()


def _stop() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the stream may be closed or replaced
            stream.flush()
    raise SystemExit(0)


def _pipe(named: str) -> int:
    """The descriptor named `fd` or `fd:inode`, if it is that pipe in this process; else -1."""
    try:
        fd, _, inode = named.partition(":")
        number = int(fd)
        status = os.fstat(number)
        if not stat.S_ISFIFO(status.st_mode) or (inode and int(inode) != status.st_ino):
            return -1
        os.set_blocking(number, False)
        os.set_inheritable(number, False)
    except (ValueError, OverflowError, OSError):
        return -1
    return number


def _readable(fd: int, timeout_s: float) -> bool:
    timeout_s = max(0.0, timeout_s)
    if hasattr(select, "poll"):  # select() fails for descriptors over 1023
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    return bool(select.select([fd], [], [], timeout_s)[0])


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


budget_s: float | None = _number(os.environ.get("NIGHTJAR_BUDGET_S", ""))
"""Seconds that this run may train; grows when the lab extends it. None without a worker."""

_line = _Line()
