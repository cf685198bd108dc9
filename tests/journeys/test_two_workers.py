"""Two workers on one slot: one serves it, the other one waits."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from tests.commands import command_line
from tests.journeys.running import FAST, RunningLab, running_lab


@pytest.fixture
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with running_lab(tmp_path_factory.mktemp("lab"), FAST) as found:
        found.start("--isolation", "limits")
        yield found


def slot(lab: RunningLab) -> dict[str, Any]:
    (found,) = lab.until(lambda: lab.get("pool/list")["workers"], "the slot is there")
    return dict(found)


@contextmanager
def worker_beside(lab: RunningLab) -> Iterator[psutil.Popen]:
    """A further worker on the data directory, with its keeper."""
    words = ("worker", "--data", str(lab.data), "--repo", str(lab.repo), "--gpu", "none", "--cpu", "1")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NIGHTJAR_")} | lab.settings
    with (lab.data.parent / "worker.log").open("w") as log:
        worker = psutil.Popen(
            [*command_line(*words), "--isolation", "none"],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        lab.until(lambda: lab.get("lab/status")["counts"]["keeper"] == 2, "both keepers are there")
        yield worker
    finally:
        kill(worker)


def kill(worker: psutil.Popen) -> None:
    """Kill it with all that it has started."""
    if worker.poll() is None:
        family = [*worker.children(recursive=True), worker]
        for process in family:
            process.kill()
        worker.wait()


def test_a_slot_is_served_on_when_a_worker_beside_it_is_told_to_end_and_killed(lab: RunningLab) -> None:
    lab.setup()
    with worker_beside(lab) as worker:
        assert slot(lab)["labels"]["isolation"] == "limits"
        runs = [lab.submit(config_delta={"SECONDS": 5.0, "VALUE": 1.0 + n}) for n in range(2)]
        lab.until_training(runs[0])
        worker.send_signal(signal.SIGINT)
        lab.until(lambda: worker.poll() is not None or slot(lab)["leaving"], "it has heard the signal")
        kill(worker)

        for run in runs:
            lab.until_status(run, "keep", "discard")
        lab.until_idle()

    assert lab.post("lab/audit")["violations"] == []
