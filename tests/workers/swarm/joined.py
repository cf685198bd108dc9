"""A worker of a swarm in real processes, as its owner starts it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.journeys.running import processes_on
from tests.warm import Started, start

PATIENCE_S = 100.0

TRAIN = """
import time
from worker.report import report

TOTAL_WALL_CLOCK_TIME = 300
LR = 0.001  # tune
LAYERS = 2
OPTIMIZER = "adam"

begun = time.monotonic()
while (used := time.monotonic() - begun) < TOTAL_WALL_CLOCK_TIME:
    report(LR + 1 - used / TOTAL_WALL_CLOCK_TIME, used / TOTAL_WALL_CLOCK_TIME)
    time.sleep(0.02)
print(f"val_bpb: {LR}")
"""
"""Its score is its LR, after as many seconds as it is told."""


class JoinedWorker:
    """One `nightjar join` with a project and a directory of its own."""

    def __init__(self, folder: Path, source: str = TRAIN) -> None:
        self.data = folder / "data"
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.train_py = self.home / "train.py"
        self.train_py.write_text(source)
        self.running: Started | None = None
        self._said = folder / "said.txt"

    def join(self, *options: str, **environment: str) -> None:
        """Start it in a process group of its own, as a terminal does."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NIGHTJAR_")}
        place = {"NIGHTJAR_DATA": str(self.data)}
        with self._said.open("a") as said:
            words = ("join", *options)
            self.running = start(words, clean | place | environment, self.home.parent, said.fileno())

    def first_join(self, url: str, *options: str, **environment: str) -> None:
        """Start it for the first time, with a baseline of 1."""
        who = ("--url", url, "--worker-id", self.home.parent.name, "--train-py", str(self.train_py))
        self.join(*who, "--skip-baseline", "--baseline-bpb", "1", *options, **environment)

    def runs(self, url: str, *options: str, **environment: str) -> None:
        """Join for the first time, and leave in order."""
        self.first_join(url, *options, **environment)
        assert self.ended() == 0

    @property
    def said(self) -> str:
        """What it has told its owner, and its log."""
        return self._said.read_text()

    def ended(self, patience_s: float = PATIENCE_S) -> int:
        """Wait for its end; answers its exit status."""
        assert self.running is not None
        return self.running.wait(patience_s)

    def signal(self, number: int) -> None:
        """As from the keyboard: to its whole process group."""
        assert self.running is not None
        os.killpg(self.running.pid, number)

    def leave_at_once(self) -> None:
        """Press Ctrl-C twice in the middle of a run."""
        self.signal(signal.SIGINT)
        self.until(lambda: "finished first" in self.said, "it has heard the first")
        self.signal(signal.SIGINT)

    def kill(self) -> None:
        """End the worker's process alone, with no warning."""
        assert self.running is not None
        self.running.send_signal(signal.SIGKILL)
        self.running.wait()

    def script(self) -> psutil.Process:
        """The training that runs now; waits until it is seen."""

        def one() -> psutil.Process | None:
            found = {process.pid: process for process in processes_on(self.data, "train.py")}
            first = [process for process in found.values() if process.cmdline()[1:] == ["train.py"]]
            return first[0] if len(first) == 1 else None

        script: psutil.Process = self.until(one, "a training runs")
        return script

    def kept(self) -> dict[str, Any]:
        """What it remembers."""
        found: dict[str, Any] = json.loads((self.data / "joined.json").read_text())
        return found

    def until(self, met: Callable[[], Any], what: str) -> Any:
        """Wait until something is so, much longer than it should take."""
        give_up = time.monotonic() + PATIENCE_S
        while True:
            with suppress(psutil.Error):
                if answer := met():
                    return answer
            assert time.monotonic() < give_up, f"never: {what}\n{self.said}"
            time.sleep(0.05)


@contextmanager
def joined_worker(folder: Path, source: str = TRAIN) -> Iterator[JoinedWorker]:
    """A worker that leaves nothing alive."""
    worker = JoinedWorker(folder, source)
    try:
        yield worker
    except Exception as problem:
        problem.add_note(worker.said)
        raise
    finally:
        if worker.running is not None:
            worker.running.kill()
            worker.running.wait()
        for process in processes_on(worker.data):
            with suppress(psutil.Error):
                process.kill()
