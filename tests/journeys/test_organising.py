"""What an organiser does with a swarm on the command line: looks at its runs, and takes the best config."""

from __future__ import annotations

import json
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

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

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


def test_best_write_reproduces_the_best_config_exactly_in_the_example(
    lab: RunningLab, tmp_path: Path
) -> None:
    (script := tmp_path / "train.py").write_bytes(TINYLM.read_bytes())
    script.chmod(0o755)

    done = nightjar(lab.data, "best", "swarm", "--write", str(script))

    assert done.returncode == 0, done.stderr
    config = record(lab, "swarm-3")["config_delta"]
    before, now = read_constants(TINYLM.read_text()), read_constants(script.read_text())
    assert {name: (type(now[name]), now[name]) for name in config} == {
        name: (type(value), value) for name, value in config.items()
    }
    assert {**now, **config} == {**before, **config}
    assert script.stat().st_mode & 0o777 == 0o755
    lines = done.stdout.splitlines()
    changed = [name for name, value in config.items() if before[name] != value]
    assert changed
    assert lines[1:-1] == [f"{name}: {before[name]!r} -> {config[name]!r}" for name in changed]
    assert lines[-1].startswith(f"{script} has the 20 constants of swarm-3")
    again = nightjar(lab.data, "best", "swarm", "--write", str(script), "--json")
    assert json.loads(again.stdout)["written"] == {}


def test_best_write_leaves_a_script_that_lacks_a_constant_as_it_is(lab: RunningLab, tmp_path: Path) -> None:
    (script := tmp_path / "train.py").write_text("LEARNING_RATE = 0.1\n")

    done = nightjar(lab.data, "best", "swarm", "--write", str(script))

    assert done.returncode == 1
    assert "is left as it is: constant" in done.stderr
    assert script.read_text() == "LEARNING_RATE = 0.1\n"


def test_best_write_of_an_agents_tag_says_what_to_use_instead(lab: RunningLab, tmp_path: Path) -> None:
    (script := tmp_path / "train.py").write_bytes(TINYLM.read_bytes())

    done = nightjar(lab.data, "best", "agents", "--write", str(script))

    assert done.returncode == 1
    assert "nightjar take agents-1" in done.stderr
    assert script.read_bytes() == TINYLM.read_bytes()


def test_best_write_of_a_worker_s_unchanged_script_has_nothing_to_write(
    lab: RunningLab, tmp_path: Path
) -> None:
    (script := tmp_path / "train.py").write_bytes(TINYLM.read_bytes())
    nightjar(lab.data, "dims", "define", "--tag", "bare", "--profile", "mnist")
    joined = {"worker_id": "bare", "gpu_type": "H100", "baseline_bpb": 1.0, "tag": "bare"}
    token = lab.http.post("/register", json=joined).json()["worker_token"]
    by = {"x-worker-token": token}
    run = lab.http.post("/runs/start/bare", json={}, headers=by).json()["run_id"]
    result = {"worker_id": "bare", "exp_id": run, "config": {}, "config_delta": {}, "val_bpb": 0.9}
    sent = lab.http.post("/result", json={**result, "delta_bpb": -0.1, "duration_seconds": 1}, headers=by)
    assert sent.status_code == 200, sent.text

    done = nightjar(lab.data, "best", "bare", "--write", str(script))

    assert done.returncode == 1
    assert "ran the unchanged train.py of 'bare'" in done.stderr
    assert script.read_bytes() == TINYLM.read_bytes()


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


def test_best_shows_what_a_swarm_s_best_is_judged_by_and_how_to_take_it(lab: RunningLab) -> None:
    first, last = nightjar(lab.data, "best", "swarm").stdout.splitlines()

    assert first.startswith("swarm-3  -0.150000 (val_bpb 0.850000)  keep  ")
    assert "nightjar best swarm --write train.py" in last


def test_a_swarm_s_runs_are_listed_by_their_delta_with_the_value_beside_it(lab: RunningLab) -> None:
    lines = nightjar(lab.data, "ls", "swarm").stdout.splitlines()
    agents = nightjar(lab.data, "ls", "agents").stdout.splitlines()

    assert lines[0].split()[:5] == ["experiment", "outcome", "delta_bpb", "val_bpb", "gain"]
    [best] = [line.split() for line in lines if "swarm-3" in line]
    gain = record(lab, "swarm-3")["delta"]  # over the best of another config: two runs may have had the same
    assert best[1:5] == ["keep", "-0.150000", "0.850000", f"{gain:+.6f}"]
    assert agents[0].split()[:4] == ["experiment", "outcome", "value", "gain"]


def test_status_says_how_many_workers_a_swarm_has_and_of_agents_tags_nothing(lab: RunningLab) -> None:
    lines = nightjar(lab.data, "status").stdout.splitlines()

    [swarm] = [line for line in lines if line.startswith("swarm 'swarm': ")]
    assert swarm.startswith("swarm 'swarm': 1 active worker, ")
    assert ", 4 results, 0 frozen dimensions; ./nightjar call swarm::leaderboard --tag swarm" in swarm
    assert not [line for line in lines if line.startswith("swarm 'agents'")]


def test_show_says_whose_config_it_is_and_what_the_value_is_the_distance_of(lab: RunningLab) -> None:
    shown = nightjar(lab.data, "show", "swarm-3").stdout

    assert "-0.150000 (val_bpb 0.850000, its worker's baseline 1.000000: below zero is better)" in shown
    assert "w1 (H100), config " in shown
    assert "LEARNING_RATE = " in shown


def test_the_diff_of_a_swarm_s_run_is_its_constants(lab: RunningLab) -> None:
    done = nightjar(lab.data, "diff", "swarm-3")

    assert done.returncode == 0, done.stderr
    assert read_constants(done.stdout) == record(lab, "swarm-3")["config_delta"]


def test_between_two_runs_of_a_swarm_lie_the_constants_in_which_they_differ(lab: RunningLab) -> None:
    done = nightjar(lab.data, "diff", "swarm-2", "swarm-3")

    a, b = (record(lab, run)["config_delta"] for run in ("swarm-2", "swarm-3"))
    differing = {name for name in a if a[name] != b[name]}
    assert done.stdout.startswith("--- swarm-2\n+++ swarm-3\n")
    lines = done.stdout.splitlines()[2:]
    assert read_constants("\n".join(line[1:] for line in lines if line[0] == "-")) == {
        name: a[name] for name in differing
    }
    assert read_constants("\n".join(line[1:] for line in lines if line[0] == "+")) == {
        name: b[name] for name in differing
    }


def test_the_report_of_a_swarm_tells_of_deltas_and_how_to_take_its_best(lab: RunningLab) -> None:
    done = nightjar(lab.data, "report", "swarm")

    assert done.stdout.startswith("# swarm: delta_bpb 0 -> -0.15\n")
    assert "Never:" not in done.stdout
    assert "nightjar best swarm --write train.py" in done.stderr


def test_the_journal_of_a_swarm_is_printed_and_written_to_a_file(lab: RunningLab, tmp_path: Path) -> None:
    nothing = nightjar(lab.data, "journal", "--tag", "agents")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "agents has no checkpoint yet" in nothing.stderr
    written = lab.post("journal/checkpoint", tag="swarm")

    printed = nightjar(lab.data, "journal")
    file = tmp_path / "journal.md"
    saved = nightjar(lab.data, "journal", "--tag", "swarm", "-o", str(file))

    assert written["written"]
    assert printed.stdout == written["text"] == file.read_text("utf-8")
    assert "matters` | 0.50 | " in printed.stdout
    assert f"{file}: 1 checkpoint of swarm" in saved.stderr
