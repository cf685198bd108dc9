"""`nightjar distil` and `transfer` print their budget first, and follow the work to its end.

`nightjar take --distilled` makes branches of what a distillation left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from state.records import Certificate, CertificatePair, ChainChange, Distillation, Transfer
from tests.workers.repository import Repository
from triggers.cli import repository, trust
from triggers.cli.lab_http import LabHttp
from triggers.cli.looking import transfer_line

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


TRANSFER = Transfer(
    experiment_id="mar11-3",
    against="mar11-1",
    tag="mar11",
    into="mar11-transfer1",
    own_budget_s=300.0,
    budget_s=1200.0,
    most_runs=40,
    gain=0.01,
)
TRANSFERRING = TRANSFER.model_copy(
    update={"state": "running", "candidate": "mar11-transfer1-2", "reference": "mar11-transfer1-1"}
)
BOUND = TRANSFERRING.model_copy(
    update={"state": "bound to its budget", "pairs": 1, "longer_gain": -0.002, "reason": "no hope"}
)
BY = Certificate(
    experiment_id="mar11-transfer1-2",
    against="mar11-transfer1-1",
    direction="minimize",
    min_gain=0.0,
    alpha=0.05,
    most_pairs=20,
    gpu_class="cpu",
    pairs=(
        CertificatePair(
            first="reference",
            candidate="mar11-transfer1-2",
            reference="mar11-transfer1-1",
            measured=(0.902, 0.9),
        ),
    ),
)
Commanded = Callable[..., tuple[object, list[str], list[tuple[str, Any]]]]


@pytest.fixture
def commanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commanded:
    """Runs a command of a lab with these answers: exit code, lines, and the paths and bodies of its requests."""

    def run(
        command: click.Command, answers: Mapping[str, Any], *words: str
    ) -> tuple[object, list[str], list[tuple[str, Any]]]:
        asked: list[tuple[str, Any]] = []

        def ask(_: LabHttp, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
            if path.startswith("/api/report/tags"):
                return {"tags": [{"name": "mar11"}], "total": 1}
            asked.append((path, body))
            return answers[path]

        monkeypatch.setattr(LabHttp, "ask", ask)
        monkeypatch.setattr("triggers.cli.trust.LOOK_S", 0.0)
        done = CliRunner().invoke(command, [*words, "--data", str(tmp_path)], standalone_mode=False)
        assert done.exception is None, done.exception
        return done.return_value, done.stdout.splitlines(), asked

    return run


def shown(one: Distillation) -> dict[str, Any]:
    return {"distillation": one.model_dump(), "runs": one.runs, "hours": one.most_runs * one.run_s / 3600}


def transferred(one: Transfer) -> dict[str, Any]:
    return {
        "/api/trust/transfer": {"transfer": one.model_dump(), "hours": 13.333},
        "/api/experiment/mar11-3": {"transfers": [BOUND.model_dump()]},
        "/api/experiment/mar11-transfer1-2": {"certificate": BY.model_dump()},
    }


FIRST = (
    "mar11-3 against mar11-1 at 1200 s, not 300 s: at most 40 runs, 13.3 hours on one GPU,"
    " in the tag mar11-transfer1"
)


def test_without_yes_the_budget_is_printed_and_nothing_begins(commanded: Commanded) -> None:
    assert commanded(trust.distil_command, {"/api/trust/distil": shown(PLANNED)}, "mar11") == (
        0,
        [
            "mar11: 2 changes up to mar11-3, at most 10 runs of 300 s: 0.8 hours on one GPU,"
            " in the tag mar11-distil1",
            "-> ./nightjar distil mar11 --yes begins it",
        ],
        [("/api/trust/distil", {"tag": "mar11", "begin": False})],
    )
    asks = {"experiment_id": "mar11-3", "budget": "4x", "against": "mar11-1", "begin": False}
    assert commanded(trust.transfer_command, transferred(TRANSFER), "mar11-3", "--against", "mar11-1") == (
        0,
        [FIRST, "-> ./nightjar transfer mar11-3 --budget 4x --against mar11-1 --yes begins it"],
        [("/api/trust/transfer", asks)],
    )


def test_a_transfer_prints_each_pair_and_the_label(commanded: Commanded) -> None:
    words = ("mar11-3", "--budget", "1200", "--yes")
    code, lines, asked = commanded(trust.transfer_command, transferred(TRANSFERRING), *words)

    assert (code, lines[0], lines[2:]) == (3, FIRST, [transfer_line(BOUND.model_dump())])
    assert lines[1].startswith("pair 1: 0.902 (mar11-transfer1-2) beside 0.9 (mar11-transfer1-1), -0.002")
    asks = {"experiment_id": "mar11-3", "budget": "1200", "against": None, "begin": True}
    assert asked[0] == ("/api/trust/transfer", asks)


def test_what_is_decided_is_told_at_once(commanded: Commanded) -> None:
    held = BOUND.model_copy(update={"state": "transfers", "reason": "", "longer_gain": 0.004})

    code, lines, _ = commanded(trust.transfer_command, transferred(held), "mar11-3")

    said = "transfers: gain over mar11-1 +0.01 at 300 s, +0.004 at 1200 s, 1 pair"
    assert (code, lines) == (0, [FIRST, said])


def test_a_distillation_names_what_stays_and_what_takes_it(commanded: Commanded) -> None:
    code, lines, _ = commanded(trust.distil_command, {"/api/trust/distil": shown(DONE)}, "mar11", "--yes")

    assert code == 0
    assert lines[1:] == [
        "kept      mar11-2 deeper, 2 lines, +0.03 without it (1 run): the code is worse without it",
        "dropped   mar11-3 wider, 7 lines, +0.0004 without it (2 runs)",
        "mar11-distil1-3: 1 of 2 changes, 2 of 9 lines; +0.0004 beside the whole chain, above zero is worse;"
        " 1 independent change",
        "-> ./nightjar take --distilled mar11 makes branches of it",
    ]


def test_take_makes_a_branch_of_the_smallest_patch_and_of_each_independent_change(
    tmp_path: Path, commanded: Commanded
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
    answers = {
        "/api/trust/distilled": shown(DONE) | {"commit_of": "mar11-distil1-3", "patches": [patch]},
        "/api/experiment/mar11-distil1-3": {"experiment": known, "diff": patch},
        "/api/report/night": {"base_commit": repo.base},
        "/api/pool/list": {"workers": []},
    }

    words = ("mar11", "--distilled", "--repo", str(repo.path))
    _, lines, _ = commanded(repository.take_command, answers, *words)

    assert lines[-2:] == [
        "nightjar/mar11-distilled-1: mar11-2, deeper",
        "-> git switch nightjar/mar11-distilled",
    ]
    for branch in ("nightjar/mar11-distilled", "nightjar/mar11-distilled-1"):
        assert repo.git("show", f"{branch}:train.py") == "DEPTH = 9"
        assert repo.git("rev-parse", f"{branch}^") == repo.base
