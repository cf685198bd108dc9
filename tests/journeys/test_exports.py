"""`nightjar export` of a running lab, read with the libraries that it was written for."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.running import TRAIN, RunningLab, running_lab
from tests.journeys.test_following import kill_web
from tests.test_launcher import CHECKOUT

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

FORMULA = '=HYPERLINK("http://x")'


def export(lab: RunningLab, *words: str | Path, python: Path | None = None) -> str:
    """Run `nightjar export`; answers what it says."""
    command = [str(python or sys.executable), "-m", "triggers.cli", "export", *map(str, words)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=CHECKOUT, env=environment(lab)
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def environment(lab: RunningLab) -> dict[str, str]:
    return {**os.environ, "NIGHTJAR_DATA": str(lab.data)}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab with two tags: `t` was trained by a worker, one run twice; the runs of `told` are their agent's."""
    with running_lab(tmp_path_factory.mktemp("lab")) as found:
        found.start()
        found.setup("t")
        first = found.submit(hypothesis="the base", config_delta={"VALUE": 1.0})
        found.until_status(first, "keep")
        slower = found.commit({"train.py": TRAIN.replace("SECONDS = 0.2", "SECONDS = 0.3")})
        better = found.submit(
            commit_sha=slower, parent_id=first, description=FORMULA, config_delta={"VALUE": 0.9}
        )
        found.until_status(better, "keep")
        retest = found.post("experiment/retest", experiment_id=better)["retest_id"]
        found.until_status(retest, "measured")
        found.setup("told", keep_rule="strict")
        for nth, value in enumerate((1.0, 0.99, 0.995, 0.97)):
            commit = f"{nth + 1:07x}"
            complete(found, "told", value, commit_sha=commit, config_delta={"LR": 0.1 * nth, "ACT": "relu"})
        complete(found, "told", 0.5, gpu_class="another")
        found.post("experiment/crash", experiment_id=register(found, "told"), error="CUDA out of memory")
        register(found, "told")
        yield found


def register(lab: RunningLab, tag: str, **fields: Any) -> str:
    """An experiment that its agent trains."""
    idea = {"hypothesis": "h", "category": "other", "diff_summary": "d", "commit_sha": lab.base} | fields
    return str(lab.post("experiment/register", tag=tag, **idea)["experiment_id"])


def complete(lab: RunningLab, tag: str, value: float, gpu_class: str = "cpu", **fields: Any) -> str:
    """An experiment with this value."""
    experiment = register(lab, tag, **fields)
    lab.post("experiment/complete", experiment_id=experiment, val_bpb=value, gpu_class=gpu_class)
    return experiment


def test_a_tsv_is_as_published(lab: RunningLab, tmp_path: Path) -> None:
    export(lab, "t", "-o", tmp_path / "results.tsv")

    assert (tmp_path / "results.tsv").read_text() == lab.post("report/tsv", tag="t")["tsv"]


def test_a_csv_has_each_run_and_quotes_formulas_for_spreadsheets(lab: RunningLab, tmp_path: Path) -> None:
    export(lab, "t", "--to", "csv", "-o", tmp_path / "plain.csv")
    export(lab, "t", "--to", "csv", "--spreadsheet", "-o", tmp_path / "quoted.csv")

    with (tmp_path / "plain.csv").open(newline="") as plain, (tmp_path / "quoted.csv").open() as quoted:
        rows, cautious = list(csv.DictReader(plain)), list(csv.DictReader(quoted))
    assert [row["experiment_id"] for row in rows] == ["t-1", "t-2"]
    assert float(rows[1]["val_bpb"]) == 0.9
    assert float(rows[1]["gain"]) == pytest.approx(0.1)
    assert json.loads(rows[1]["config_delta"]) == {"VALUE": 0.9}
    assert (rows[1]["description"], cautious[1]["description"]) == (FORMULA, f"'{FORMULA}")


def test_json_lines_are_what_the_lab_knows(lab: RunningLab, tmp_path: Path) -> None:
    export(lab, "t", "--to", "jsonl", "-o", tmp_path / "t.jsonl")

    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert lines == [lab.get(f"experiment/{line['experiment']['experiment_id']}") for line in lines]
    assert len(lines) == 2


@pytest.mark.parametrize("kind", ["tsv", "csv", "jsonl"])
def test_a_file_read_again_gives_the_same_runs_as_the_lab(lab: RunningLab, tmp_path: Path, kind: str) -> None:
    export(lab, "t", "--to", kind, "-o", tmp_path / f"t.{kind}")

    assert replayed(lab, str(tmp_path / f"t.{kind}")) == replayed(lab, "t")


def replayed(lab: RunningLab, what: str) -> list[tuple[Any, ...]]:
    """The runs that `nightjar replay` finds: value, record, text and its verdict."""
    done = subprocess.run(
        [sys.executable, "-m", "triggers.cli", "replay", what, "--sigma", "0.004", "--json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=CHECKOUT,
        env=environment(lab),
    )
    judged = json.loads(done.stdout)["judged"]
    assert judged
    return [(run["value"], run["kept"], run["text"], run["verdict"]) for run in judged]


def test_following_goes_on_with_each_run_that_ends_and_over_a_restart_of_the_lab(
    lab: RunningLab, tmp_path: Path
) -> None:
    lab.setup("live", keep_rule="strict")
    complete(lab, "live", 1.0)
    open_run = register(lab, "live")
    lines = tmp_path / "live.jsonl"
    words = ("export", "live", "--to", "jsonl", "-o", str(lines), "--follow")
    with subprocess.Popen(
        [sys.executable, "-m", "triggers.cli", *words],
        stderr=subprocess.DEVNULL,
        cwd=CHECKOUT,
        env=environment(lab),
    ) as process:
        try:
            lab.until(lambda: exported(lines) == ["live-1"], "what was there is exported")
            complete(lab, "live", 0.9)
            lab.until(lambda: exported(lines) == ["live-1", "live-3"], "a new run is exported")
            kill_web(lab)
            lab.post("experiment/complete", experiment_id=open_run, val_bpb=0.95)
            lab.until(lambda: exported(lines) == ["live-1", "live-3", "live-2"], "an older one, too")
        finally:
            process.kill()


def exported(lines: Path) -> list[str]:
    """The ids in a file of JSON lines."""
    text = lines.read_text() if lines.exists() else ""
    return [json.loads(line)["experiment"]["experiment_id"] for line in text.splitlines()]
