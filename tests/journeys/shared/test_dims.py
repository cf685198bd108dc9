"""`nightjar dims`: a file is proposed for a train.py, edited, defined and listed; what is wrong changes nothing."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.commands import nightjar
from tests.conftest import ROOT
from tests.journeys.running import RunningLab

TINYLM = ROOT / "examples" / "tinylm" / "train.py"
ORGANISER = (ROOT / "docs" / "organiser.md").read_text()


def test_scan_needs_no_lab_and_prints_a_file_that_define_takes(lab: RunningLab, tmp_path: Path) -> None:
    scanned = nightjar(tmp_path / "nowhere", "dims", "scan", str(TINYLM))
    (file := tmp_path / "dimensions.toml").write_text(scanned.stdout)

    defined = nightjar(lab.data, "dims", "define", "--tag", "scanned", str(file))

    assert (scanned.returncode, defined.returncode) == (0, 0), (scanned.stderr, defined.stderr)
    assert defined.stdout.startswith("scanned, a new tag: 20 dimensions; added: DEPTH, WIDTH")
    proposed = tomllib.loads(scanned.stdout)["dimension"]
    rows = json.loads(nightjar(lab.data, "dims", "ls", "--tag", "scanned", "--json").stdout)
    assert [row["name"] for row in rows] == [table["name"] for table in proposed]
    assert [row["min"] for row in rows] == [table.get("min") for table in proposed]


def test_the_file_of_the_documents_is_one_and_a_freeze_shows_in_the_list(
    lab: RunningLab, tmp_path: Path
) -> None:
    (file := tmp_path / "d.toml").write_text(ORGANISER.split("```toml\n")[1].split("```")[0])

    nightjar(lab.data, "dims", "define", "--tag", "docs", str(file))
    held = ("--name", "OPTIMIZER", "--value", "adam", "--reason", "it is enough")
    frozen = nightjar(lab.data, "call", "dimension::freeze", "--tag", "docs", *held)
    lines = nightjar(lab.data, "dims", "ls", "--tag", "docs").stdout.splitlines()

    assert frozen.returncode == 0, frozen.stderr
    [lr] = [line for line in lines if "LEARNING_RATE" in line]
    [optimizer] = [line for line in lines if "OPTIMIZER" in line]
    assert "0.0001 to 0.03" in lr
    assert "adam, sgd" in optimizer
    assert "it is enough" in optimizer
    assert lines[-1] == "docs: 2 dimensions"


def test_hypotheses_of_a_file_are_proposed_beside_the_first_ones(lab: RunningLab, tmp_path: Path) -> None:
    (file := tmp_path / "d.toml").write_text(
        '[[dimension]]\nname = "A"\ndtype = "int"\nmin = 1\nmax = 9\n'
        '[[hypothesis]]\nstatement = "a low A is best"\nconfig_constraint = { A = { max = 3 } }\n'
    )

    done = nightjar(lab.data, "dims", "define", "--tag", "hypotheses", str(file))
    again = nightjar(lab.data, "dims", "define", "--tag", "hypotheses", str(file))

    assert (done.returncode, again.returncode) == (0, 0), done.stderr
    assert "a low A is best: hyp_" in done.stdout
    assert "a low A is best: left out: statement: hyp_" in again.stdout
    lab.until(lambda: len(claims(lab)) == 2, "the dimension has its own hypothesis, too")
    assert claims(lab) == {"a low A is best", "A matters"}


def claims(lab: RunningLab) -> set[str]:
    return {h["statement"] for h in lab.post("hypothesis/list", tag="hypotheses")["hypotheses"]}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("define", "--tag", "none", "FILE", "--profile", "mnist"), 2, "one of the two"),
        (("define", "--tag", "none", "FILE"), 1, "line 1, dimension 'A': min 3 is not below max 2"),
        (("define", "--tag", "none", "BYTES"), 1, "UTF-8"),
        (("ls", "--tag", "none"), 1, "there is no tag 'none'"),
        (("scan", "BROKEN"), 1, "does not parse"),
    ],
)
def test_what_is_wrong_is_said_and_makes_no_tag(
    lab: RunningLab, tmp_path: Path, words: tuple[str, ...], code: int, told: str
) -> None:
    (tmp_path / "FILE").write_text('[[dimension]]\nname = "A"\ndtype = "int"\nmin = 3\nmax = 2\n')
    (tmp_path / "BYTES").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "BROKEN").write_text("LR = = 3\n")
    places = [str(tmp_path / word) if word.isupper() else word for word in words]

    done = nightjar(lab.data, "dims", *places)

    assert done.returncode == code, done.stderr
    assert told in done.stderr
    assert "none" not in {row["name"] for row in lab.get("report/tags")["tags"]}
