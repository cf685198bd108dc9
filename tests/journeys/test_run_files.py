"""Data that no commit has, from the first word of `up` to a run that reads it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import command_line, nightjar
from tests.conftest import ROOT
from tests.journeys.running import RunningLab, running_lab

OWN_FUNCTIONS = (ROOT / "docs" / "functions-of-your-own.md").read_text()
READS = 'print(len(open("data/train.bin", "rb").read()))\nprint("val_bpb: 0.9")\n'


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RunningLab]:
    """A project whose data is ignored by git, and a home with data of another project."""
    home = tmp_path / "home"
    (home / ".cache" / "skl").mkdir(parents=True)
    with running_lab(tmp_path / "lab", HOME=str(home)) as found:
        found.base = found.commit({"train.py": READS, ".gitignore": "data/\n"})
        (found.repo / "data").mkdir()
        (found.repo / "data" / "train.bin").write_bytes(b"1234")
        yield found


def said(lab: RunningLab, *words: str) -> str:
    return " ".join(nightjar(lab.data, *words, COLUMNS="500").stdout.split())


def test_ignored_data_is_told_of_before_the_first_run_and_read_once_it_is_linked(lab: RunningLab) -> None:
    remedy = "if runs read it, start `up` or the worker with --link data"
    doctor = json.loads(nightjar(lab.data, "doctor", "--repo", str(lab.repo), "--json").stdout)
    assert f"no commit has data: {remedy}" in [finding["found"] for finding in doctor]

    lab.start()
    lab.setup()
    lab.until(lambda: f"warning: no commit has data: {remedy}" in lab.output(), "the warning of data")
    failed = lab.until_status(lab.submit(), "crash")["experiment"]["experiment_id"]
    for words in (("show", failed), ("wait", failed), ("ls",), ("doctor",)):
        assert remedy in said(lab, *words), words

    lab.stop()
    lab.start("--link", "data")
    assert "no commit has data" not in lab.output()
    assert lab.until_status(lab.submit(), "keep")["log_tail"].startswith("4\n")
    in_project = subprocess.run(
        [*command_line("doctor"), "--data", str(lab.data)],
        cwd=lab.repo,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "is trained with" in in_project.stdout
    assert "--link data" not in in_project.stdout

    lab.stop()
    (lab.repo / "nightjar.toml").write_text('link = ["data"]\nfunctions = "mine"\n')
    (lab.repo / "mine").mkdir()
    [documented, *_] = re.findall(r"(?ms)^```python\n(.*?)^```", OWN_FUNCTIONS)
    (lab.repo / "mine" / "hello.py").write_text(documented)
    lab.start()
    assert "functions of your own: hello::greet\n" in lab.output()
    assert lab.until_status(lab.submit(), "keep", "discard")["log_tail"].startswith("4\n")
