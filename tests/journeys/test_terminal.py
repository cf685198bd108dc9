"""Commands on a real terminal: `nightjar top` (and in a pipe), and progress bars."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from rich.cells import cell_len

from tests.commands import command_line, nightjar
from tests.journeys.running import PATIENCE_S, RunningLab, running_lab
from tests.journeys.shared.test_following import environment, kill_web
from triggers.cli.tables import PIPE_WIDTH

HOSTILE = "wider \x1b[2J\x1b]0;owned\x07 \u202egnp.exe 更宽的模型 [red]x[/red]"
HOME, ENTERED, LEFT, SHOWN_CURSOR = "\x1b[H", "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A baseline, a keep, and a run that trains."""
    with running_lab(tmp_path_factory.mktemp("lab")) as found:
        found.start()
        found.setup("t", **{"budgets.base_s": 600})
        for value in (2.0, 1.5):
            found.until_status(found.submit(config_delta={"VALUE": value}), "keep")
        endless = found.submit(config_delta={"SECONDS": 600.0}, hypothesis=HOSTILE, diff_summary=HOSTILE)
        found.until_training(endless)
        yield found


class Screen:
    """A command on a terminal, with all that it has sent."""

    def __init__(self, data: Path, *words: str, rows: int = 24, columns: int = 80) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(rows, columns)
        # workers of xdist have a width of their own there, which would count for more than the terminal's
        asked = environment(data, TERM="xterm-256color")
        self.process = subprocess.Popen(
            command_line(*words),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={name: value for name, value in asked.items() if name not in ("COLUMNS", "LINES")},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            start_new_session=True,
        )
        os.close(theirs)
        self._sent = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.ended()
        os.close(self._ours)

    def _read(self) -> None:
        try:
            while part := os.read(self._ours, 65536):
                self._sent += part
        except OSError:  # the terminal was closed
            return

    @property
    def sent(self) -> str:
        return self._sent.decode(errors="replace")

    @property
    def frame(self) -> str:
        """The newest whole picture."""
        return self.sent.rpartition(HOME)[0].rpartition(HOME)[2]

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def ended(self) -> int:
        """The exit code, once all that it sent was read."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join()
        return code


def top(lab: RunningLab) -> Screen:
    """`nightjar top` on a terminal of 80 by 24."""
    return Screen(lab.data, "top")


def test_bests_runs_gpus_and_events_are_redrawn_at_any_size_without_clearing_the_screen_until_q(
    lab: RunningLab,
) -> None:
    with top(lab) as screen:
        lab.until(lambda: "░" in screen.frame, "the running run has a bar")
        frame = screen.frame
        lab.setup("second")
        lab.until(lambda: "tag.created" in screen.frame, "an event is shown without a key")
        screen.resize(10, 60)
        lab.until(lambda: len(screen.frame.splitlines()) == 10, "ten rows")
        screen.press(b"x")
        screen.press(b"q")
        assert screen.ended() == 0

    assert "1.500000  +0.500000" in frame  # the baseline is 2.0, and lower is better
    assert "t-3" in frame
    assert "cpu0" in frame
    assert r"wider \x1b[2J" in frame
    assert screen.sent.count(ENTERED) == 1
    assert LEFT in screen.sent
    assert SHOWN_CURSOR in screen.sent
    assert "Traceback" not in screen.sent
    assert "\x1b[2J" not in screen.sent
    shown = {c for c in screen.sent if unicodedata.category(c) in ("Cc", "Cf")}
    assert shown <= {"\x1b", "\r", "\n"}
    assert "owned\x07" not in screen.sent


def test_ctrl_c_gives_the_terminal_back(lab: RunningLab) -> None:
    with top(lab) as screen:
        lab.until(lambda: "t-3" in screen.frame, "a picture")
        screen.press(b"\x03")
        assert screen.ended() == 0

    assert LEFT in screen.sent
    assert SHOWN_CURSOR in screen.sent
    assert "Traceback" not in screen.sent


def test_a_pipe_gets_one_picture_of_100_columns_without_control_codes(lab: RunningLab) -> None:
    done = nightjar(lab.data, "top", "t")

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert max(map(cell_len, lines)) <= PIPE_WIDTH
    assert not {c for c in done.stdout if unicodedata.category(c) in ("Cc", "Cf")} - {"\n"}
    assert any(line.split()[:3] == ["t", "1.500000", "+0.500000"] for line in lines)
    assert "no tag 'none'" in nightjar(lab.data, "top", "none").stderr


def test_a_backup_and_a_restore_have_a_bar_on_a_terminal(lab: RunningLab, tmp_path: Path) -> None:
    file = str(tmp_path / "lab.backup")
    with Screen(lab.data, "backup", file) as saved:
        assert saved.ended() == 0
    with Screen(tmp_path / "data", "restore", file) as made:
        assert made.ended() == 0

    assert "keys read" in saved.sent
    assert "checking the file" in made.sent
    assert "keys written" in made.sent
    assert re.search(r"(\d[\d,]*) of \1\b", made.sent)


def test_it_goes_on_over_a_restart_of_the_web_process(lab: RunningLab) -> None:
    with top(lab) as screen:
        lab.until(lambda: "t-3" in screen.frame, "a picture")
        kill_web(lab)
        lab.setup("third")
        lab.until(lambda: "third" in screen.frame, "the new tag is shown")
        lab.until(lambda: "trying again" not in screen.frame, "the lab answers")

    assert "Traceback" not in screen.sent
