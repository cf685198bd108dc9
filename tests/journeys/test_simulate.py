"""Simulated swarms over real processes: nothing is lost or counted twice, whatever goes wrong."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from functions.swarm.rules.simulating import DOES_NOTHING, HELPS
from tests.commands import PATIENCE_S, command_line, started_nightjar
from triggers.cli.simulate import TRIAL

SPEED = "150"
"""Runs of two seconds; silent ones are lost after four."""
KEPT = ["promoted", "reverted"]
"""Fates of the helpful dimension and of the one without effect."""
CLEAN = {"lost results": "0", "double-counted results": "0", "errors": "0"}


def figures(printed: str) -> dict[str, str]:
    """The figures by their names."""
    return dict(rows(printed))


def rows(printed: str) -> list[tuple[str, str]]:
    """The lines with a name and a figure."""
    return re.findall(r"^(\S.*?) {2,}(.*)$", printed, re.MULTILINE)


def labs_in(folder: Path) -> list[Any]:
    """Processes of labs whose data is somewhere in this folder, and what lies there."""
    found: list[Any] = [path.name for path in folder.iterdir()]
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("NIGHTJAR_DATA", "").startswith(str(folder)):
                found.append(process)
    return found


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder for the simulated lab. The test's own path is too long for a Unix socket."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_a_simulated_swarm_on_a_lab_of_its_own_loses_nothing_and_leaves_nothing(
    tmp_path: Path, temporary: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    asked = ("--workers", "20", "--rounds", "2", "--speed", SPEED, "--seed", "1", "--loss-rate", "0.1")

    done = started_nightjar(
        tmp_path / "unused",
        *("simulate", *asked, "--trace-file", str(trace)),
        TMPDIR=str(temporary),
        NIGHTJAR_REDIS_URL="redis://127.0.0.1:1",  # another lab's: a simulation keeps away from it
    )

    assert done.returncode == 0, done.stdout + done.stderr
    told = figures(done.stdout)
    assert told | CLEAN | {"audit violations": "0"} == told
    assert told["runs"].endswith("40 results acknowledged")
    assert told["workers that died"].startswith("2;")
    assert float(told["best delta"]) < 0
    assert "p99" in told["latency of tick"]
    assert "not checked" not in done.stdout
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    assert {row["call"] for row in rows} >= {"register", "next_config", "tick", "result", "sync"}
    assert all(row["ms"] >= 0 for row in rows)
    unanswered = [row for row in rows if row["status"] is None]  # the connection was closed meanwhile, say
    assert len(unanswered) <= int(told["requests repeated without an answer"])
    assert labs_in(temporary) == []
    assert not (tmp_path / "unused").exists()


@pytest.mark.long  # a minute of both cores
def test_a_simulated_swarm_tries_what_is_proposed_where_it_stalls_and_keeps_what_helps(
    tmp_path: Path, temporary: Path
) -> None:
    asked = ("--workers", "24", "--rounds", "150", "--speed", SPEED, "--propose")

    done = started_nightjar(tmp_path / "unused", "simulate", *asked, TMPDIR=str(temporary))

    assert done.returncode == 0, done.stdout + done.stderr
    told = figures(done.stdout)
    assert told | CLEAN | {"audit violations": "0"} == told
    trials = [figure for what, figure in rows(done.stdout) if what in TRIAL]
    names, outcomes = trials[:: len(TRIAL)], trials[len(TRIAL) - 1 :: len(TRIAL)]
    assert [name.split()[0] for name in names] == [HELPS.name, DOES_NOTHING.name]
    assert all("results varied it" in outcome for outcome in outcomes)


def test_ctrl_c_ends_a_simulation_with_its_lab_and_what_was_done_until_then_is_checked(
    tmp_path: Path, temporary: Path
) -> None:
    simulation = subprocess.Popen(
        command_line("simulate", "--workers", "5", "--rounds", "100", "--speed", SPEED),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    assert simulation.stderr is not None
    progress = (re.match(r"running: (\d+) of", line) for line in simulation.stderr)
    done = next(int(found[1]) for found in progress if found is not None and int(found[1]))
    assert len(labs_in(temporary)) > 3
    simulation.send_signal(signal.SIGINT)
    printed, said = simulation.communicate(timeout=PATIENCE_S)

    assert simulation.returncode == 130
    assert "interrupted; nothing is left running" in said
    told = figures(printed)
    assert told | CLEAN | {"audit violations": "0"} == told
    assert told["interrupted"].startswith("after ")
    assert int(re.findall(r"\d+", told["runs"])[1]) >= done
    assert {"web", "events", "clock", "redis", "simulate"} <= {name.rpartition(" ")[2] for name in told}
    assert labs_in(temporary) == []
