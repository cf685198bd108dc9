"""`nightjar export` of a running lab, read with the libraries that it was written for."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import nightjar, printed
from tests.conftest import trusting_others
from tests.journeys.running import TRAIN, RunningLab
from tests.journeys.shared.test_following import kill_web
from tests.test_launcher import CHECKOUT, launcher

FORMULA = '=HYPERLINK("http://x")'


def export(lab: RunningLab, *words: str | Path, python: Path | None = None) -> str:
    """Run `nightjar export`; answers what it says."""
    typed = ("export", *map(str, words))
    command = [str(python), "-m", "triggers.cli", *typed]
    done = (
        subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=CHECKOUT, env=environment(lab)
        )
        if python
        else nightjar(lab.data, *typed)
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def environment(lab: RunningLab) -> dict[str, str]:
    return {**os.environ, "NIGHTJAR_DATA": str(lab.data)}


@pytest.fixture(scope="module")
def lab(lab: RunningLab) -> RunningLab:
    """It has two tags: `t` was trained by a worker, one run twice; the runs of `told` are their agent's."""
    lab.setup("t")
    first = lab.submit(hypothesis="the base", config_delta={"VALUE": 1.0})
    lab.until_status(first, "keep")
    slower = lab.commit({"train.py": TRAIN.replace("SECONDS = 0.2", "SECONDS = 0.3")})
    better = lab.submit(commit_sha=slower, parent_id=first, description=FORMULA, config_delta={"VALUE": 0.9})
    lab.until_status(better, "keep")
    retest = lab.post("experiment/retest", experiment_id=better)["retest_id"]
    lab.until_status(retest, "measured")
    lab.setup("told", keep_rule="strict")
    for nth, value in enumerate((1.0, 0.99, 0.995, 0.97)):
        commit = f"{nth + 1:07x}"
        complete(lab, "told", value, commit_sha=commit, config_delta={"LR": 0.1 * nth, "ACT": "relu"})
    complete(lab, "told", 0.5, gpu_class="another")
    lab.post("experiment/crash", experiment_id=register(lab, "told"), error="CUDA out of memory")
    register(lab, "told")
    return lab


def register(lab: RunningLab, tag: str, **fields: Any) -> str:
    """An experiment that its agent trains."""
    idea = {"hypothesis": "h", "category": "other", "diff_summary": "d", "commit_sha": lab.base} | fields
    return str(lab.post("experiment/register", tag=tag, **idea)["experiment_id"])


def complete(lab: RunningLab, tag: str, value: float, gpu_class: str = "cpu", **fields: Any) -> str:
    """An experiment with this value."""
    experiment = register(lab, tag, **fields)
    lab.post("experiment/complete", experiment_id=experiment, val_bpb=value, gpu_class=gpu_class)
    return experiment


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


def test_a_file_read_again_gives_the_same_runs_as_the_lab(lab: RunningLab, tmp_path: Path) -> None:
    export(lab, "t", "--to", "csv", "-o", tmp_path / "t.csv")
    export(lab, "t", "-o", tmp_path / "results.tsv")
    export(lab, "t", "--to", "jsonl", "-o", tmp_path / "t.jsonl")

    assert (tmp_path / "results.tsv").read_text() == lab.post("report/tsv", tag="t")["tsv"]
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert lines == [lab.get(f"experiment/{name}") for name in ("t-1", "t-2")]
    assert replayed(lab, str(tmp_path / "t.csv")) == replayed(lab, "t")


def replayed(lab: RunningLab, what: str) -> list[tuple[Any, ...]]:
    """The runs that `nightjar replay` finds: value, record, text and its verdict."""
    judged = json.loads(printed(lab.data, "replay", what, "--sigma", "0.004", "--json"))["judged"]
    assert judged
    return [(run["value"], run["kept"], run["text"], run["verdict"]) for run in judged]


def test_a_study_of_optuna_has_the_lab_s_best_the_constants_and_the_curves(
    lab: RunningLab, tmp_path: Path
) -> None:
    for tag in ("t", "told"):
        export(lab, tag, "--to", "optuna", "-o", tmp_path / "lab.journal")
    trained, told = study(tmp_path / "lab.journal", "t"), study(tmp_path / "lab.journal", "told")

    assert (told.best_value, told.best_trial.user_attrs["experiment_id"]) == (0.97, "told-4")
    assert [trial.state.name for trial in told.trials] == ["COMPLETE"] * 5 + ["FAIL"]
    assert [trial.number for trial in told.trials if any(trial.constraints.values())] == [4]
    assert told.best_params == {"LR": pytest.approx(0.3), "ACT": "relu"}
    assert len({str(trial.distributions) for trial in told.trials[:4]}) == 1
    assert trained.best_trial.user_attrs["retests"] == [0.9]
    assert trained.best_trial.user_attrs["parent_ids"] == "t-1"
    assert min(trained.best_trial.intermediate_values.values()) < 1.5
    assert trained.best_trial.datetime_complete > trained.best_trial.datetime_start


def study(journal: Path, tag: str) -> Any:
    from optuna import load_study
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return load_study(study_name=tag, storage=JournalStorage(JournalFileBackend(str(journal))))


def test_exporting_again_adds_only_what_is_new(lab: RunningLab, tmp_path: Path) -> None:
    lab.setup("more", keep_rule="strict")
    complete(lab, "more", 1.0)
    journal = tmp_path / "more.journal"

    first = export(lab, "more", "--to", "optuna", "-o", journal)
    again = export(lab, "more", "--to", "optuna", "-o", journal)
    complete(lab, "more", 0.9, config_delta={"LR": 0.1})
    third = export(lab, "more", "--to", "optuna", "-o", journal)

    assert [
        f"{n} exported" in said
        for n, said in zip(("1 run", "0 runs", "1 run"), (first, again, third), strict=True)
    ]
    assert [trial.value for trial in study(journal, "more").trials] == [1.0, 0.9]


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


@pytest.fixture(scope="module")
def trackers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with MLflow, W&B and Trackio, but without Optuna."""
    folder = tmp_path_factory.mktemp("trackers")
    with (folder / "lock").open("wb") as lock, trusting_others():
        requirements = CHECKOUT / "requirements-trackers.txt"
        launcher.make(folder / "venv", requirements, lock, launcher.Progress("setting up an environment"))
    return folder / "venv" / "bin"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for MLflow: making its database takes seconds."""
    return tmp_path_factory.mktemp("mlflow")


@pytest.mark.long
def test_mlflow_s_client_reads_runs_parents_metrics_curves_and_patches(
    lab: RunningLab, store: Path, trackers: Path
) -> None:
    export(lab, "t", "--to", "mlflow", "-o", store, python=trackers / "python")

    base, better = (mlflow_run(store, trackers, "t", name) for name in ("t-1", "t-2"))
    assert (better["metrics"]["val_bpb"], better["params"]) == (0.9, {"VALUE": "0.9"})
    assert better["tags"]["mlflow.parentRunId"] == base["id"]
    assert better["tags"]["nightjar.description"] == FORMULA
    assert base["tags"]["mlflow.note.content"] == "the base"
    shown = lab.get("experiment/t-2")
    assert better["tick"] == [[round(progress * 1000), metric] for progress, metric, _ in shown["ticks"]]
    assert better["retest"] == [[2, 0.9]]
    [patch] = (store / "artifacts").rglob("change.diff")
    assert patch.read_text() == shown["diff"]
    assert better["tags"]["nightjar.diff_sha256"] == hashlib.sha256(shown["diff"].encode()).hexdigest()


@pytest.mark.long
def test_a_verdict_that_changes_is_changed_in_mlflow(lab: RunningLab, store: Path, trackers: Path) -> None:
    lab.setup("changing", keep_rule="strict")
    lucky = complete(lab, "changing", 1.0)
    export(lab, "changing", "--to", "mlflow", "-o", store, python=trackers / "python")
    lab.post("experiment/retract", experiment_id=lucky, reason="wrong data")

    export(lab, "changing", "--to", "mlflow", "-o", store, python=trackers / "python")

    assert mlflow_run(store, trackers, "changing", lucky)["tags"]["nightjar.status"] == "retracted"


def mlflow_run(store: Path, trackers: Path, tag: str, name: str) -> dict[str, Any]:
    """The one run of this name, as MLflow's client reads it."""
    script = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri="sqlite:///mlflow.db")
found = client.search_runs([client.get_experiment_by_name(sys.argv[1]).experiment_id])
[run] = [run for run in found if run.info.run_name == sys.argv[2]]
def history(key):
    return [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)]
data = {"tick": history("tick"), "retest": history("retest"), "id": run.info.run_id}
print(json.dumps(data | run.data.to_dictionary()))
"""
    read: dict[str, Any] = json.loads(told([str(trackers / "python"), "-c", script, tag, name], store))
    return read


@pytest.mark.long
def test_w_and_b_reads_its_offline_runs(lab: RunningLab, tmp_path: Path, trackers: Path) -> None:
    for _ in range(2):
        export(lab, "t", "--to", "wandb", "-o", tmp_path, python=trackers / "python")

    folders = sorted((tmp_path / "wandb").glob("offline-run-*"))
    assert [folder.name.rpartition("-t-")[2] for folder in folders] == ["1", "2"]
    inspect = [str(trackers / "wandb"), "leet", "inspect", "--json"]
    found = json.loads(told([*inspect, "--summary", str(folders[1])], tmp_path))
    assert (found["project"], found["run_id"], found["state"]) == ("t", "t-2", "finished")
    assert (found["config"]["VALUE"], found["config"]["parent_ids"]) == (0.9, "t-1")
    assert (found["summary"]["val_bpb"], found["config"]["retests"]) == (0.9, [0.9])
    assert (found["tags"], found["notes"]) == (["keep", "other"], "h")
    records = [json.loads(line) for line in told([*inspect, str(folders[1])], tmp_path).splitlines()]
    ticks = lab.get("experiment/t-2")["ticks"]
    assert sum("history" in str(record["type"]) for record in records) == len(ticks)


@pytest.mark.long
def test_trackio_reads_its_project(lab: RunningLab, tmp_path: Path, trackers: Path) -> None:
    for _ in range(2):
        export(lab, "t", "--to", "trackio", "-o", tmp_path, python=trackers / "python")

    script = """
import json, trackio
runs = {run.name: run for run in trackio.Api().runs("t")}
from trackio.sqlite_storage import SQLiteStorage
rows = SQLiteStorage.get_logs("t", "t-2", run_id="t-2")
print(json.dumps([sorted(runs), runs["t-2"].config, rows]))
"""
    names, config, rows = json.loads(told([str(trackers / "python"), "-c", script], tmp_path))
    assert names == ["t-1", "t-2"]
    assert (config["VALUE"], config["parent_ids"], config["retests"]) == (0.9, "t-1", [0.9])
    ticks = lab.get("experiment/t-2")["ticks"]
    assert [row["tick"] for row in rows if "tick" in row] == [metric for _, metric, _ in ticks]
    assert rows[-1]["val_bpb"] == 0.9


@pytest.mark.long
def test_a_missing_library_is_named_with_what_installs_it(
    lab: RunningLab, tmp_path: Path, trackers: Path
) -> None:
    done = subprocess.run(
        [str(trackers / "python"), "-m", "triggers.cli", "export", "t", "--to", "optuna"],
        capture_output=True,
        text=True,
        check=False,
        cwd=CHECKOUT,
        env=environment(lab),
    )

    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "nightjar: --to optuna needs the package optuna",
        "  -> pip install optuna where Nightjar is installed, or install 'nightjar[optuna]'",
    ]


def told(command: list[str], folder: Path) -> str:
    """Run a program in a folder with Trackio's projects; answers its output."""
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "TRACKIO_DIR": str(folder)},
    ).stdout
