"""Hostile training scripts in a real lab: each gets the verdict it earns, leaves nothing alive and harms no other."""

from __future__ import annotations

import contextlib
import textwrap
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

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
    "forks-grandchildren": Script(
        """
        for _ in range(3):
            if os.fork() == 0:
                subprocess.Popen(sleeper("forks-grandchildren"))
                time.sleep(600)
        until_ready()
        print("---\\nval_bpb: 1.5", flush=True)
        """,
        JUDGED,
        value=1.5,
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
    "floods-stdout": Script(
        """
        line = b"step 00001 | loss: 1.0 | " + b"x" * 1000 + b"\\n"
        for _ in range(100):
            os.write(1, line * 1000)
        print("---\\nval_bpb: 1.75", flush=True)
        """,
        JUDGED,
        value=1.75,
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


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    settings = {
        "NIGHTJAR_RUN_DISK_MB": "40",
        "NIGHTJAR_STALE_S": "60",
    }
    with running_lab(tmp_path_factory.mktemp("lab"), **settings) as found:
        found.start(
            "--cpu", "2", "--isolation", needs("landlock")
        )  # without namespaces it is harder to end a run
        found.setup(TAG, **{"budgets.max_timeout_s": 300})
        yield found


@pytest.fixture(scope="module")
def experiments(lab: RunningLab) -> dict[str, str]:
    """The experiment of each script; all are submitted together, on two slots."""
    return {
        name: lab.submit(
            TAG,
            commit_sha=lab.commit({"train.py": LEAVE_BEHIND + textwrap.dedent(script.text)}),
            timeout_s=script.timeout_s,
        )
        for name, script in SCRIPTS.items()
    }


def left_behind(name: str = "") -> list[str]:
    """What lives of a script, or of any."""
    found = []
    for process in psutil.process_iter():
        try:
            if f"{MARK}-{name}" in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(describe(process))
        except psutil.Error:
            continue
    return found


def finished(lab: RunningLab, experiment: str) -> dict[str, Any]:
    """The experiment, once it is over; those before it in the queue may take as long as it does."""
    patience = len(SCRIPTS)
    while lab.status(experiment) not in FINISHED and patience > 0:
        patience -= 1
        with contextlib.suppress(AssertionError):
            lab.until_status(experiment, *FINISHED)
    found: dict[str, Any] = lab.get(f"experiment/{experiment}")["experiment"]
    return found


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_gets_the_verdict_it_earns_and_nothing_of_it_lives(
    lab: RunningLab, experiments: dict[str, str], name: str
) -> None:
    script = SCRIPTS[name]

    e = finished(lab, experiments[name])

    assert e["status"] in script.status, e["error"]
    assert (e["error_kind"], e["val_bpb"], e["attempt"]) == (script.kind, script.value, 1)
    lab.until(lambda: not left_behind(name), f"nothing of {name} lives")
    lab.until(
        lambda: experiments[name] not in [w["holder"] for w in lab.get("pool/list")["workers"]],
        f"the slot of {name} is free",
    )


def test_after_all_of_them_both_slots_train_an_honest_script(
    lab: RunningLab, experiments: dict[str, str]
) -> None:
    for experiment in experiments.values():
        finished(lab, experiment)
    lab.until_idle()
    slots = [worker["gpu_id"] for worker in lab.get("pool/list")["workers"]]

    honest = [lab.submit(TAG, gpu_id=slot) for slot in slots]

    assert len(slots) == 2
    assert [finished(lab, e)["val_bpb"] for e in honest] == [1.0, 1.0]
    assert left_behind() == []
    lab.until_idle()
    assert lab.post("lab/audit")["violations"] == []
    assert not any((lab.data / "work").glob("*/*"))
