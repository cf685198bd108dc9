"""What an organiser does with a swarm on the command line: looks at its runs, and takes the best config."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from functions.formats.constants import read_constants
from tests.commands import nightjar
from tests.conftest import ROOT
from tests.journeys.running import PATIENCE_S, RunningLab, running_lab
from tests.labs import idea

TINYLM = ROOT / "examples" / "tinylm" / "train.py"
WORKER = Path(__file__).with_name("published_worker.py")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A swarm that varies the constants of tinylm, three runs and one of the unchanged script; an agents' tag."""
    folder = tmp_path_factory.mktemp("lab")
    with running_lab(folder) as found:
        found.start()
        events = found.process("triggers.events")
        events.suspend()  # no claims: a worker that tests one may run one config twice
        scanned = nightjar(found.data, "dims", "scan", str(TINYLM))
        (file := folder / "dimensions.toml").write_text(scanned.stdout)
        nightjar(found.data, "dims", "define", "--tag", "swarm", str(file))
        found.post(
            "search/set-policy", tag="swarm", policy={"keep_rule": "strict", "belief.evidence": "baseline"}
        )
        subprocess.run(
            [sys.executable, "-I", str(WORKER), str(found.http.base_url), "--worker-id", "w1", "--runs", "3"],
            check=True,
            capture_output=True,
            timeout=PATIENCE_S,
        )
        events.resume()
        found.post("experiment/setup", tag="agents")
        run = found.post("experiment/register", **idea("agents"))
        found.post("experiment/complete", experiment_id=run["experiment_id"], val_bpb=0.9)
        found.until_followed()
        yield found


def record(lab: RunningLab, run: str) -> dict[str, Any]:
    found: dict[str, Any] = lab.get(f"experiment/{run}")["experiment"]
    return found


def test_a_swarm_without_a_gain_has_no_best_and_says_how_many_runs_came_to_nothing(
    lab: RunningLab, tmp_path: Path
) -> None:
    (script := tmp_path / "train.py").write_bytes(TINYLM.read_bytes())
    nightjar(lab.data, "dims", "define", "--tag", "worse", "--profile", "mnist")
    joined = {"worker_id": "worse", "gpu_type": "H100", "baseline_bpb": 1.0, "tag": "worse"}
    by = {"x-worker-token": lab.http.post("/register", json=joined).json()["worker_token"]}
    run = lab.http.get("/next_config/worse", headers=by).json()["run_id"]
    result = {"worker_id": "worse", "exp_id": run, "config": {}, "config_delta": {}, "val_bpb": 1.1}
    lab.http.post("/result", json={**result, "delta_bpb": 0.1, "duration_seconds": 1}, headers=by)

    done = nightjar(lab.data, "best", "worse", "--write", str(script))
    report = nightjar(lab.data, "report", "worse").stdout

    assert done.returncode == 1
    assert "none of the 1 experiments of 'worse' was kept yet" in done.stderr
    assert script.read_bytes() == TINYLM.read_bytes()
    assert report.startswith("# worse: nothing was kept yet\n")
    assert "Never:" not in report
    assert "-0.100000 beside the baseline" in nightjar(lab.data, "show", run).stdout


def test_an_organiser_reads_diffs_reports_and_the_journal_of_a_swarm(lab: RunningLab, tmp_path: Path) -> None:
    diff = nightjar(lab.data, "diff", "swarm-3")
    report = nightjar(lab.data, "report", "swarm")
    nothing = nightjar(lab.data, "journal", "--tag", "agents")
    written = lab.post("journal/checkpoint", tag="swarm")
    (script := tmp_path / "train.py").write_bytes(TINYLM.read_bytes())
    of_agents = nightjar(lab.data, "best", "agents", "--write", str(script))
    file = tmp_path / "journal.md"
    saved = nightjar(lab.data, "journal", "--tag", "swarm", "-o", str(file))

    assert script.read_bytes() == TINYLM.read_bytes()
    assert read_constants(diff.stdout) == record(lab, "swarm-3")["config_delta"]
    assert report.stdout.startswith("# swarm: delta_bpb 0 -> -0.15\n")
    assert "Never:" not in report.stdout
    assert "nightjar best swarm --write train.py" in report.stderr
    assert (of_agents.returncode, "nightjar take agents-1" in of_agents.stderr) == (1, True)
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "agents has no checkpoint yet" in nothing.stderr
    assert nightjar(lab.data, "journal").stdout == written["text"] == file.read_text("utf-8")
    assert "matters` | 0.50 | " in written["text"]
    assert f"{file}: 1 checkpoint of swarm" in saved.stderr
