"""Hostile training scripts in a real lab: each gets the verdict it earns, leaves nothing alive and harms no other."""

from __future__ import annotations

import textwrap
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.journeys.running import RunningLab, describe, running_lab
from tests.workers.tiers import needs

MARK = f"hostile-{uuid.uuid4().hex}"
"""On the command line of everything that a script leaves behind."""
TAG = "t"
FINISHED = ("keep", "discard", "crash", "timeout", "stopped", "lost", "invalid")

LEAVE_BEHIND = f"""
import os, signal, subprocess, sys, time

def sleeper(name):
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    lasting = deaf + "; open('ready', 'w'); time.sleep(600)"
    return [sys.executable, "-c", lasting, "{MARK}-" + name]

def until_ready():
    while not os.path.exists("ready"):
        time.sleep(0.02)
"""


@dataclass(frozen=True)
class Script:
    """A script's behaviour, and its expected outcome."""

    text: str
    status: tuple[str, ...] = ("crash",)
    kind: str | None = None
    value: float | None = None
    timeout_s: float = 300.0


JUDGED = ("keep", "discard")

SCRIPTS = {
    "ignores-term": Script(
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        subprocess.Popen(sleeper("ignores-term"))
        until_ready()
        while True:
            time.sleep(1)
        """,
        ("timeout",),
        "timeout",
        timeout_s=2,
    ),
    "escapes-by-setsid": Script(
        """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                command = sleeper("escapes-by-setsid")
                os.execve(command[0], command, {})
            os._exit(0)
        until_ready()
        print("---\\nval_bpb: 1.25", flush=True)
        """,
        JUDGED,
        value=1.25,
    ),
    "fills-the-disk": Script(
        """
        for nth in range(60):
            with open(f"{os.environ['TMPDIR']}/{nth}", "wb") as file:
                file.write(os.urandom(1024 * 1024))
                os.fsync(file.fileno())
        time.sleep(600)
        """,
        kind="disk",
    ),
}


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RunningLab]:
    settings = {"NIGHTJAR_RUN_DISK_MB": "40", "NIGHTJAR_STALE_S": "60"}
    with running_lab(tmp_path / "lab", **settings) as found:
        # without namespaces it is harder to end a run
        found.start("--cpu", "2", "--isolation", needs("landlock"))
        found.setup(TAG, **{"budgets.max_timeout_s": 300})
        yield found


def left_behind() -> list[str]:
    """What lives of the scripts."""
    found = []
    for process in psutil.process_iter():
        try:
            if MARK in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(describe(process))
        except psutil.Error:
            continue
    return found


def test_a_script_gets_the_verdict_it_earns_and_nothing_of_it_lives(lab: RunningLab) -> None:
    experiments = {
        name: lab.submit(
            TAG,
            commit_sha=lab.commit({"train.py": LEAVE_BEHIND + textwrap.dedent(script.text)}),
            timeout_s=script.timeout_s,
        )
        for name, script in SCRIPTS.items()
    }

    for name, script in SCRIPTS.items():
        e = lab.until_status(experiments[name], *FINISHED)["experiment"]
        assert e["status"] in script.status, e["error"]
        assert (e["error_kind"], e["val_bpb"], e["attempt"]) == (script.kind, script.value, 1)
    lab.until(lambda: not left_behind(), "nothing of them lives")
    lab.until_idle()
    slots = [worker["gpu_id"] for worker in lab.get("pool/list")["workers"]]
    honest = [lab.submit(TAG, gpu_id=slot) for slot in slots]
    assert len(slots) == 2
    assert [lab.until_status(e, *FINISHED)["experiment"]["val_bpb"] for e in honest] == [1.0, 1.0]
    lab.until_idle()
    assert lab.post("lab/audit")["violations"] == []
    assert not any((lab.data / "work").glob("*/*"))
