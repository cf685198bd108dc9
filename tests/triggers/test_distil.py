"""`nightjar distil` prints its budget first, and `nightjar take --distilled` makes branches of its result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from state.records import ChainChange, Distillation
from tests.workers.repository import Repository
from triggers.cli import repository, trust
from triggers.cli.lab_http import LabHttp

PLANNED = Distillation(
    tag="mar11",
    into="mar11-distil1",
    best="mar11-3",
    direction="minimize",
    most_runs=10,
    run_s=300.0,
    changes=(
        ChainChange(experiment_id="mar11-2", above=None, description="deeper", lines=2),
        ChainChange(experiment_id="mar11-3", above="mar11-2", description="wider", lines=7),
    ),
)
DONE = PLANNED.model_copy(
    update={
        "state": "done",
        "smallest": "mar11-distil1-3",
        "loss": 0.0004,
        "reference_runs": 4,
        "parts": (("mar11-2",),),
        "changes": (
            PLANNED.changes[0].model_copy(
                update={"state": "kept", "loss": 0.03, "runs": 1, "reason": "the code is worse without it"}
            ),
            PLANNED.changes[1].model_copy(update={"state": "dropped", "loss": 0.0004, "runs": 2}),
        ),
    }
)


class Lab:
    """Answers of a lab, and what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: dict[str, Any]) -> None:
        self.asked: list[tuple[str, Mapping[str, Any] | None]] = []

        def ask(
            http: LabHttp, method: str, path: str, body: Mapping[str, Any] | None = None
        ) -> dict[str, Any]:
            if path.startswith("/api/report/tags"):
                return {"tags": [{"name": "mar11"}], "total": 1}
            self.asked.append((path, body))
            return answers[path.strip("/").replace("/", "_").replace("-", "_")]

        monkeypatch.setattr(LabHttp, "ask", ask)


def shown(one: Distillation) -> dict[str, Any]:
    return {"distillation": one.model_dump(), "runs": one.runs, "hours": one.most_runs * one.run_s / 3600}


def run(command: Any, folder: Path, *words: str) -> tuple[object, list[str]]:
    done = CliRunner().invoke(command, [*words, "--data", str(folder)], standalone_mode=False)
    assert done.exception is None, done.exception
    return done.return_value, done.stdout.splitlines()


def test_without_yes_the_budget_is_printed_and_nothing_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(monkeypatch, api_trust_distil=shown(PLANNED))

    code, lines = run(trust.distil_command, tmp_path, "mar11")

    assert code == 0
    assert lines == [
        "mar11: 2 changes up to mar11-3, at most 10 runs of 300 s: 0.8 hours on one GPU, in the tag mar11-distil1",
        "-> ./nightjar distil mar11 --yes begins it",
    ]
    assert lab.asked == [("/api/trust/distil", {"tag": "mar11", "begin": False})]


def test_the_result_names_what_stays_and_what_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Lab(monkeypatch, api_trust_distil=shown(DONE))

    code, lines = run(trust.distil_command, tmp_path, "mar11", "--yes")

    assert code == 0
    assert lines[1:] == [
        "kept      mar11-2 deeper, 2 lines, +0.03 without it (1 run): the code is worse without it",
        "dropped   mar11-3 wider, 7 lines, +0.0004 without it (2 runs)",
        "mar11-distil1-3: 1 of 2 changes, 2 of 9 lines; +0.0004 beside the whole chain, above zero is worse;"
        " 1 independent change",
        "-> ./nightjar take --distilled mar11 makes branches of it",
    ]


def test_take_makes_a_branch_of_the_smallest_patch_and_of_each_independent_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = Repository(tmp_path / "repo")
    commit = repo.commit({"train.py": "DEPTH = 9\n"})
    patch = repo.git_bytes("diff", "--binary", repo.base, commit).decode()
    known = {
        "experiment_id": "mar11-distil1-3",
        "tag": "mar11-distil1",
        "commit_sha": "f" * 40,
        "config_delta": None,
        "gpu_id": None,
        "description": "without mar11-3",
        "hypothesis": "h",
        "val_bpb": 0.9,
    }
    Lab(
        monkeypatch,
        api_trust_distilled=shown(DONE) | {"commit_of": "mar11-distil1-3", "patches": [patch]},
        api_experiment_mar11_distil1_3={"experiment": known, "diff": patch},
        api_report_night={"base_commit": repo.base},
        api_pool_list={"workers": []},
    )

    _, lines = run(repository.take_command, tmp_path, "mar11", "--distilled", "--repo", str(repo.path))

    assert lines[-2:] == [
        "nightjar/mar11-distilled-1: mar11-2, deeper",
        "-> git switch nightjar/mar11-distilled",
    ]
    for branch in ("nightjar/mar11-distilled", "nightjar/mar11-distilled-1"):
        assert repo.git("show", f"{branch}:train.py") == "DEPTH = 9"
        assert repo.git("rev-parse", f"{branch}^") == repo.base
