"""A run from the queue to its verdict, through real processes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.commands import nightjar
from tests.journeys.running import TRAIN, RunningLab, git


@pytest.fixture
def tag(lab: RunningLab, request: pytest.FixtureRequest) -> str:
    git(lab.repo, "reset", "--quiet", "--hard", lab.base)  # an earlier test may have changed the evaluator
    name = f"t{abs(hash(request.node.name)) % 10**9}"
    lab.setup(name)
    return name


def test_a_submitted_commit_is_trained_judged_and_remembered(lab: RunningLab, tag: str) -> None:
    experiment = lab.submit(tag, diff="")

    found = lab.until_status(experiment, "keep")

    e = found["experiment"]
    assert (e["val_bpb"], e["depth"], e["peak_vram_mb"]) == (1.0, 3.0, 12.5)
    assert e["gpu_class"] == "cpu"
    assert e["budget_seconds"] == 20
    assert len(e["evaluator_hash"]) >= 16
    progress = [tick[0] for tick in found["ticks"]]
    assert progress
    assert progress == sorted(set(progress))
    assert found["attempts"]["1"]["status"] == "keep"
    assert "val_bpb: 1.0" in found["log_tail"]
    invocation = lab.get(f"invocation/{experiment}.1")
    assert invocation["finished"]
    assert invocation["result"]["status"] == "keep"


def test_a_commit_that_the_worker_lacks_is_rebuilt_from_its_patch(
    lab: RunningLab, tag: str, tmp_path: Path
) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(lab.repo), str(clone)], check=True)
    git(clone, "checkout", "--quiet", lab.base)
    (clone / "train.py").write_text(TRAIN.replace("VALUE = 1.0", "VALUE = 0.75"))
    git(clone, "commit", "--quiet", "--all", "--message", "lower")
    diff = git(clone, "diff", "--binary", lab.base) + "\n"

    experiment = lab.submit(tag, commit_sha=git(clone, "rev-parse", "HEAD"), diff=diff)

    found = lab.until_status(experiment, "keep", "crash")
    assert found["experiment"]["val_bpb"] == 0.75, found["experiment"]["error"]
    assert found["diff"] == diff


def test_a_discard_that_was_submitted_without_its_diff_can_be_rebuilt(
    lab: RunningLab, tag: str, tmp_path: Path
) -> None:
    worse = lab.commit({"train.py": TRAIN.replace("VALUE = 1.0", "VALUE = 1.5"), "notes.txt": "more\n"})
    lab.until_status(lab.submit(tag), "keep")

    found = lab.until_status(lab.submit(tag, commit_sha=worse), "discard")

    git(lab.repo, "worktree", "add", "--quiet", "--detach", str(tmp_path / "rebuilt"), lab.base)
    (tmp_path / "patch").write_bytes(found["diff"].encode())
    git(tmp_path / "rebuilt", "apply", "--index", "--binary", str(tmp_path / "patch"))
    assert git(tmp_path / "rebuilt", "write-tree") == git(lab.repo, "rev-parse", f"{worse}^{{tree}}")
    assert found["experiment"]["has_diff"]
    assert not found["experiment"]["diff_differs"]


def test_a_run_that_reaches_its_tag_s_budget_is_stopped(lab: RunningLab, tag: str) -> None:
    lab.post("search/set-policy", tag=tag, policy={"budgets.base_s": 1})
    lab.post("tag/budget", tag=tag, gpu_seconds=3)

    experiment = lab.submit(tag, config_delta={"SECONDS": 600.0})

    e = lab.until_status(experiment, "stopped")["experiment"]
    assert e["error"] == "its tag's budget of GPU seconds is used up"
    assert lab.post("tag/budget", tag=tag)["gpu_seconds"]["spent"] >= 3
    lab.until_idle()
    assert not lab.processes("train.py")


def test_diff_says_where_nothing_was_changed(lab: RunningLab) -> None:
    lab.setup("unchanged", baseline_first=True)
    lab.post("experiment/baseline", tag="unchanged")
    lab.until_status("unchanged-1", "keep")
    patch = git(lab.repo, "diff", "--binary", lab.base, lab.base)
    name = lab.submit("unchanged", config_delta={"VALUE": 0.5}, diff=patch)
    other = lab.submit("unchanged", config_delta={"VALUE": 0.25}, diff=patch)

    baseline = nightjar(lab.data, "diff", "unchanged-1")
    same = nightjar(lab.data, "diff", name, name)
    constant = nightjar(lab.data, "diff", name)
    constants = nightjar(lab.data, "diff", name, other)

    assert [done.stdout for done in (baseline, same, constant, constants)] == ["", "", "", ""]
    assert baseline.stderr == "unchanged-1 changes nothing of the code that it began with\n"
    assert same.stderr == f"{name} changes nothing on top of {name}\n"
    assert constant.stderr.endswith(f" that it began with\n{name} sets VALUE = 0.5\n")
    assert constants.stderr == (
        f"{other} has the code of {name}\n"
        f"{name} sets VALUE = 0.5; {other} sets VALUE = 0.25. A constant that is set holds, whatever the code says.\n"
    )
