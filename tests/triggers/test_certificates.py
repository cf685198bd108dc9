"""The folder of a certificate, and the verify.py in it."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from bench._changed import made_up_lab, unrefused
from state.errors import Conflict
from tests.triggers import test_trust_commands
from triggers.certificates import verify
from triggers.certificates.folder import verifier, write
from triggers.cli.lab_http import LabHttp
from triggers.cli.trust import certify_command, distil_command, transfer_command


def test_no_changed_missing_or_added_byte_is_accepted() -> None:
    tried, missed = unrefused(120, np.random.default_rng(2))

    assert missed == []
    assert tried > 150


def test_a_stranger_verifies_it_with_his_own_clone_and_no_package(tmp_path: Path) -> None:
    folder, clone = tmp_path / "certificate", Path(verify.__file__).parents[2]
    written = write(folder, made_up_lab, "m-2")
    (folder / "verify.py").write_text("print('certified')")

    def verified(folder: Path) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-S", str(clone / "triggers/certificates/verify.py"), str(folder)]
        environment = {"PYTHONPATH": str(clone), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    assert "manifest.json does not fit" in verified(folder).stderr
    (folder / "verify.py").write_text(verifier())
    assert verified(folder).stdout == f"{written}\n"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("state", "refused", "the values say certified"),
        ("direction", "maximize", "the values say refused"),
        ("min_gain", 0.7, "the values say refused"),
        ("alpha", 0.0001, "the values say running"),
        ("gpu_class", "L4", "another class of GPU"),
        ("metric", "loss", "does not say"),
        ("commits", {"candidate": "other", "reference": "sha of m-1"}, "no run of the candidate"),
    ],
)
def test_a_claim_that_the_logs_do_not_bear_out_is_refused_though_every_hash_fits(
    tmp_path: Path, field: str, value: Any, said: str
) -> None:
    folder = tmp_path / "certificate"
    write(folder, made_up_lab, "m-2")
    file = folder / "certificate.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    (folder / "manifest.json").write_bytes(verify.manifest_of(folder))

    done = subprocess.run(
        [sys.executable, "-I", folder / "verify.py"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert said in done.stderr


def test_a_folder_that_is_there_stays_and_a_failure_leaves_none(tmp_path: Path) -> None:
    def broken(method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        raise Conflict("no")

    with pytest.raises(Conflict, match="no"):
        write(tmp_path / "certificate", broken, "m-2")
    assert list(tmp_path.iterdir()) == []
    write(tmp_path / "certificate", made_up_lab, "m-2")
    with pytest.raises(Conflict, match="is there already"):
        write(tmp_path / "certificate", made_up_lab, "m-2")


@pytest.mark.parametrize(
    ("log", "value"),
    [
        ("val_bpb: 1.5\nval_bpb: 0.5\n", 0.5),
        ("VAL_BPB:  1e-3\r\n", 0.001),
        ("best val_bpb: 1.5\n", None),
        ("90 %\rval_bpb: 0.7\r\n", 0.7),
        ("val_bpb: nan\n", None),
        ("val_bpb: 1.2.3\n", None),
        ("", None),
    ],
)
def test_the_last_line_that_is_nothing_but_the_metric_counts(log: str, value: float | None) -> None:
    assert verify.logged(log, "val_bpb") == value


COMMANDS = {"certify": certify_command, "distil": distil_command, "transfer": transfer_command}


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("command", "moment"),
    [
        *itertools.product(COMMANDS, ("LabHttp.ask", "time.sleep")),
        ("certify", "certificate_lines"),
        ("distil", "show"),
        ("transfer", "show"),
    ],
)
def test_ctrl_c_leaves_the_lab_at_work_and_says_how_to_go_on(
    command: str, moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = made_up_lab("POST", "/api/experiment/m-2", None)["certificate"]
    running = {
        "tags": [{"name": "m-2"}],
        "total": 1,
        "certificate": certificate | {"state": "running", "pairs": []},
        "distillation": test_trust_commands.PLANNED.model_copy(update={"state": "running"}).model_dump(),
        "transfer": test_trust_commands.TRANSFERRING.model_dump(),
        "hours": 1.0,
    }
    monkeypatch.setattr(LabHttp, "ask", lambda *_: running)
    monkeypatch.setattr(f"triggers.cli.trust.{moment}", interrupted)
    words = ["m-2", "--data", str(tmp_path)]

    done = CliRunner().invoke(COMMANDS[command], words, standalone_mode=False)

    assert done.return_value == 130
    assert "the lab goes on" in done.stderr
    assert [*tmp_path.iterdir()] == []
