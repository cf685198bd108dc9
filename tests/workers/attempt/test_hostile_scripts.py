"""Scripts that flood their worker or leave it what is hard to look through, in every tier of isolation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workers.attempt.test_runner import LAB, runner
from tests.workers.repository import Repository, job
from tests.workers.tiers import needs
from tests.workers.watching import Orders
from workers.attempt.isolation import Tier
from workers.attempt.job import FailedTraining, TrainedRun, TrainingResult
from workers.attempt.processes import processes_of
from workers.attempt.worktree import checkouts_in

pytestmark = pytest.mark.process

FLOODS = r"""
import os
reports = int(os.environ["NIGHTJAR_REPORT_FD"].partition(":")[0])
for _ in range(50):
    os.write(reports, b'{"m": 1.5, "p": 0.5}\n' * 200 + b"{" * 9000 + b"\n[" + b"[" * 4000 + b"\n\xff\x00\n")
long = [b"x" * 1_000_000, b"\r" * 1_000_000]
many = [b"---\n" * 250_000, b"\x1b]0;" * 250_000, b"\xe2\x80\xae" * 300_000]
for lines in (*long, *many):
    for _ in range(8):
        os.write(1, lines)
os.write(1, b"val_bpb: " + b"9" * 1_000_000 + b"\n" + b"a: " * 300_000 + b"\n---\nval_bpb: 1.5\n")
"""
BURIES = r"""
import os, time
os.symlink("/etc/passwd", "results.json")
os.makedirs("closed/inner")
for nth in range(3_000):
    os.close(os.open(f"closed/{nth}", os.O_CREAT | os.O_WRONLY))
os.chmod("closed/inner", 0)
os.chmod("closed", 0)
for _ in range(3000):
    os.mkdir("deep")
    os.chdir("deep")
print("---\nval_bpb: 1.5", flush=True)
time.sleep(600)
"""


async def trained(tmp_path: Path, script: str, tier: Tier, *, timeout_s: float) -> TrainingResult:
    repo = Repository(tmp_path / "repo")
    asked = job(repo.commit({"train.py": script}), base_commit=repo.base, timeout_s=timeout_s)
    return await runner(repo, tier=tier).run(asked, Orders(), metric="val_bpb")


async def test_floods_of_reports_and_of_lines_without_end_hide_no_score(tmp_path: Path) -> None:
    result = await trained(tmp_path, FLOODS, "none", timeout_s=60)

    assert isinstance(result, TrainedRun), result
    assert result.metric == 1.5
    assert max(map(len, result.log_tail.splitlines())) < 10_000


async def test_deep_closed_and_crowded_folders_end_with_the_run_that_made_them(tmp_path: Path) -> None:
    result = await trained(tmp_path, BURIES, needs("bwrap"), timeout_s=60)

    assert isinstance(result, FailedTraining), result
    assert result.kind == "disk", result.error
    assert checkouts_in(tmp_path / "work" / "h-cpu0") == []
    assert processes_of(LAB) == []
