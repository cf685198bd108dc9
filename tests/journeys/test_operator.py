"""The operator of an open lab is whoever can read its key. No address makes one. Tried by a run on a real lab."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import nightjar
from tests.journeys.running import RunningLab, running_lab

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

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
UNDUMPABLE = """
import ctypes, os, time

assert ctypes.CDLL(None).prctl(4, 0) == 0  # PR_SET_DUMPABLE: none but root reads its /proc
while not os.path.exists(MARK):
    time.sleep(0.05)
print("---\\nval_bpb: 1.0", flush=True)
"""
READS_KEY = """
try:
    print("the key begins with", open(KEY).read()[:3])
except OSError as refusal:
    print("refused", refusal.errno)
print("---\\nval_bpb: 1.0", flush=True)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """Its runs are not confined: they reach what their user reaches."""
    with running_lab(tmp_path_factory.mktemp("lab")) as found:
        found.start("--isolation", "limits")
        found.setup()
        yield found


def printed(lab: RunningLab, text: str, **constants: Any) -> str:
    """The output of a run of this script. Its constants are set above it."""
    lines = "".join(f"{name} = {value!r}\n" for name, value in constants.items())
    experiment = lab.submit(commit_sha=lab.commit({"train.py": lines + text}))
    lab.until_status(experiment, "keep", "discard", "crash")
    return str(lab.get(f"experiment/{experiment}/log")["log"])


def test_no_run_becomes_operator_by_hiding_who_holds_its_connection(lab: RunningLab) -> None:
    text = printed(lab, IN_FLIGHT, PORT=lab.port)

    assert re.findall(r"answered (.*)", text) == ["[403, 403, 403, 403, 403] 403"], text
    assert lab.post("token/list")["tokens"] == []


def test_the_operator_s_commands_work_while_a_run_lets_nobody_look_at_it(
    lab: RunningLab, tmp_path: Path
) -> None:
    mark = tmp_path / "enough"
    commit = lab.commit({"train.py": f"MARK = {str(mark)!r}\n{UNDUMPABLE}"})
    experiment = lab.submit(commit_sha=commit)
    lab.until_status(experiment, "running")

    done = [
        nightjar(lab.data, "call", name, "--tag", "t")
        for name in ("tag::pause", "tag::unpause")
        for _ in "12"
    ]
    doctor = nightjar(lab.data, "doctor")
    mark.touch()

    assert [one.returncode for one in done] == [0, 0, 0, 0], [one.stderr for one in done]
    assert "audit" in doctor.stdout
    assert doctor.returncode == 0, doctor.stdout
    lab.until_status(experiment, "keep", "discard")


def test_a_run_that_is_not_confined_can_read_the_key_and_the_lab_says_so(lab: RunningLab) -> None:
    text = printed(lab, READS_KEY, KEY=str(lab.data / "operator.key"))

    assert "the key begins with nj_" in text
    assert "the operator's key too" in lab.output()


def test_the_key_is_its_owner_s_alone_and_stands_nowhere_else(lab: RunningLab) -> None:
    path = lab.data / "operator.key"
    key = path.read_text().strip()
    backup = lab.data.parent / "lab.nightjar"
    answers = [
        nightjar(lab.data, *words) for words in (("status",), ("token", "whoami"), ("open",), ("config",))
    ]
    assert nightjar(lab.data, "backup", str(backup)).returncode == 0

    assert path.stat().st_mode & 0o777 == 0o600
    for process in lab.processes():
        assert key not in json.dumps([process.environ(), process.cmdline()]), process
    for file in [backup, *lab.data.rglob("*")]:
        if file.is_file() and file != path:
            assert key[-43:].encode() not in file.read_bytes(), file
    assert key not in lab.output() + "".join(done.stdout + done.stderr for done in answers)
