"""Scripts try what they can do to the lab around them, with each kind of isolation and without.

The operator of an open lab is whoever can read its key. No address makes one.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.commands import nightjar
from tests.journeys.running import RunningLab, running_lab
from tests.workers.tiers import needs
from workers.attempt.confine import version

pytestmark = pytest.mark.skipif(
    version() < 6 and not os.environ.get("CI"), reason="this kernel's Landlock is older"
)

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

    found = unconfined.until_status(unconfined.submit(commit_sha=calls), "keep", "discard", "crash")

    assert "=> 403 403 200" in found["log_tail"], found["log_tail"]
    assert nightjar(unconfined.data, "call", "lab::audit").returncode == 0


def test_with_less_isolation_a_script_reaches_all_that_its_user_reaches(unconfined: RunningLab) -> None:
    doctor = json.loads(nightjar(unconfined.data, "doctor", "--json").stdout)

    told = what_it_could_do(unconfined)
    branch = unconfined.repo / ".git" / "refs" / "heads" / "main"
    branch.write_text(f"{unconfined.base}\n")  # which the script has overwritten

    [finding] = [f for f in doctor if f["what"] == "isolation"]
    assert finding["state"] == "warning"
    assert "limits (a run reaches whatever this user reaches, the operator's key too)" in finding["found"]
    assert told == {"api": "done"} | dict.fromkeys(REFUSED, "done")


IN_FLIGHT = """
import array, json, socket, time

BODY = json.dumps({"name": "mallory", "role": "operator"})
ASKED = f"POST /api/token/issue HTTP/1.1\\r\\nHost: 127.0.0.1:{PORT}\\r\\nContent-Length: {len(BODY)}\\r\\n"
ASKED += f"Connection: close\\r\\n\\r\\n{BODY}"


def answered(is_in_flight):
    connection = socket.create_connection(("127.0.0.1", PORT))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, is_in_flight)  # the kernel sends 0.2 s later
    connection.sendall(ASKED.encode())
    if is_in_flight:  # from now on no process holds the connection
        here, there = socket.socketpair()
        here.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection.fileno()]))])
        connection.close()
        time.sleep(1)
        _, [(_, _, found)], *_ = there.recvmsg(1, socket.CMSG_SPACE(4))
        connection = socket.socket(fileno=array.array("i", found)[0])
    with connection.makefile("rb") as answer:
        return int(answer.read().split()[1])


print("answered", [answered(True) for _ in range(5)], answered(False), flush=True)
print("---\\nval_bpb: 1.0", flush=True)
"""
READS_KEY = """
try:
    print("the key begins with", open(KEY).read()[:3])
except OSError as refusal:
    print("refused", refusal.errno)
print("---\\nval_bpb: 1.0", flush=True)
"""


def printed(unconfined: RunningLab, text: str, **constants: Any) -> str:
    """The output of a run of this script. Its constants are set above it."""
    lines = "".join(f"{name} = {value!r}\n" for name, value in constants.items())
    experiment = unconfined.submit(commit_sha=unconfined.commit({"train.py": lines + text}))
    unconfined.until_status(experiment, "keep", "discard", "crash")
    return str(unconfined.get(f"experiment/{experiment}/log")["log"])


def test_no_run_becomes_operator_by_hiding_who_holds_its_connection(unconfined: RunningLab) -> None:
    text = printed(unconfined, IN_FLIGHT, PORT=unconfined.port)

    assert re.findall(r"answered (.*)", text) == ["[403, 403, 403, 403, 403] 403"], text
    assert unconfined.post("token/list")["tokens"] == []


def test_a_run_that_is_not_confined_can_read_the_key_and_the_lab_says_so(unconfined: RunningLab) -> None:
    text = printed(unconfined, READS_KEY, KEY=str(unconfined.data / "operator.key"))

    assert "the key begins with nj_" in text
    assert "the operator's key too" in unconfined.output()


def test_the_key_is_its_owner_s_alone_and_stands_nowhere_else(unconfined: RunningLab) -> None:
    path = unconfined.data / "operator.key"
    key = path.read_text().strip()
    backup = unconfined.data.parent / "lab.nightjar"
    answers = [
        nightjar(unconfined.data, *words)
        for words in (("status",), ("token", "whoami"), ("open",), ("config",))
    ]
    assert nightjar(unconfined.data, "backup", str(backup)).returncode == 0

    assert path.stat().st_mode & 0o777 == 0o600
    for process in unconfined.processes():
        assert key not in json.dumps([process.environ(), process.cmdline()]), process
    for file in [backup, *unconfined.data.rglob("*")]:
        if file.is_file() and file != path:
            assert key[-43:].encode() not in file.read_bytes(), file
    assert key not in unconfined.output() + "".join(done.stdout + done.stderr for done in answers)
