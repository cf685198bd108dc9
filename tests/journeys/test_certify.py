"""A true gain is certified by `nightjar certify`, and a stranger verifies the folder."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import nightjar, printed
from tests.journeys.running import RunningLab, git, running_lab

NOISY = """
import random
SEED = 1
VALUE = {value}
print(f"---\\nval_bpb: {{VALUE + random.Random(SEED).gauss(0, 0.05):.6f}}")
"""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[RunningLab]:
    with running_lab(tmp_path) as found:
        found.start()
        found.base = found.commit({"train.py": NOISY.format(value=1.0)})
        found.setup()
        yield found


def verified(folder: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-I", "verify.py"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env={})


def test_a_true_gain_is_certified_and_its_folder_is_verified_without_nightjar(
    lab: RunningLab, tmp_path: Path
) -> None:
    lab.until_status(lab.submit(), "keep")
    commit = lab.commit({"train.py": NOISY.format(value=0.5)})
    patch = git(lab.repo, "diff", "--binary", lab.base, commit) + "\n"
    lab.until_status(lab.submit(commit_sha=commit, diff=patch), "keep")
    lab.post("trust/certify", experiment_id="t-2", min_gain=0.1, alpha=0.05)
    lab.until(lambda: lab.get("experiment/t-2")["certificate"]["pairs"][0]["measured"], "a pair is over")
    lab.process("triggers.events").kill()  # in the middle; `up` starts it again

    written = tmp_path / "written"
    said = printed(lab.data, "certify", "t-2", "--min-gain", "0.1", "--alpha", "0.05", "-o", str(written))

    assert "certified: t-2 against t-1, a gain of more than 0.1 at alpha 0.05" in said
    assert "certified at alpha 0.05" in printed(lab.data, "show", "t-2")
    assert "| t-2 | t-1 | certified |" in printed(lab.data, "report")
    (gpu,) = json.loads((written / "environment.json").read_bytes())["gpus"]
    assert gpu["environment"][0] == f"python=={platform.python_version()}"
    clean = tmp_path / "elsewhere"
    shutil.copytree(written, clean)
    done = verified(clean)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] in said
    about = json.loads((clean / "certificate.json").read_text())
    assert len(about["from_logs"]) == 2 * len(about["pairs"])
    seeds = [json.loads(file.read_text())["seed"] for file in (clean / "runs").glob("t-2.*.json")]
    assert len(set(seeds)) == len(about["pairs"])
    assert (clean / "candidate.patch").read_text() == patch

    log = sorted((clean / "runs").glob("*.log"))[0]
    said_there = bytearray(log.read_bytes())
    said_there[len(said_there) // 2] ^= 1
    log.write_bytes(said_there)
    done = verified(clean)
    assert done.returncode == 1
    assert "REFUSED" in done.stderr

    there = nightjar(lab.data, "certify", "t-2", "-o", str(written))
    assert there.returncode == 1
    assert "is there already" in there.stderr

    back = nightjar(lab.data, "certify", "t-1", "--against", "t-2", "-o", str(tmp_path / "back"))
    assert (back.returncode, back.stderr) == (3, "")
    assert "refused: no hope" in back.stdout
    assert verified(tmp_path / "back").stdout.startswith("refused: t-1 against t-2")
