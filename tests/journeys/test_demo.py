"""The demo on a terminal: its lab stays up to be looked at, until Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.commands import PATIENCE_S, command_line

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


def test_the_lab_of_a_demo_stays_up_on_a_terminal_until_ctrl_c(tmp_path: Path) -> None:
    data = tmp_path / "demo"
    ours, theirs = pty.openpty()
    demo = subprocess.Popen(
        command_line("demo", "--data", str(data), "--runs", "2", "--budget", "0.2", "--port", "0"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm"},
        cwd=tmp_path,
    )
    os.close(theirs)
    shown = b""
    while (told := re.search(rb"until Ctrl-C: (http://127.0.0.1:\d+)/#tag=demo1", shown)) is None:
        try:
            shown += os.read(ours, 4096)
        except OSError:
            raise AssertionError(f"ended with {demo.wait()}: {shown.decode()}") from None
    page = httpx.get(told[1].decode())
    demo.send_signal(signal.SIGINT)
    while True:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # how a terminal tells its end
            break

    assert page.status_code == 200
    assert demo.wait(PATIENCE_S) == 0
    assert b"nothing is left running" in shown
    assert "# demo1: " in (data / "results" / "demo1" / "report.md").read_text()
