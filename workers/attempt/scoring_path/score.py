"""Runs a tag's evaluator after a training, without files of the experiment on its path.

    python -I -S score.py <place, as JSON> <script> <argument>...

This process starts the evaluator and the predictors that it asks for, all confined. The evaluator cannot start them
itself: a confined process makes no namespaces. It sends requests over a socket pair, each a JSON object in a packet:

    {"start": [argument, ...]}, with three descriptors (questions, answers, output)  ->  {"predictor": number}
    {"status": number}  ->  {"status": exit status, or null after a second}
    {"end": number}     ->  {"ended": whether no process of it is left}

It is run by path with the project's Python, and imports only the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import marshal
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

LONGEST_REQUEST = 64 * 1024

_EVALUATE = "--evaluate"
_HIDDEN = "NIGHTJAR_HIDDEN_"
"""Begins the names of variables that only the evaluator has."""
_LAUNCH = Path(__file__).parents[1] / "launch.py"
_BY_SIGNAL = 128
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


class Confined:
    """A process started by launch.py; confined if it has a reach."""

    def __init__(
        self, command: Sequence[str], reach: Mapping[str, Any] | None, *, keep: Sequence[int], **how: Any
    ) -> None:
        self._told, told_end = os.pipe()
        self._is_enclosed = bool(reach and reach["bwrap"])
        told = [told_end] if self._is_enclosed else []
        packed = marshal.dumps(dict(reach)).hex() if reach else ""
        launch = (sys.executable, "-I", "-S", str(_LAUNCH), str(os.getpid()), "", packed, str([*told, -1][0]))
        self._process = subprocess.Popen(
            [*launch, *command], stdin=subprocess.DEVNULL, pass_fds=[*keep, *told], **how
        )
        self.pid = self._process.pid
        os.close(told_end)

    def end(self) -> None:
        """Kill it, and what shares its namespaces."""
        self._process.kill()
        self._process.wait()
        os.close(self._told)

    def status(self, patience_s: float | None = None) -> int | None:
        """Its exit status (negative for a signal); None if it still runs after `patience_s`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(patience_s)
            if not self._is_enclosed:
                return code
            with contextlib.suppress(ValueError):  # its first process was killed before it could tell
                return int(os.read(self._told, 64))
            return _BY_SIGNAL - code if code > _BY_SIGNAL else code
        return None


class Stage:
    """A running evaluator, and its predictors."""

    def __init__(self, place: Mapping[str, Any], command: Sequence[str]) -> None:
        self._place = place
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            own = (sys.executable, "-I", __file__, _EVALUATE, place["tree"], str(theirs.fileno()))
            hidden = [int(os.environ[_HIDDEN + "FD"])] if _HIDDEN + "FD" in os.environ else []
            self._evaluator = Confined([*own, *command], place["evaluator"], keep=[theirs.fileno(), *hidden])
        self._predictors: dict[int, tuple[Confined, str]] = {}

    def run(self) -> int:
        """Answer the evaluator's requests until it has ended; answers its exit status."""
        ended = os.pidfd_open(self._evaluator.pid)
        poll = select.poll()
        for descriptor in (self._ours.fileno(), ended):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = [descriptor for descriptor, _ in poll.poll()]
            if ended in ready:
                return self._evaluator.status() or 0
            request, descriptors, _, _ = socket.recv_fds(self._ours, LONGEST_REQUEST, 3)
            if not request:
                poll.unregister(self._ours.fileno())
                continue
            self._ours.send(json.dumps(self._answer(json.loads(request), descriptors)).encode())

    def _answer(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> Mapping[str, Any]:
        if "start" in request:
            return {"predictor": self._start(request["start"], *descriptors)}
        if "status" in request:
            return {"status": self._predictors[request["status"]][0].status(1.0)}
        predictor, folder = self._predictors.pop(request["end"])
        predictor.end()
        others = {self._evaluator.pid, *(other.pid for other, _ in self._predictors.values())}
        is_empty = end_children(spare=others)
        shutil.rmtree(folder, ignore_errors=True)
        return {"ended": is_empty}

    def _start(self, arguments: Sequence[str], questions: int, answers: int, output: int) -> int:
        folder = tempfile.mkdtemp(dir=self._place["folder"])
        reach = self._place["predictor"]
        environment = {
            name: value
            for name, value in os.environ.items()
            if name != "NIGHTJAR_TREE" and not name.startswith(_HIDDEN)
        }
        environment |= {name: os.path.join(folder, cache) for name, cache in self._place["caches"].items()}
        environment |= {
            "PYTHONPATH": self._place["path"],
            "TMPDIR": folder,
            "NIGHTJAR_PREDICT_FDS": f"{questions}:{answers}",
        }
        try:
            predictor = Confined(
                [sys.executable, *arguments],
                reach and {**reach, "writes": [folder]},
                keep=[questions, answers],
                cwd=self._place["tree"],
                env=environment,
                stdout=output,
                stderr=output,
            )
        finally:
            for descriptor in (questions, answers, output):
                os.close(descriptor)
        self._predictors[predictor.pid] = predictor, folder
        return predictor.pid


def end_children(spare: Container[int]) -> bool:
    """Kill all descendants except the `spare` children, so that none passes data to a later predictor."""
    give_up = time.monotonic() + 5.0
    while left := [pid for pid in _children() if pid not in spare]:
        if time.monotonic() > give_up:
            return False
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
    return True


def _children() -> list[int]:
    """Children of this process, with adopted orphans. If there are none, it has no descendants.

    This is the kernel's own list. A scan of /proc can miss a process that forks and ends all the time.
    """
    found = list[int]()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += map(int, (task / "children").read_text().split())
    return found


def evaluate(tree: str, stage: int, script: str, arguments: Sequence[str]) -> int:
    """Run the script as a program; answers the exit status of a run without a score."""
    sys.path[:0] = [str(Path(script).parent), str(Path(__file__).parent)]
    evaluator = importlib.import_module("nightjar_evaluator")

    evaluator.begin(evaluator.Place(Path(tree), socket.socket(fileno=stage)))
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    except evaluator.Unscored as problem:
        sys.stdout.flush()
        sys.stderr.write(f"\nunscored: {problem}\n")
        return int(problem.status)
    return 0


def guard() -> None:
    """Keep processes of the same user from reading or tracing this one, its pipes included; adopt orphans."""
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(words: Sequence[str]) -> int:
    guard()
    if words[0] == _EVALUATE:
        return evaluate(words[1], int(words[2]), words[3], words[4:])
    status = Stage(json.loads(words[0]), words[1:]).run()
    if status < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
