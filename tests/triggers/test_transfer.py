"""`nightjar transfer` prints its budget first, and follows a transfer to its label."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from state.records import Certificate, CertificatePair, Transfer
from triggers.cli import trust
from triggers.cli.lab_http import LabHttp
from triggers.cli.looking import transfer_line

PLANNED = Transfer(
    experiment_id="mar11-3",
    against="mar11-1",
    tag="mar11",
    into="mar11-transfer1",
    own_budget_s=300.0,
    budget_s=1200.0,
    most_runs=40,
    gain=0.01,
)
RUNNING = PLANNED.model_copy(
    update={"state": "running", "candidate": "mar11-transfer1-2", "reference": "mar11-transfer1-1"}
)
BOUND = RUNNING.model_copy(
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
FIRST = (
    "mar11-3 against mar11-1 at 1200 s, not 300 s: at most 40 runs, 13.3 hours on one GPU,"
    " in the tag mar11-transfer1"
)


def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, answer: Transfer, *words: str
) -> tuple[object, list[str], list[Any]]:
    """Exit code and lines of the command, and the bodies of its requests."""
    asked: list[Any] = []

    def ask(http: LabHttp, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        asked.append(body)
        found: dict[str, dict[str, Any]] = {
            "/api/trust/transfer": {"transfer": answer.model_dump(), "hours": 13.333},
            "/api/experiment/mar11-3": {"transfers": [BOUND.model_dump()]},
            "/api/experiment/mar11-transfer1-2": {"certificate": BY.model_dump()},
        }
        return found[path]

    monkeypatch.setattr(LabHttp, "ask", ask)
    monkeypatch.setattr("triggers.cli.trust.LOOK_S", 0.0)
    words = ("mar11-3", *words, "--data", str(folder))
    done = CliRunner().invoke(trust.transfer_command, words, standalone_mode=False)
    assert done.exception is None, done.exception
    return done.return_value, done.stdout.splitlines(), asked


def test_without_yes_the_budget_is_printed_and_nothing_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, lines, asked = run(tmp_path, monkeypatch, PLANNED, "--against", "mar11-1")

    assert (code, lines) == (
        0,
        [FIRST, "-> ./nightjar transfer mar11-3 --budget 4x --against mar11-1 --yes begins it"],
    )
    assert asked == [{"experiment_id": "mar11-3", "budget": "4x", "against": "mar11-1", "begin": False}]


def test_it_prints_each_pair_and_the_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, lines, asked = run(tmp_path, monkeypatch, RUNNING, "--budget", "1200", "--yes")

    assert (code, lines[0], lines[2:]) == (3, FIRST, [transfer_line(BOUND.model_dump())])
    assert lines[1].startswith("pair 1: 0.902 (mar11-transfer1-2) beside 0.9 (mar11-transfer1-1), -0.002")
    assert asked[0] == {"experiment_id": "mar11-3", "budget": "1200", "against": None, "begin": True}


def test_what_is_decided_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = BOUND.model_copy(update={"state": "transfers", "reason": "", "longer_gain": 0.004})

    code, lines, _ = run(tmp_path, monkeypatch, held)

    said = "transfers: gain over mar11-1 +0.01 at 300 s, +0.004 at 1200 s, 1 pair"
    assert (code, lines) == (0, [FIRST, said])
