"""A whole lab in real processes, for journeys: `./nightjar up` with everything ten times faster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from triggers.lab import free_port

FAST = {
    "NIGHTJAR_HEARTBEAT_S": "1",
    "NIGHTJAR_STALE_S": "6",
    "NIGHTJAR_SWEEP_S": "1",
    "NIGHTJAR_DISPATCH_S": "0.5",
    "NIGHTJAR_HEALTH_S": "2",
    "NIGHTJAR_START_GRACE_S": "3",
    "NIGHTJAR_CLAIM_IDLE_S": "2",
    "NIGHTJAR_RETRY_BASE_S": "0.2",
    "NIGHTJAR_TERM_GRACE_S": "1",
    "NIGHTJAR_POLL_S": "0.1",
}
PATIENCE_S = 150.0

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

    def __init__(self, folder: Path, **settings: str) -> None:
        self.settings = FAST | settings
        self.data = folder / "data"
        self.repo = folder / "repo"
        self.port = free_port(0)
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60.0)
        self.up: subprocess.Popen[str] | None = None
        self._log = folder / "up.log"
        self.repo.mkdir(parents=True)
        git(self.repo, "init", "--quiet", "--initial-branch=main")
        self.base = self.commit({"train.py": TRAIN, "prepare.py": "OFFSET = 0.0\n"})

    # -- the lab

    def start(self, *arguments: str) -> None:
        """Start `up` and wait until it says ready."""
        command = (sys.executable, "-P", "-m", "triggers.cli", "up", "--gpu", "none", "--cpu", "1")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("NIGHTJAR_")}
        with self._log.open("a") as log:
            self.up = subprocess.Popen(
                [
                    *command,
                    *("--data", str(self.data), "--repo", str(self.repo), "--port", str(self.port)),
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment | self.settings,
                cwd=self.data.parent,
                text=True,
            )
        self.until(lambda: "ready:" in self.output() or self.up_ended(), "up is ready")
        assert not self.up_ended(), self.output()

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
        """The one living process of this lab whose command line holds all of these words."""
        found = self.processes(*words)
        assert len(found) == 1, (words, found)
        return found[0]

    def processes(self, *words: str) -> list[psutil.Process]:
        """Living processes of this lab: those with its data directory in their environment or command line."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                line = " ".join(process.cmdline())
                ours = process.environ().get("NIGHTJAR_DATA") == str(self.data) or str(self.data) in line
                if ours or str(self.data) in process.cwd():
                    found += [process] if all(word in line for word in words) else []
            except psutil.Error:
                continue
        return found

    def train_child(self) -> psutil.Process:
        """The training script that runs now."""
        return self.process("train.py")

    def until(self, met: Callable[[], Any], what: str) -> Any:
        """Wait until something is so, much longer than it should take."""
        give_up = time.monotonic() + PATIENCE_S
        while True:
            try:
                if answer := met():
                    return answer
            except (httpx.HTTPError, AssertionError, psutil.Error):
                if time.monotonic() > give_up:
                    raise
            if time.monotonic() > give_up:
                raise AssertionError(f"never: {what}\n{self.output()}\n{self.logs()}")
            time.sleep(0.05)

    def logs(self) -> str:
        return "\n".join(
            f"== {log.name}\n" + log.read_text()[-2000:] for log in (self.data / "logs").glob("*.log")
        )

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

    def setup(self, tag: str = "t", **policy: Any) -> None:
        """Open a tag whose base is the repository's first commit."""
        self.post("experiment/setup", tag=tag, base_commit=self.base, policy={"budgets.base_s": 20, **policy})

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

    def commit(self, files: dict[str, str]) -> str:
        """Commit files in the repository; answers the commit."""
        for name, text in files.items():
            (self.repo / name).write_text(text)
        git(self.repo, "add", "--all")
        git(self.repo, "commit", "--quiet", "--allow-empty", "--message", "change")
        return git(self.repo, "rev-parse", "HEAD")


def git(where: Path, *arguments: str) -> str:
    """Run git as nobody in particular; answers what it prints."""
    identity = ("-c", "user.name=n", "-c", "user.email=n@localhost", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", "-C", str(where), *identity, *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@contextmanager
def running_lab(folder: Path, **settings: str) -> Iterator[RunningLab]:
    """A lab that leaves nothing alive, whatever the test does to it."""
    lab = RunningLab(folder, **settings)
    try:
        yield lab
    finally:
        lab.http.close()
        if lab.up is not None:
            lab.up.kill()
            lab.up.wait()
        for process in lab.processes():
            try:
                process.kill()
            except psutil.Error:
                continue


def describe(process: psutil.Process) -> str:
    """A process for a failed assertion."""
    try:
        return json.dumps({"pid": process.pid, "cmdline": process.cmdline()[:8]})
    except psutil.Error:
        return f"{process.pid} (gone)"
