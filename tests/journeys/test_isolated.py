"""A script in the tier that a worker takes by itself tries what it could do before to the lab around it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import pytest

from tests.commands import nightjar
from tests.journeys.running import RunningLab, running_lab
from tests.workers.tiers import needs
from workers.attempt.confine import version

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(300),
    pytest.mark.skipif(version() < 6 and not os.environ.get("CI"), reason="this kernel's Landlock is older"),
]

TRIES = """
import os, pathlib, socket, urllib.request

data, port = pathlib.Path({data!r}), {port}
found = dict()

def tried(name):
    def run(attempt):
        try:
            attempt()
            found[name] = "done"
        except BaseException as problem:
            found[name] = type(problem).__name__
    return run

@tried("password")
def _(): (data / "redis.json").read_text()
@tried("key")
def _(): (data / "operator.key").read_text()
@tried("data")
def _(): (data / "planted").write_text("x")
@tried("api")
def _(): urllib.request.urlopen(f"http://127.0.0.1:{{port}}/api/lab/status", timeout=5).read()
@tried("objects")
def _(): (pathlib.Path({repo!r}) / ".git" / "objects" / "planted").write_text("x")
@tried("branch")
def _(): (pathlib.Path({repo!r}) / ".git" / "refs" / "heads" / "main").write_text("x")
@tried("memory")
def _():
    for pid in {pids!r}:
        open(f"/proc/{{pid}}/mem", "rb")
@tried("environment")
def _():
    for pid in {pids!r}:
        open(f"/proc/{{pid}}/environ", "rb").read()
@tried("signal")
def _():
    for pid in {pids!r}:
        os.kill(pid, 0)
print("=>", *(f"{{name}}={{told}}" for name, told in sorted(found.items())))
print("---\\nval_bpb: 1.0")
"""

KEPT = {
    "landlock": "landlock (files, TCP, signals)",
    "bwrap": "bwrap (files, network, processes, Landlock)",
}
NOT_THERE = {"PermissionError", "FileNotFoundError", "ProcessLookupError", "URLError", "OSError"}
REFUSED = ("branch", "data", "environment", "key", "memory", "objects", "password", "signal")


@pytest.fixture(scope="module", params=["landlock", "bwrap"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab whose worker takes its tier by itself: the second one, too, where namespaces are refused."""
    tier, folder = needs(request.param), tmp_path_factory.mktemp("lab")
    (folder / "bwrap").write_text("#!/bin/sh\necho bwrap: Creating new namespace failed >&2; exit 1\n")
    (folder / "bwrap").chmod(0o755)
    path = os.environ["PATH"] if tier == "bwrap" else f"{folder}{os.pathsep}{os.environ['PATH']}"
    with running_lab(folder, PATH=path) as found:
        found.start()
        found.setup()
        yield found


def tier_of(lab: RunningLab) -> str:
    [found] = {p["isolation"] for p in lab.get("lab/status")["processes"] if "isolation" in p}
    return str(found).split()[0]


def what_it_could_do(lab: RunningLab) -> dict[str, str]:
    """What became of each of the tries in a run: `done`, or its error."""
    pids = [lab.process(f"-m {kind}").pid for kind in ("triggers.web", "triggers.events", "workers.keeper")]
    tries = TRIES.format(data=str(lab.data), port=lab.port, repo=str(lab.repo), pids=pids)
    found = lab.until_status(lab.submit(commit_sha=lab.commit({"train.py": tries})), "keep", "discard")
    [line] = [line for line in found["log_tail"].splitlines() if line.startswith("=>")]
    return dict(word.split("=") for word in line[3:].split())


def test_a_script_cannot_reach_the_lab_around_it(lab: RunningLab) -> None:
    told = what_it_could_do(lab)

    if tier_of(lab) == "landlock":
        assert told == {"api": "URLError"} | dict.fromkeys(REFUSED, "PermissionError")
    else:  # the lab of this test lies below /tmp, of which the run has one of its own
        assert {*told} - {"data"} == {name for name, said in told.items() if said in NOT_THERE} - {"data"}, (
            told
        )
    assert not (lab.data / "planted").exists()
    assert lab.post("lab/audit")["violations"] == []


def test_a_worker_says_how_far_its_runs_are_isolated(lab: RunningLab) -> None:
    doctor = json.loads(nightjar(lab.data, "doctor", "--json").stdout)

    [finding] = [f for f in doctor if f["what"] == "isolation"]
    assert finding["state"] == "ok"
    assert finding["found"].endswith(kept := KEPT[tier_of(lab)])
    assert (
        f"training {lab.repo}/train.py with {sys.executable} on 1 CPU slot, isolation {kept}\n"
        in lab.output()
    )
    status = nightjar(lab.data, "status").stdout
    assert f": training {lab.repo}/train.py with {sys.executable} on 1 CPU slot, isolation {kept}\n" in status
    assert "Nightjar's own Python trains" in status
    why = "Creating new namespace failed; run the worker outside its container"
    is_told = [
        why in finding["remedy"],
        "no stronger isolation: no bwrap: a confined process failed" in lab.output(),
    ]
    assert is_told == [tier_of(lab) == "landlock"] * 2


CALLS = """
import os, sys, time, urllib.error, urllib.request

def call(path="api/lab/audit", body=b"{{}}"):
    try:
        return urllib.request.urlopen("http://127.0.0.1:{port}/" + path, body, timeout=20).status
    except urllib.error.HTTPError as refusal:
        return refusal.code

read, write = os.pipe()
if os.fork() == 0:  # one that hides: no session, parent or variable of its run
    os.setsid()
    if os.fork() == 0:
        os.write(write, str(call()).encode())
    os._exit(0)
print("=>", call(), os.read(read, 9).decode(), call("api/lab/status", None))
print("---\\nval_bpb: 1.0")
"""


@pytest.fixture(scope="module")
def unconfined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with running_lab(tmp_path_factory.mktemp("open")) as found:
        found.start("--isolation", "limits")
        found.setup()
        yield found


def test_a_run_is_no_operator_where_it_can_call_the_lab(unconfined: RunningLab) -> None:
    """A process that hides from the lab is none either."""
    calls = unconfined.commit({"train.py": CALLS.format(port=unconfined.port)})

    found = unconfined.until_status(unconfined.submit(commit_sha=calls), "keep", "crash")

    assert "=> 403 403 200" in found["log_tail"], found["log_tail"]
    assert nightjar(unconfined.data, "call", "lab::audit").returncode == 0


def test_with_less_isolation_a_script_reaches_all_that_its_user_reaches(unconfined: RunningLab) -> None:
    doctor = json.loads(nightjar(unconfined.data, "doctor", "--json").stdout)

    told = what_it_could_do(unconfined)

    [finding] = [f for f in doctor if f["what"] == "isolation"]
    assert finding["state"] == "warning"
    assert "limits (a run reaches whatever this user reaches, the operator's key too)" in finding["found"]
    assert told == {"api": "done"} | dict.fromkeys(REFUSED, "done")
