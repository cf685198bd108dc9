"""A run leaves nothing on its machine, even if the processes that look after it are killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.journeys.running import FAST, TRAIN, RunningLab, lives, running_lab
from tests.journeys.victims import VICTIMS
from tests.workers.tiers import needs

DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        name = "escaped-" + os.path.basename(os.path.dirname(os.getcwd()))
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", name], {})
    os._exit(0)
"""
"""Leaves a process without a parent, a session or a variable in common with its run."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """Its runs have no namespaces, with which the kernel ends them (tests/workers/attempt/test_namespaces.py)."""
    with running_lab(tmp_path_factory.mktemp("lab"), FAST) as found:
        found.start("--isolation", needs("landlock"))
        yield found


def goes_on(lab: RunningLab, experiment: str) -> bool:
    """Whether its second attempt was begun, or the first one could finish."""
    found = lab.get(f"experiment/{experiment}")["experiment"]
    return bool(found["attempt"] == 2 or found["status"] == "keep")


@pytest.mark.parametrize("victims", [("RQ worker",), ("keeper", "horse")], ids=" and ".join)
def test_what_hides_from_its_run_is_found_when_its_worker_is_killed(
    lab: RunningLab, victims: tuple[str, ...]
) -> None:
    tag = victims[0].replace(" ", "-")
    lab.setup(tag)
    script = DAEMON + TRAIN.replace("SECONDS = 0.2", "SECONDS = 20.0")
    experiment = lab.submit(tag, commit_sha=lab.commit({"train.py": script}))
    lab.until_training(experiment)
    escaped = lab.process(f"escaped-{experiment}@1")

    for process in [VICTIMS[victim](lab) for victim in victims]:
        process.kill()

    lab.until(lambda: not lives(escaped), "what hid has ended")
    lab.until(lambda: goes_on(lab, experiment), "it runs again, or has ended well")
    if lab.status(experiment) != "keep":
        lab.post("experiment/stop", experiment_id=experiment)
        lab.until_status(experiment, "stopped")
    lab.until_idle()
    lab.until(lambda: not lab.processes("escaped-"), "no process is left")
    lab.until(lambda: not [*(lab.data / "work").glob("*/*")], "no checkout is left")
    assert lab.post("lab/audit")["violations"] == []
