"""The organiser's page of a swarm, command by command: a closed lab lets workers in, is watched, steered and used."""

from __future__ import annotations

import json
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from functions.formats.constants import read_constants
from tests.commands import nightjar
from tests.conftest import ROOT
from tests.journeys.running import PATIENCE_S, RunningLab, running_lab
from triggers.cli.events import events_command as events

PAGE = (ROOT / "docs" / "organiser.md").read_text()
VARYING = PAGE.split("## What a swarm may vary\n")[1].split("\n## ")[0]
RUNNING = PAGE.split("## Run a swarm\n")[1].split("\n## ")[0]
TINYLM = ROOT / "examples" / "tinylm" / "train.py"
WORKER = Path(__file__).with_name("published_worker.py")
ISSUE, EXPORT, UP = re.findall(r"^   (\S.*)$", RUNNING.split("```bash\n")[1].split("```")[0], re.MULTILINE)


def commands(section: str) -> list[list[str]]:
    """The words of every command of ours that stands in a section, in its order."""
    return [shlex.split(words, comments=True) for words in re.findall(r"\./nightjar ([^`\n]+)", section)]


@pytest.fixture(scope="module")
def secret() -> str:
    name, _, how = EXPORT.removeprefix("export ").partition("=")
    assert (name, how) == ("NIGHTJAR_SWARM_SECRET", "$(openssl rand -hex 32)")
    return secrets.token_hex(32)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, secret: str) -> Iterator[RunningLab]:
    """A lab that was opened as the page says, with the dimensions of tinylm."""
    *settings, program, verb = shlex.split(UP)
    assert (program, verb) == ("./nightjar", "up")
    given = dict(word.split("=", 1) for word in settings)
    with running_lab(tmp_path_factory.mktemp("lab"), **given, NIGHTJAR_SWARM_SECRET=secret) as found:
        issued = nightjar(found.data, *shlex.split(ISSUE)[1:])
        assert issued.returncode == 0, issued.stderr
        found.start()
        (found.data.parent / "train.py").write_bytes(TINYLM.read_bytes())
        scanned = nightjar(found.data, "dims", "scan", "train.py")
        (found.data.parent / "dimensions.toml").write_text(scanned.stdout)
        yield found


def test_every_command_of_the_page_does_what_it_says(lab: RunningLab, secret: str) -> None:
    scan, *others = commands(VARYING)
    assert scan == ["dims", "scan", "train.py", ">", "dimensions.toml"]
    functions = {"dimension::freeze", "dimension::unfreeze", "dimension::propose"}
    assert {words[1] for words in others} > {"define", "ls", *functions}
    for words in others:
        if words[1] == "dimension::freeze":
            words[words.index("--value") + 1] = "0.003"
        done = nightjar(lab.data, *words)
        assert done.returncode == 0, (words, done.stderr)
    url = f"http://127.0.0.1:{lab.port}"
    joined = subprocess.run(
        [
            sys.executable,
            "-I",
            str(WORKER),
            url,
            "--worker-id",
            "ann-4090",
            "--enroll-token",
            secret,
            "--runs",
            "2",
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert joined.returncode == 0, joined.stderr
    assert lab.http.post("/runs/start/ann-4090", json={}).json()["run_id"] == "swarm-4"

    told: dict[str, str] = {}
    for words in commands(RUNNING.replace(ISSUE, "").replace(UP, "")):
        if words[0] == "join" or words[:2] == ["take", "mar11-7"]:
            continue  # those of a worker's owner, and of a tag of agents
        if words[0] == "events":
            events.make_context("events", words[1:])
            continue
        if "--diff" in words:
            words[-1] = "1"  # the swarm is young
        done = nightjar(lab.data, *words)
        assert done.returncode == 0, (words, done.stderr)
        told[" ".join(words[:2])] = done.stdout

    assert told["token issue"].startswith("nj_")
    assert json.loads(told["call swarm::health"])["experiments"] == 3
    assert [row["worker_id"] for row in json.loads(told["call swarm::leaderboard"])] == ["ann-4090"]
    [ann] = json.loads(told["call swarm::workers"])["workers"]
    assert (ann["worker_id"], ann["contact"]) == ("ann-4090", "a friend")
    assert [run["id"] for run in json.loads(told["call run::active"])] == ["swarm-4"]
    assert "swarm-3" in told["ls swarm"]
    assert told["journal --tag"].startswith("## Checkpoint 1 · ")
    assert told["diff swarm-2"].startswith("--- swarm-2\n+++ swarm-3\n")
    assert lab.get("experiment/swarm-4")["experiment"]["status"] == "stopped"
    assert lab.get("experiment/swarm-1")["experiment"]["status"] == "retracted"
    config = lab.get("experiment/swarm-2")["experiment"]["config_delta"]
    now = read_constants((lab.data.parent / "train.py").read_text())
    assert {name: now[name] for name in config} == config
    assert lab.post("search/policy", tag="swarm")["policy"]["budgets"]["base_s"] == 240
    assert lab.post("lab/audit")["violations"] == []


def test_it_answers_under_the_name_that_the_page_gives_it_and_under_no_other(lab: RunningLab) -> None:
    ours = lab.http.get("/health", headers={"host": "swarm.example"})
    other = lab.http.get("/health", headers={"host": "other.example"})

    assert (ours.status_code, other.is_success) == (200, False)
