"""`nightjar agent`: agents that exit, hang, loop and flood are started again, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.commands import nightjar
from tests.journeys.running import PATIENCE_S, TRAIN, RunningLab, git, running_lab
from tests.warm import Started, start

WIDE = TRAIN.replace("VALUE = 1.0", "WIDTH = 48\nVALUE = 2.9 - WIDTH / 500")
PRETENDING = str(Path(__file__).with_name("pretending.py"))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab with tokens, and its operator's at hand."""
    with running_lab(tmp_path_factory.mktemp("lab")) as found:
        found.commit({"train.py": WIDE})
        found.base = git(found.repo, "rev-parse", "HEAD")
        words = ("issue", "olga", "--role", "operator", "--direct")
        issued = nightjar(found.data, "token", *words)
        assert issued.returncode == 0, issued.stderr
        found.http.headers["authorization"] = f"Bearer {issued.stdout.strip()}"
        found.start()
        yield found


class Agents:
    """A `nightjar agent`, and what it says."""

    def __init__(self, process: Started, log: Path) -> None:
        self.pid, self.send_signal, self.wait = process.pid, process.send_signal, process.wait
        self.log = log

    def told(self) -> tuple[int, str]:
        """The exit code and what it said, once it has ended."""
        return self.wait(PATIENCE_S), self.log.read_text()


@contextmanager
def agents(lab: RunningLab, tag: str, *words: str) -> Iterator[Agents]:
    """A `nightjar agent` on this lab."""
    words = ("agent", "--data", str(lab.data), "--tag", tag, "--repo", str(lab.repo), *words)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NIGHTJAR_")}
    log = lab.data.parent / f"{tag}.log"
    with log.open("w") as file:
        process = start(words, environment, lab.data.parent, file.fileno())
    try:
        yield Agents(process, log)
    finally:
        process.kill()
        process.wait()


def pretend(what: str) -> tuple[str, ...]:
    return ("--", sys.executable, PRETENDING, what)


def until_at_work(lab: RunningLab, tag: str) -> None:
    log = lab.data / "agents" / tag / "agent" / "log"
    lab.until(lambda: "hello, " in log.read_text() if log.exists() else False, "the agent is at work")


def places(lab: RunningLab, tag: str) -> list[Path]:
    return sorted((lab.data / "agents" / tag).iterdir())


def left_of(folder: Path) -> list[psutil.Process]:
    """Living processes that work in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and str(folder) in process.cwd():
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_agents_that_exit_after_each_idea_work_until_the_budget_is_spent(lab: RunningLab) -> None:
    lab.setup("spent", baseline_first=False)
    lab.post("tag/budget", tag="spent", runs=4)

    with agents(lab, "spent", "-n", "2", "--name", "ada", *pretend("work"), "{program}") as process:
        code, said = process.told()

    assert code == 0, said
    assert said.count("spent has no runs left") == 2, said
    history = lab.post("experiment/history", tag="spent")["experiments"]
    by = {name: [e for e in history if e["agent"] == name] for name in ("ada-1", "ada-2")}
    assert sum(map(len, by.values())) == 4
    assert all(by.values())
    for name, place in zip(by, places(lab, "spent"), strict=True):
        log = (place / "log").read_text()
        assert place.name == name
        assert "hello, " in log
        assert (place / "clone" / ".nightjar" / "auth").stat().st_mode & 0o077 == 0
        starts = log.count(" start ")
        assert f"{name}: {len(by[name])} experiments seen, {starts} starts" in said
        assert f"{100 * len(by[name])} tokens, {0.25 * len(by[name]):.2f} USD" in said
        assert git(place / "clone", "branch", "--show-current") == f"autoresearch/spent-{name}"
    assert left_of(lab.data / "agents") == []


def test_an_agent_s_token_is_narrow_seen_in_no_process_list_and_revoked_at_the_end(lab: RunningLab) -> None:
    with agents(lab, "narrow", *pretend("hang")) as process:
        until_at_work(lab, "narrow")
        (token,) = [t for t in lab.post("token/list")["tokens"] if t["name"] == "narrow-agent"]
        auth = (lab.data / "agents" / "narrow" / "agent" / "clone" / ".nightjar" / "auth").read_text()
        secret = auth.removeprefix("Authorization: Bearer ").strip()
        lines = [word for p in psutil.process_iter(["cmdline"]) for word in p.info["cmdline"] or () if word]
        second = nightjar(lab.data, "agent", "--tag", "narrow", "--repo", str(lab.repo), "--", "true")
        seen = lab.until(
            lambda: [a for a in lab.get("lab/status")["agents"] if a["tag"] == "narrow"], "the lab shows it"
        )
        status = nightjar(lab.data, "status").stdout
        process.send_signal(signal.SIGINT)
        code, said = process.told()

    assert code == 0, said
    assert (second.returncode, "agent is at work on narrow already" in second.stderr) == (1, True)
    assert [(a["agent"], a["starts"], a["tokens"]) for a in seen] == [("agent", 1, None)]
    assert "agent agent on narrow: " in status
    assert [a for a in lab.get("lab/status")["agents"] if a["tag"] == "narrow"] == []
    assert (token["role"], token["tags"], token["status"]) == ("agent", ["narrow"], "active")
    assert secret.startswith("nj_")
    assert not [line for line in lines if secret in line]
    assert secret not in said
    (after,) = [t for t in lab.post("token/list")["tokens"] if t["name"] == "narrow-agent"]
    assert after["status"] == "revoked"


def test_an_agent_that_hangs_leaves_nothing_alive(lab: RunningLab) -> None:
    with agents(lab, "ended", *pretend("hang")) as process:
        lab.until(
            lambda: len([p for p in left_of(lab.data) if p.name() == "sleep"]) == 2,
            "it has children of its own",
        )
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_S)
        lab.until(lambda: not left_of(lab.data / "agents"), "nothing is left")


def test_one_that_comes_to_nothing_is_started_again_and_given_up(lab: RunningLab) -> None:
    why = "it has worked on no experiment"
    with agents(lab, "flooded", "--starts", "2", "--idle-after=2s", *pretend("flood")) as process:
        code, said = process.told()

    assert code == 1, said
    assert said.count(f"agent: {why}") == 2, said
    assert "given up: 2 starts in a row came to nothing" in said
    (place,) = places(lab, "flooded")
    start = (place / "clone" / ".nightjar" / "start.md").read_text()
    assert f"your process before this one was ended: {why}" in start
    assert '"tag": "flooded"' in start
    assert sum(file.stat().st_size for file in place.glob("log*")) <= 101 * 1024 * 1024
    assert left_of(place) == []


def test_a_command_of_the_folder_here_is_told_its_lab_tag_and_name_in_the_clone(lab: RunningLab) -> None:
    here = lab.data.parent / "tool"
    here.write_text(f'#!/bin/sh\nexec {sys.executable} {PRETENDING} names "$@"\n')
    here.chmod(0o755)
    words = ("--", "./tool", "--name={name}", "--tag={tag}")

    with agents(lab, "named", "-n", "2", "--starts", "1", *words) as process:
        code, said = process.told()

    assert code == 1
    assert "it ended with exit code 0" in said
    for name in ("agent-1", "agent-2"):
        log = (lab.data / "agents" / "named" / name / "log").read_text()
        assert f"told: --name={name} --tag=named http://127.0.0.1:{lab.port} named {name}\n" in log
        assert "hello, 0 characters" not in log, "its charter is on standard input"
