"""Whatever is killed or stopped in the middle of a run: it ends or runs again, no orphan, no stuck slot."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.journeys.running import FAST, RunningLab, describe, lives, running_lab
from tests.journeys.victims import STANDING, VICTIMS

LONG: dict[str, Any] = {"config_delta": {"SECONDS": 2.0}}
ENDLESS: dict[str, Any] = {"config_delta": {"SECONDS": 60.0}}
FINISHED = ("keep", "discard", "crash")


@pytest.fixture(scope="module")
def one_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """One lab for all tests: it has to be whole again after each."""
    pace = {"NIGHTJAR_SILENT_S": "3", "NIGHTJAR_REDIS_APPENDFSYNC": "always"}
    with running_lab(tmp_path_factory.mktemp("lab"), FAST, **pace) as found:
        found.start()
        yield found


@pytest.fixture
def lab(one_lab: RunningLab) -> RunningLab:
    """The lab of all tests, with each of its processes once and nothing to train."""
    if one_lab.up_ended():
        one_lab.start()  # the test before has failed
    one_lab.until(lambda: all(find(one_lab) for find in STANDING.values()), "every process is there once")
    one_lab.until_idle()
    return one_lab


@pytest.fixture
def tag(lab: RunningLab, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name)) % 10**9}"
    lab.setup(name)
    return name


OFTEN = [
    *((victim, signal.SIGKILL) for victim in ("horse", "RQ worker", "workers' supervisor", "clock", "Redis")),
    *((victim, signal.SIGSTOP) for victim in ("web", "RQ worker")),
]
"""One for each way to notice that a process has gone or stands still. All others are tried in a long run."""
CASES = [
    pytest.param(
        victim,
        number,
        id=f"{victim}-{number.name}",
        marks=[] if (victim, number) in OFTEN else pytest.mark.long,
    )
    for number in (signal.SIGKILL, signal.SIGSTOP)
    for victim in VICTIMS
]


@pytest.mark.parametrize(("victim", "number"), CASES)
def test_a_run_survives_or_runs_again_when_a_process_dies_or_stands_still_and_nothing_is_lost(
    lab: RunningLab, tag: str, victim: str, number: signal.Signals
) -> None:
    earlier = lab.until_status(lab.submit(tag), "keep")
    experiment = lab.submit(tag, **(ENDLESS if victim == "train child" else LONG))
    waiting = lab.submit(tag, config_delta={"SECONDS": 0.3})
    script = lab.until_training(experiment)
    process = VICTIMS[victim](lab)

    process.send_signal(number)

    found = lab.until_status(experiment, *FINISHED)["experiment"]
    ends = ("crash", "killed") if victim == "train child" else (found["status"], None)
    assert (found["status"], found["error_kind"]) == ends
    assert lab.until_status(waiting, *FINISHED)["experiment"]["status"] != "crash"
    lab.until_idle()
    lab.until(lambda: not lives(process), f"{victim} has ended")
    assert not lives(script), describe(script)
    assert lab.processes("train.py") == []
    assert lab.get(f"experiment/{earlier['experiment']['experiment_id']}") == earlier
    assert lab.post("lab/audit")["violations"] == []


def test_killing_up_itself_leaves_no_process_and_the_next_up_goes_on(lab: RunningLab, tag: str) -> None:
    experiment = lab.submit(tag, **LONG)
    waiting = lab.submit(tag)
    lab.until_training(experiment)

    assert lab.up is not None
    lab.up.kill()
    lab.up.wait()
    lab.until(lambda: not lab.processes(), "nothing of the lab is alive")
    lab.start()

    assert lab.until_status(experiment, "keep")["experiment"]["attempt"] == 2
    lab.until_status(waiting, "keep", "discard")
    lab.until_idle()


def test_ctrl_c_lets_the_run_finish_and_keeps_what_waits(lab: RunningLab, tag: str) -> None:
    experiment = lab.submit(tag, **LONG)
    waiting = lab.submit(tag, config_delta={"SECONDS": 0.3})
    lab.until_training(experiment)

    assert lab.stop(signal.SIGINT) == 0
    left = [describe(p) for p in lab.processes()]
    lab.start()

    assert left == []
    found = lab.get(f"experiment/{experiment}")["experiment"]
    assert (found["status"], found["attempt"]) == ("keep", 1)
    assert lab.until_status(waiting, "keep", "discard")["experiment"]["attempt"] == 1


def test_a_second_ctrl_c_ends_the_run_and_its_experiment_runs_again_later(lab: RunningLab, tag: str) -> None:
    experiment = lab.submit(tag, **ENDLESS)
    script = lab.until_training(experiment)

    assert lab.up is not None
    lab.up.send_signal(signal.SIGINT)
    lab.until(lambda: "waiting for" in lab.output(), "up drains")
    lab.up.send_signal(signal.SIGINT)
    lab.up.wait(60)
    lab.until(lambda: not lab.processes(), "nothing of the lab is alive")

    assert not lives(script)
    lab.start()
    assert lab.until(lambda: lab.get(f"experiment/{experiment}")["experiment"]["attempt"] == 2, "attempt 2")
    lab.post("experiment/stop", experiment_id=experiment)
