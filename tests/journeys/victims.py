"""The processes of a lab that journeys kill or stop, and how each is found in the middle of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import psutil

from tests.journeys.running import RunningLab

Find = Callable[[RunningLab], psutil.Process]


def rq_worker(lab: RunningLab) -> psutil.Process:
    """The RQ worker, whose horses go by its command line."""
    return lab.process("-m workers.gpu")


def train_horse(lab: RunningLab) -> psutil.Process:
    """The RQ worker's process for the one run, which has started the script."""
    horse = lab.train_child().parent()
    assert horse is not None, "the script has no parent"
    return horse


VICTIMS: Mapping[str, Find] = {
    "train child": lambda lab: lab.train_child(),
    "horse": train_horse,
    "RQ worker": rq_worker,
    "keeper": lambda lab: lab.process("-m workers.keeper"),
    "workers' supervisor": lambda lab: lab.process("-m workers.supervisor"),
    "web": lambda lab: lab.process("-m triggers.web"),
    "events": lambda lab: lab.process("-m triggers.events"),
    "clock": lambda lab: lab.process("-m triggers.clock"),
    "Redis": lambda lab: lab.process("redis-server"),
}
STANDING = {name: find for name, find in VICTIMS.items() if name not in ("train child", "horse")}
"""Those that are there without a run, too."""
