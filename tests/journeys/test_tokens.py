"""Tokens of people and programs on a lab that others can reach, from the first token to the last."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import nightjar, started_nightjar
from tests.examples.test_program import BLOCKS, CURLRC, PROGRAM, run
from tests.journeys.running import PATIENCE_S, TRAIN, RunningLab, git, running_lab
from tests.warm import start

TOKEN = re.compile(r"nj_[a-z2-7]{10}_[A-Za-z0-9_-]{43}")
WIDE = TRAIN.replace("VALUE = 1.0", "WIDTH = 48\nVALUE = 2.9 - WIDTH / 500")


def token(data: Path, *words: str, stdin: str = "", **environment: str) -> str:
    """The token that a command prints, alone."""
    done = nightjar(data, "token", *words, stdin=stdin, **environment)
    assert done.returncode == 0, done.stderr
    assert TOKEN.fullmatch(done.stdout.removesuffix("\n")), done.stdout
    assert not TOKEN.search(done.stderr)
    return done.stdout.strip()


def told(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab that listens on every address; it is begun as its own refusal says."""
    folder = tmp_path_factory.mktemp("lab")
    with running_lab(folder, NIGHTJAR_HOST="0.0.0.0") as found:
        refused = started_nightjar(found.data, "up", "--port", str(found.port), NIGHTJAR_HOST="0.0.0.0")
        assert refused.returncode == 1
        (remedy,) = re.findall(r"\./nightjar (token issue .+?);", refused.stderr)
        found.data.parent.joinpath("elsewhere").mkdir()
        first = nightjar(found.data.parent / "elsewhere" / "data", *shlex.split(remedy))
        assert first.returncode == 0, first.stderr
        found.http.headers["authorization"] = f"Bearer {first.stdout.strip()}"
        found.start()
        yield found


# -- the whole journey


async def test_an_agent_bound_to_a_tag_works_through_the_whole_curl_loop(
    lab: RunningLab, tmp_path: Path
) -> None:
    if shutil.which("curl") is None:
        assert not os.environ.get("CI"), "curl is missing, and with it what this test is about"
        pytest.skip("curl is missing")
    lab.commit({"train.py": WIDE})
    clone = tmp_path / "alice"
    git(tmp_path, "clone", "--quiet", str(lab.repo), str(clone))
    (tmp_path / ".curlrc").write_text(CURLRC)
    alice = token(lab.data, "issue", "alice", "--role", "agent", "--tag", "mar11", "--expires", "30d")
    (header,) = re.findall(r"`(-H @\S+)`", PROGRAM)
    (line,) = re.findall(r"the line\s+`(Authorization: Bearer )TOKEN`", PROGRAM)
    (clone / ".nightjar").mkdir()
    (clone / ".nightjar" / "auth").write_text(f"{line}{alice}\n")
    answers: list[dict[str, Any]] = []

    for block in BLOCKS:
        local = block.replace("http://127.0.0.1:3111", f"http://127.0.0.1:{lab.port}")
        local = local.replace("curl -s", f"curl {header} -s")
        answers += await run(local, clone, tmp_path)
        for waited_for in re.findall(r"/api/experiment/(mar11-\d)/wait", block):
            lab.until_status(waited_for, "keep")

    assert [a["experiment_id"] for a in answers if "duplicate_of" in a] == ["mar11-2", "mar11-3", "mar11-4"]
    assert "WIDTH = 96" in git(clone, "show", "HEAD:train.py")
    found = [lab.get(f"experiment/mar11-{n}")["experiment"] for n in (1, 2, 3, 4)]
    assert [e["agent"] for e in found] == ["nightjar", "alice", "alice", "alice"]
    assert found[2]["claimed"]
    assert 2.7961 in (found[2]["val_bpb"], found[2]["reported"])  # the lab may have run its code by now
    assert found[3]["status"] == "crash"
    (own,) = [gpu for gpu in lab.get("pool/list")["workers"] if gpu["of_agent"]]
    assert (own["gpu_id"], own["owner"], own["status"]) == ("box:0", "alice", "idle")
    for words in (
        ("experiment::setup", "--tag", "other"),
        ("tag::pause", "--tag", "mar11"),
        ("token::list",),
    ):
        done = nightjar(lab.data, "call", *words, NIGHTJAR_TOKEN=alice)
        assert done.returncode == 7
        assert alice not in done.stdout + done.stderr
    assert "needs the role operator" in done.stdout + done.stderr


def test_a_worker_enrolls_with_a_token_that_nobody_sees_on_the_command_line(lab: RunningLab) -> None:
    url = f"http://127.0.0.1:{lab.port}"
    nobodys = lab.data.parent / "elsewhere" / "workers"
    invite = token(lab.data, "issue", "swarm", "--role", "worker", "--enroll", "--uses", "2")

    piped = token(nobodys, "enroll", url, "--name", "box1", stdin=f"{invite}\n")
    by_variable = token(nobodys, "enroll", url, "--name", "box2", NIGHTJAR_ENROLL_TOKEN=invite)
    used_up = nightjar(nobodys, "token", "enroll", url, "--name", "box3", stdin=invite)
    nothing = nightjar(nobodys, "token", "enroll", url, "--name", "box3")

    names = [
        told(nightjar(nobodys, "token", "whoami", "--json", NIGHTJAR_URL=url, NIGHTJAR_TOKEN=mine))
        for mine in (piped, by_variable)
    ]
    assert [(me["name"], me["role"]) for me in names] == [("box1", "worker"), ("box2", "worker")]
    revoked = nightjar(lab.data, "token", "revoke", "swarm", "--descendants")
    assert "box1, box2" in revoked.stderr
    assert (used_up.returncode, nothing.returncode) == (7, 2)
    assert "used up\n  -> ask an operator for a new one" in used_up.stderr
    assert "NIGHTJAR_ENROLL_TOKEN" in nothing.stderr
    assert not TOKEN.search(used_up.stdout + used_up.stderr)


# -- the commands one by one


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("events",),
        ("doctor",),
        ("token", "issue", "x", "--role", "viewer"),
    ],
    ids=" ".join,
)
def test_who_has_no_token_is_told_how_to_get_one_and_exits_with_7(
    lab: RunningLab, words: tuple[str, ...]
) -> None:
    stranger = lab.data.parent / "elsewhere" / "none"

    done = nightjar(stranger, *words, NIGHTJAR_URL=f"http://127.0.0.1:{lab.port}")

    assert done.returncode == 7, done.stdout + done.stderr
    assert "NIGHTJAR_TOKEN" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_tokens_are_listed_with_their_state_and_revoked_by_name_or_id(lab: RunningLab) -> None:
    first = token(
        lab.data, "issue", "listed", "--role", "agent", "--tag", "a", "--tag", "b", "--expires", "1h"
    )
    token(lab.data, "rotate", "--overlap", "0", NIGHTJAR_TOKEN=first)
    rotated_out = nightjar(lab.data, "token", "whoami", NIGHTJAR_TOKEN=first)
    by_name = nightjar(lab.data, "token", "revoke", "listed")
    second = json.loads(nightjar(lab.data, "token", "issue", "listed", "--role", "viewer", "--json").stdout)
    by_id = nightjar(lab.data, "token", "revoke", second["id"], "--json")
    unknown = nightjar(lab.data, "token", "revoke", "nobody")

    listed = told(nightjar(lab.data, "token", "list", "--json"))["tokens"]
    rows = [row for row in listed if row["name"] == "listed"]
    people = nightjar(lab.data, "token", "list")
    assert [(r["role"], r["status"], r["tags"]) for r in rows] == [
        ("agent", "revoked", ["a", "b"]),
        ("viewer", "revoked", None),
    ]
    assert (rotated_out.returncode, by_name.returncode, by_id.returncode) == (7, 0, 0)
    assert told(by_id)["id"] == second["id"]
    assert (unknown.returncode, "token list" in unknown.stderr) == (1, True)
    assert "listed" in people.stdout
    assert first not in people.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("issue", "x", "--role", "viewer", "--tag", "t"), "tags are for agents"),
        (("issue", "x", "--role", "viewer", "--uses", "3"), "uses are for enroll tokens"),
        (("issue", "x", "--role", "worker", "--enroll"), "send uses or lasts_s"),
        (("issue", "x", "--role", "viewer", "--expires", "soon"), "not a duration"),
        (("rotate", "--direct"), "name the token"),
        (("enroll", "lab.example", "--name", "x"), "not a URL"),
        (("issue", "x", "--role", "operator", "--direct"), "NIGHTJAR_URL"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_is_a_usage_error_before_anything_is_sent(
    tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    elsewhere = {"NIGHTJAR_URL": "https://lab.example"} if why == "NIGHTJAR_URL" else {"NIGHTJAR_PORT": "1"}

    done = nightjar(tmp_path / "data", "token", *words, **elsewhere)

    assert done.returncode == 2, done.stderr
    assert why in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_lab_that_does_not_run_is_written_to_directly(tmp_path: Path) -> None:
    data = tmp_path / "data"
    nothing = nightjar(data, "token", "list", "--direct")
    too_early = nightjar(data, "token", "issue", "ann", "--role", "agent", "--direct")
    first = token(data, "issue", "ops", "--role", "operator", "--direct")
    lost = nightjar(data, "token", "revoke", "ops", "--direct")
    token(data, "issue", "ops2", "--role", "operator", "--direct")
    token(data, "rotate", "ops2", "--direct")

    rows = told(nightjar(data, "token", "list", "--direct", "--json"))["tokens"]
    assert (nothing.returncode, too_early.returncode) == (1, 1)
    assert "first token" in too_early.stderr
    assert [(r["name"], r["status"], r["issued_by"]) for r in rows] == [
        ("ops", "revoked", "direct"),
        ("ops2", "active", "direct"),
    ]
    assert "no operator's token is left" in lost.stderr
    assert first.split("_")[1] == rows[0]["id"]
    assert not (data / "redis.json").exists()


# -- the demo


def test_the_demo_of_a_closed_lab_works_by_the_key_and_gives_its_agents_tokens_for_the_night(
    tmp_path: Path,
) -> None:
    data = tmp_path / "demo"
    words = ("demo", "--data", str(data), "--runs", "2", "--budget", "0.2", "--port", "0")
    anywhere = {"NIGHTJAR_HOST": "0.0.0.0"}
    open_to_all = nightjar(data, *words, **anywhere)
    (remedy,) = re.findall(r"\./nightjar (token issue .+?);", open_to_all.stderr)
    token(tmp_path / "elsewhere", *shlex.split(remedy)[1:])
    nothing_ran = not (data / "logs").exists()

    ended, said = interrupted_after_the_baseline(data, *words, **anywhere)

    key = (data / "operator.key").read_text().strip()
    rows = told(nightjar(data, "token", "list", "--direct", "--json"))["tokens"]
    assert (open_to_all.returncode, nothing_ran) == (1, True)
    assert (ended, "interrupted; the lab is kept" in said) == (130, True), said
    assert {row["name"]: row["status"] for row in rows if row["role"] == "agent"} == {
        "demo1-ada": "revoked",
        "demo1-grace": "revoked",
    }
    for log in (data / "logs").iterdir():
        assert key not in said + log.read_text(), log


def interrupted_after_the_baseline(data: Path, *words: str, **environment: str) -> tuple[int, str]:
    """A demo that Ctrl-C ends when its first run is over: its exit code, and what it printed."""
    lines: list[str] = []
    ours, theirs = os.pipe()
    with open(ours) as printed:
        demo = start(words, os.environ | environment, data.parent, theirs)
        os.close(theirs)
        for line in printed:
            lines.append(line)
            if "demo1-1" in line:
                demo.send_signal(signal.SIGINT)
    return demo.wait(PATIENCE_S), "".join(lines)
