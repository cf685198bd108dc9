"""`nightjar events`, `logs -f` and `wait`, as a person and a script use them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import nightjar
from tests.journeys.running import PATIENCE_S, RunningLab


def command(*words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "triggers.cli", *words]


def environment(data: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "NIGHTJAR_DATA": str(data), **more}


def wait(lab: RunningLab, *words: str) -> subprocess.CompletedProcess[str]:
    return nightjar(lab.data, "wait", *words)


@pytest.fixture
def followed(lab: RunningLab, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """`nightjar events --json` as it runs, and where its lines go."""
    lines = tmp_path / "events.jsonl"
    with lines.open("w") as out:
        process = subprocess.Popen(
            command("events", "--json", "--last", "1"),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.PIPE,
            env=environment(lab.data),
            text=True,
        )
    try:
        lab.until(lines.read_text, "the newest event is told")
        yield process, lines
    finally:
        process.kill()
        process.wait()


def kill_web(lab: RunningLab) -> None:
    """SIGKILL; `up` starts it again."""
    web = lab.process("triggers.web")
    web.kill()
    lab.until(
        lambda: (
            lab.processes("triggers.web")
            and lab.process("triggers.web").pid != web.pid
            and lab.get("lab/status")
        ),
        "the web process answers again",
    )


def test_following_and_waiting_survive_a_kill_of_the_web_process_and_lose_nothing(
    lab: RunningLab, followed: tuple[subprocess.Popen[str], Path]
) -> None:
    process, lines = followed
    lab.setup("patient")
    name = lab.submit("patient", config_delta={"SECONDS": 600.0})
    argv = command("wait", name)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment(lab.data)) as waiting:
        try:
            lab.until(lambda: _was_answered(lab, name), "its first look is answered, and it waits")
            for nth in range(20):
                if nth == 10:
                    kill_web(lab)
                lab.setup(f"kill{nth}")
            assert waiting.poll() is None
            lab.post("experiment/stop", experiment_id=name)
            outcome, _ = waiting.communicate(timeout=PATIENCE_S)
        finally:
            waiting.kill()
    assert (waiting.returncode, outcome.startswith(f"{name}: stopped")) == (8, True)

    def told() -> list[str]:
        events = [json.loads(text) for text in lines.read_text().splitlines()]
        return [e["subject"] for e in events if e["type"] == "tag.created" and e["tag"].startswith("kill")]

    lab.until(lambda: len(told()) >= 20, "every event is told")
    assert told() == [f"kill{nth}" for nth in range(20)]

    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "trying again" in said
    assert "connected again" in said
    assert "Traceback" not in said


def _was_answered(lab: RunningLab, experiment: str) -> bool:
    """Whether somebody asked once how it goes with an experiment: that request is told in the log."""
    told = (lab.data / "logs" / "web.log").read_text().splitlines()
    return any("/wait 200 " in line and f"experiment_id={experiment} " in line for line in told)


def test_new_bests_alone_can_be_followed(lab: RunningLab) -> None:
    lab.setup("best")
    for value in (3.0, 4.0, 2.0):
        lab.until_status(lab.submit("best", config_delta={"VALUE": value}), "keep", "discard")
    process = subprocess.Popen(
        command("events", "--only-new-best", "--tag", "best", "--last", "100"),
        stdout=subprocess.PIPE,
        env=environment(lab.data, PYTHONUNBUFFERED="1"),
        text=True,
    )
    assert process.stdout is not None
    try:
        told = [process.stdout.readline().split() for _ in range(2)]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()

    assert [words[1:] for words in told] == [["best.changed", "best-1", "3"], ["best.changed", "best-3", "2"]]


def test_following_a_tag_that_is_not_there_says_so_and_waits_for_it(lab: RunningLab) -> None:
    with subprocess.Popen(
        command("events", "--tag", "later", "--type", "tag.created", "--last", "100"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(lab.data, PYTHONUNBUFFERED="1"),
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            lab.setup("later")
            told = process.stdout.readline().split()
        finally:
            process.kill()

    assert said == "nightjar: there is no tag 'later' yet: its events come once it is opened\n"
    assert told[1:3] == ["tag.created", "later"]


def test_following_no_lab_says_how_to_start_one(tmp_path: Path) -> None:
    done = nightjar(tmp_path, "events", NIGHTJAR_PORT="1")

    assert done.returncode == 1
    assert "-> start one with ./nightjar up" in done.stderr


def test_the_lab_s_refusal_ends_the_following(lab: RunningLab) -> None:
    for words, code in ((["--type", "no.such"], 1), (["--only-new-best", "--type", "gpu.idle"], 2)):
        done = nightjar(lab.data, "events", *words)

        assert done.returncode == code, done.stderr


def test_waiting_ends_with_the_exit_code_of_the_outcome(lab: RunningLab) -> None:
    lab.setup("codes")
    keep = wait(lab, lab.submit("codes", config_delta={"VALUE": 1.0}))
    discard = wait(lab, lab.submit("codes", config_delta={"VALUE": 2.0}), "--json")
    crash = wait(lab, lab.submit("codes", config_delta={"VALUE": "none"}))
    again = wait(lab, lab.post("experiment/retest", experiment_id="codes-1")["retest_id"])
    endless = lab.submit("codes", config_delta={"SECONDS": 600.0})
    running = wait(lab, endless, "--timeout", "0.2")
    called = nightjar(lab.data, "call", "experiment::wait", "--experiment-id", endless, "--timeout", "0.1")
    lab.post("experiment/stop", experiment_id=endless)
    stopped = wait(lab, endless)
    unknown = wait(lab, "codes-99")
    wrong = wait(lab, endless, "--timeout", "soon")

    ended = (keep, discard, crash, again, running, called, stopped, unknown, wrong)
    assert [done.returncode for done in ended] == [0, 3, 4, 0, 5, 5, 8, 1, 2]
    assert again.stdout.startswith("codes-1.2: measured  1.000000")
    assert keep.stdout.startswith("codes-1: first  1.000000")
    assert json.loads(discard.stdout)["status"] == "discard"
    assert "no experiment 'codes-99'" in unknown.stderr
    assert keep.stderr == ""
