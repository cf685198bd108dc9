"""A worker without Redis, in real processes, and the network between it and its lab."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.conftest import ROOT
from tests.journeys.running import FAST, PATIENCE_S, RunningLab, git, parent_of, processes_on
from tests.warm import Started, start

PAGE = (ROOT / "docs" / "workers.md").read_text()
[COMMAND] = (shlex.split(words) for words in re.findall(r"(?m)^\./nightjar (worker --url .*)$", PAGE))
"""How a machine joins a lab by its URL, without the program's name."""


class Wire:
    """A way to a port of this machine that can be cut: what goes over it then waits, as behind a dead router."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._whole = threading.Event()
        self._whole.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._whole.clear()

    def mend(self) -> None:
        self._whole.set()

    def close(self) -> None:
        self._listening.close()
        self._whole.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with suppress(OSError), near, socket.create_connection(("127.0.0.1", self._port)) as far:
            back = threading.Thread(target=self._pass, args=(far, near), daemon=True)
            back.start()
            self._pass(near, far)
            back.join()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._whole.wait()
                sink.sendall(data)
            self._whole.wait()
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


class RemoteWorker:
    """One `nightjar worker --url` with a clone of its own."""

    def __init__(self, lab: RunningLab, folder: Path, *, token: str | None = None) -> None:
        self.data = folder / "data"
        self.repo = folder / "clone"
        folder.mkdir(parents=True)
        git(folder, "clone", "--quiet", str(lab.repo), str(self.repo))
        self._log = folder / "worker.log"
        self._lab = lab
        self._settings = {k: v for k, v in lab.settings.items() if k in FAST}
        self.wire = Wire(lab.port)
        self.url = f"http://127.0.0.1:{self.wire.port}"
        self._token = token
        self.running: Started | None = None

    def start(self) -> None:
        """Start it as its owner's page says, and wait until its slot is in the pool; it is given its token once."""
        given = {"https://lab.example.org": self.url, "nj_...": self._token or "", "PATH": str(self.repo)}
        words = [given.get(word, word) for word in COMMAND]
        if self._token is None:
            del words[(token := words.index("--token")) : token + 2]
        self._token = None
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NIGHTJAR_")}
        with self._log.open("a") as log:
            self.running = start(
                (*words, "--data", str(self.data), "--gpu", "none", "--cpu", "1"),
                environment | self._settings,
                self.data.parent,
                log.fileno(),
            )
        self._lab.until(self.slots, "it is in the pool")

    def slots(self) -> Sequence[dict[str, str]]:
        """The slots that it has in the pool."""
        written = self.data / "remote.json"
        if not written.exists():
            return []
        name = json.loads(written.read_text())["name"]
        return [gpu for gpu in self._lab.get("pool/list")["workers"] if gpu["gpu_id"].startswith(f"{name}:")]

    def processes(self, *words: str) -> list[psutil.Process]:
        """Its living processes with these words in their command line, the training script among them."""
        return processes_on(self.data, *words)

    def process(self, *words: str) -> psutil.Process:
        """The one process with these words; waits until it is seen."""

        def one() -> psutil.Process | None:
            found = {process.pid: process for process in self.processes(*words)}
            first = [process for process in found.values() if parent_of(process) not in found]
            return first[0] if len(first) == 1 else None

        process: psutil.Process = self._lab.until(one, f"one process has {words} in its command line")
        return process

    def trainer_of(self, script: psutil.Process) -> psutil.Process:
        """The process that trains with this script: others wait for the next run."""
        trainers = {process.pid: process for process in self.processes("workers.trainer")}
        return next(trainers[parent.pid] for parent in script.parents() if parent.pid in trainers)

    def spooled(self) -> list[Path]:
        """Results that the lab has not taken."""
        return list((self.data / "spool").glob("*/*.json"))

    def log(self) -> str:
        """What it and its processes have said."""
        files = [self._log, *sorted((self.data / "logs").glob("*"))]
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-20_000:]}" for file in files)

    def stop(self, number: int) -> int:
        assert self.running is not None
        self.running.send_signal(number)
        return self.running.wait(PATIENCE_S)


@contextmanager
def remote_worker(lab: RunningLab, folder: Path, *, token: str | None = None) -> Iterator[RemoteWorker]:
    """A worker that leaves nothing alive."""
    worker = RemoteWorker(lab, folder, token=token)
    try:
        yield worker
    except Exception as problem:
        problem.add_note(worker.log())
        raise
    finally:
        if worker.running is not None:
            worker.running.kill()
            worker.running.wait()
        worker.wire.close()
        for process in worker.processes():
            with suppress(psutil.Error):
                process.kill()
