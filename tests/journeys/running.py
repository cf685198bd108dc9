"""A whole lab in real processes, for journeys: `./nightjar up`, with everything ten times faster unless told."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from state.settings import Settings
from tests.conftest import ByKey
from tests.warm import Started, start

FAST: Mapping[str, str] = {
    "NIGHTJAR_STALE_S": "6",
}
"""The pace of tests: heartbeats, sweeps and dispatches come ten times as often as by default."""
BY_DEFAULT: Mapping[str, str] = {}
"""The pace that users get. A lab that waits for nothing uses a third of the CPU of one at the pace of tests."""
QUICK: Mapping[str, Any] = {"budgets.base_s": 20, "baseline_first": False, "keep_rule": "strict"}
"""The policy of a journey's tag, unless told: its first run is the one that it submits, and no run is repeated."""
PATIENCE_S = 150.0
LOOK_S = 0.1
"""Seconds until a lab is looked at again: looks take CPU from it."""
SELDOM_S, LATER = 0.5, 0.1
"""Most seconds between two looks, and the share of the seconds waited so far after which the next look comes."""
TAIL_BYTES = 20_000
"""So much of each log is told when a journey fails."""

TRAIN = """
import os, sys, time
from nightjar_report import report

SECONDS = 0.2
VALUE = 1.0

begun = time.monotonic()
while (used := time.monotonic() - begun) < SECONDS:
    report(VALUE + 1 - used / SECONDS, used / SECONDS)
    time.sleep(0.05)
import prepare
print(f"---\\nval_bpb: {VALUE + prepare.OFFSET}\\ntraining_seconds: {used}\\npeak_vram_mb: 12.5\\ndepth: 3")
"""


class RunningLab:
    """One `up` and the people who use it."""

    def __init__(self, folder: Path, pace: Mapping[str, str] = BY_DEFAULT, /, **settings: str) -> None:
        self.settings = {**pace, **settings}
        self.data = folder / "data"
        self.repo = folder / "repo"
        self._reserved = reserved_port()
        self.port: int = self._reserved.getsockname()[1]
        url = f"http://127.0.0.1:{self.port}"
        self.http = httpx.Client(base_url=url, timeout=60.0, auth=ByKey(settings_of(self.data)))
        """Sends the operator's key, unless it is given something else to show."""
        self.up: Started | None = None
        self._log = folder / "up.log"
        self.repo.mkdir(parents=True)
        git(self.repo, "init", "--quiet", "--initial-branch=main")
        self.base = self.commit({"train.py": TRAIN, "prepare.py": "OFFSET = 0.0\n"})

    # -- the lab

    def start(self, *arguments: str) -> None:
        """Start `up` and wait until it says ready."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NIGHTJAR_")}
        with self._log.open("w") as log:
            if "--lab" in arguments:  # whose key has a file of its own
                name = arguments[arguments.index("--lab") + 1]
                self.http.auth = ByKey(settings_of(self.data).model_copy(update={"lab": name}))
            words = ("--data", str(self.data), "--repo", str(self.repo), "--port", str(self.port), *arguments)
            self.up = start(
                ("up", "--gpu", "none", "--cpu", "1", *words),
                environment | self.settings,
                self.data.parent,
                log.fileno(),
            )
        self.until(lambda: "ready:" in self.output() or self.up_ended(), "up is ready")
        assert not self.up_ended(), self.output()

    def close(self) -> None:
        """Give back what the lab holds in this process."""
        self.http.close()
        self._reserved.close()

    def up_ended(self) -> bool:
        return self.up is None or self.up.poll() is not None

    def output(self) -> str:
        return self._log.read_text()

    def stop(self, number: int = signal.SIGINT) -> int:
        """End `up` and wait for it."""
        assert self.up is not None
        self.up.send_signal(number)
        status = self.up.wait(PATIENCE_S)
        self.up = None
        self._log.write_text("")
        return status

    def process(self, *words: str) -> psutil.Process:
        """The one living process of this lab whose command line holds all of these words; waits until it is seen.

        In the middle of its exec a process has neither a command line nor an environment.
        """

        def one() -> psutil.Process | None:
            found = self.unforked(*words)
            return found[0] if len(found) == 1 else None

        process: psutil.Process = self.until(one, f"one process has {words} in its command line")
        return process

    def unforked(self, *words: str) -> list[psutil.Process]:
        """Those of `processes` that no other of them has forked: until it starts a program of its own,
        a fork goes by its parent's command line."""
        found = {process.pid: process for process in self.processes(*words)}
        return [process for process in found.values() if parent_of(process) not in found]

    def processes(self, *words: str) -> list[psutil.Process]:
        """Living processes of this lab: those with its data directory in their environment or command line."""
        return processes_on(self.data, *words)

    def train_child(self) -> psutil.Process:
        """The training script that runs now."""
        return self.process("train.py")

    def until(self, met: Callable[[], Any], what: str, every_s: float | None = None) -> Any:
        """Wait until something is so, much longer than it should take.

        Looks come ever more seldom, unless a measurement needs one `every_s`.
        """
        begun = time.monotonic()
        give_up = begun + PATIENCE_S
        while True:
            try:
                if answer := met():
                    return answer
            except (httpx.HTTPError, AssertionError, psutil.Error) as problem:
                if time.monotonic() > give_up:
                    raise AssertionError(f"never: {what}") from problem
            if time.monotonic() > give_up:
                raise AssertionError(f"never: {what}")
            time.sleep(every_s or min(SELDOM_S, max(LOOK_S, LATER * (time.monotonic() - begun))))

    def story(self) -> str:
        """The lab after a failure: its processes, its status, the end of each log."""
        processes = [describe(process) for process in self.processes()]
        answers = [f"== {path}\n{self._answer(path)}" for path in ("lab/status", "pool/list")]
        files = [self._log, *sorted((self.data / "logs").glob("*"))]
        logs = [f"== {file.name}\n{file.read_text(errors='replace')[-TAIL_BYTES:]}" for file in files]
        return "\n".join(["== processes", *processes, *answers, *logs])

    def _answer(self, path: str) -> str:
        try:
            return self.http.get(f"/api/{path}", timeout=5.0).text
        except (httpx.HTTPError, RuntimeError) as problem:  # RuntimeError: the client is closed
            return repr(problem)

    # -- its users

    def post(self, path: str, **body: Any) -> Any:
        """POST /api/<path>; the answer's JSON."""
        answer = self.http.post(f"/api/{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def get(self, path: str) -> Any:
        """GET /api/<path>; the answer's JSON."""
        answer = self.http.get(f"/api/{path}")
        assert answer.is_success, answer.text
        return answer.json()

    def setup(self, tag: str = "t", fields: Mapping[str, Any] = {}, /, **policy: Any) -> None:
        """Open a tag whose base is the repository's first commit, with further fields of the request."""
        self.post("experiment/setup", tag=tag, base_commit=self.base, policy={**QUICK, **policy}, **fields)

    def submit(self, tag: str = "t", **fields: Any) -> str:
        """Submit an experiment on the base commit, constants as given; answers its id."""
        fields = {
            "commit_sha": self.base,
            "hypothesis": "h",
            "category": "other",
            "diff_summary": "d",
        } | fields
        return str(self.post("experiment/submit", tag=tag, **fields)["experiment_id"])

    def status(self, experiment_id: str) -> str:
        return str(self.get(f"experiment/{experiment_id}")["experiment"]["status"])

    def until_status(self, experiment_id: str, *wanted: str) -> dict[str, Any]:
        """Wait for one of these statuses; answers the experiment."""
        self.until(lambda: self.status(experiment_id) in wanted, f"{experiment_id} is {wanted}")
        found: dict[str, Any] = self.get(f"experiment/{experiment_id}")
        return found

    def until_training(self, experiment_id: str) -> psutil.Process:
        """Wait until the script reports; answers its process."""
        self.until(
            lambda: self.get(f"experiment/{experiment_id}")["experiment"]["last_progress"] is not None,
            f"{experiment_id} reports",
        )
        return self.train_child()

    def until_idle(self) -> None:
        """Wait until every slot is idle."""
        self.until(lambda: (pool := self.get("pool/list"))["idle"] == pool["total"] > 0, "every slot is idle")

    def until_followed(self) -> None:
        """Wait until every handler has handled every event, and those that came of it."""
        self.until(lambda: not any(map(_waits, self._bindings())), "what follows from the events is done")

    def _bindings(self) -> list[dict[str, Any]]:
        return list(self.get("lab/status")["events"]["bindings"].values())

    def commit(self, files: dict[str, str]) -> str:
        """Commit files in the repository; answers the commit."""
        for name, text in files.items():
            (self.repo / name).write_text(text)
        git(self.repo, "add", "--all")
        git(self.repo, "commit", "--quiet", "--allow-empty", "--message", "change")
        return git(self.repo, "rev-parse", "HEAD")


def settings_of(data: Path) -> Settings:
    """Of the lab of this data directory."""
    return Settings.model_validate({"data": data})


def _waits(binding: Mapping[str, Any]) -> bool:
    return (binding["undelivered"], binding["unacknowledged"]) != (0, 0)


def processes_on(data: Path, *words: str) -> list[psutil.Process]:
    """Living processes with this data directory in their environment or command line, or at work below it."""
    found = []
    for pid in psutil.pids():
        place = Path("/proc", str(pid))
        try:
            line = os.fsdecode((place / "cmdline").read_bytes().replace(b"\0", b" "))
            if pid == os.getpid() or not all(word in line for word in words):
                continue
            if str(data) in line or is_of(place, data):
                found.append(psutil.Process(pid))
        except (psutil.Error, OSError):  # ended, or too deep in folders for its place to have a name
            continue
    return [process for process in found if lives(process)]


def is_of(process: Path, data: Path) -> bool:
    """Whether this process of /proc has the data directory in its environment, or is at work below it."""
    variables = (process / "environ").read_bytes().split(b"\0")
    return b"NIGHTJAR_DATA=" + bytes(data) in variables or str(data) in os.readlink(process / "cwd")


def lives(process: psutil.Process) -> bool:
    """Whether it runs; a zombie waits for nothing but its parent."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def git(where: Path, *arguments: str) -> str:
    """Run git as nobody in particular; answers what it prints."""
    identity = ("-c", "user.name=n", "-c", "user.email=n@localhost", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", "-C", str(where), *identity, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def reserved_port() -> socket.socket:
    """A socket that keeps a loopback port for a server to come: nobody else is given it, and who asks may bind it.

    A port that was only looked up may be taken meanwhile as the local end of any connection.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers set it; it never listens
    reserved.bind(("127.0.0.1", 0))
    return reserved


_living: list[RunningLab] = []


def living_labs() -> Sequence[RunningLab]:
    """The labs that run now, for what a failure tells."""
    return tuple(_living)


@contextmanager
def running_lab(
    folder: Path, pace: Mapping[str, str] = BY_DEFAULT, /, **settings: str
) -> Iterator[RunningLab]:
    """A lab that leaves nothing alive, whatever the test does to it."""
    lab = RunningLab(folder, pace, **settings)
    _living.append(lab)
    try:
        yield lab
    except Exception as problem:
        problem.add_note(lab.story())  # no report is made while it still runs
        raise
    finally:
        _living.remove(lab)
        lab.close()
        if lab.up is not None:
            lab.up.kill()
            lab.up.wait()
        for process in lab.processes():
            try:
                process.kill()
            except psutil.Error:
                continue


def parent_of(process: psutil.Process) -> int | None:
    """The parent's pid; None once the process has ended."""
    try:
        return process.ppid()
    except psutil.Error:
        return None


def describe(process: psutil.Process) -> str:
    """A process for a failed assertion."""
    try:
        return json.dumps(process.as_dict(["pid", "ppid", "status", "cmdline"]))
    except psutil.Error:
        return f"{process.pid} (gone)"
