"""Makes the lab of `lab-606bf23.nightjar` with commit 606bf23; tests/data/README.md says how to run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.journeys.running import RunningLab, git, running_lab


def main(folder: Path) -> None:
    """A small night of research, killed while one run trains and others wait."""
    with running_lab(folder) as lab:
        lab.start()
        lab.setup("night", near_miss_margin=0.004)
        worker_runs(lab)
        agent_runs(lab)
        decisions(lab)
        dead_letter(lab)
        leave_open(lab)
        git(lab.repo, "bundle", "create", str(folder / "repository.bundle"), "main")


def worker_runs(lab: RunningLab) -> None:
    """Keeps, a near miss, a far discard, a crash, a stop; one of them from a patch that git never saw."""
    for value in (1.0, 0.9, 0.902, 1.4):
        done = lab.submit("night", config_delta={"VALUE": value}, category="architecture", agent="ada")
        lab.until_status(done, "keep", "discard")
    (lab.repo / "train.py").write_text(
        (lab.repo / "train.py").read_text().replace("VALUE = 1.0", "VALUE = 0.88")
    )
    diff = git(lab.repo, "diff", "--binary", lab.base) + "\n"
    git(lab.repo, "checkout", "--", "train.py")
    lab.until_status(
        lab.submit("night", commit_sha="feedbee", diff=diff, category="optimizer", agent="grace"), "keep"
    )
    broken = lab.commit({"train.py": "raise SystemExit('no such optimizer')\n"})
    git(lab.repo, "revert", "--no-edit", "HEAD")
    lab.until_status(lab.submit("night", commit_sha=broken, category="optimizer"), "crash")
    stopped = lab.submit("night", config_delta={"SECONDS": 600.0})
    lab.until_training(stopped)
    lab.post("experiment/stop", experiment_id=stopped, reason="changed my mind")
    lab.until_status(stopped, "stopped")


def agent_runs(lab: RunningLab) -> None:
    """A second tag, maximised, whose agent trains by itself; one run is still open."""
    lab.post(
        "experiment/setup",
        tag="accuracy",
        metric={"name": "accuracy", "direction": "maximize"},
        base_commit=lab.base,
    )
    for n, value in enumerate((0.5, 0.7, 0.699, 0.6)):
        name = register(lab, n)
        lab.post(
            "experiment/complete",
            experiment_id=name,
            val_bpb=value,
            training_seconds=30.5,
            peak_vram_mb=100.0,
        )
    lab.post("experiment/crash", experiment_id=register(lab, 10), error="CUDA out of memory")
    register(lab, 11)


def register(lab: RunningLab, n: int) -> str:
    """An experiment of the second tag."""
    answer = lab.http.post(
        "/api/experiment/register",
        json={
            "tag": "accuracy",
            "hypothesis": f"augmentation {n} helps",
            "category": "regularization",
            "commit_sha": f"{0xABC0000 + n:07x}",
            "diff_summary": f"augment {n}",
            "agent": "linus",
        },
        headers={"Idempotency-Key": f"register-{n}"},
    )
    assert answer.is_success, answer.text
    return str(answer.json()["experiment_id"])


def decisions(lab: RunningLab) -> None:
    """An operator's choices, in policy and strategy."""
    lab.post("search/set-policy", tag="night", policy={"crash_limit": 5})
    lab.post("search/set-strategy", tag="night", mode="exploit", reason="close to the goal", pin_for=1)
    lab.post("search/set-strategy", tag="accuracy", mode="combine", reason="near misses abound")
    lab.post("lab/audit")


def dead_letter(lab: RunningLab) -> None:
    """An event whose handler cannot succeed: its tag does not exist."""
    fields = ["type", "experiment.finished", "time", "2026-01-01T00:00:00.000Z", "tag", "ghost"]
    fields += ["subject", "ghost-1", "data", '{"experiment_id":"ghost-1"}', "trace", ""]
    redis(lab, "XADD", "{lab}:events", "*", *fields)
    lab.until(lambda: lab.post("event/dead")["dead"], "the event is a dead letter")


def leave_open(lab: RunningLab) -> None:
    """One run trains, two wait, one of them pinned to the slot; an agent holds a GPU of its own."""
    running = lab.submit(
        "night", config_delta={"SECONDS": 60.0, "VALUE": 0.87}, category="hyperparams", agent="ada"
    )
    lab.until_training(running)
    lab.post("pool/register", gpu_id="elsewhere:gpu0", gpu_index=0, gpu_name="H100", vram_mb=80000.0)
    assert lab.post("pool/acquire", experiment_id=register(lab, 12))["acquired"]
    slot = lab.get(f"experiment/{running}")["experiment"]["gpu_id"]
    lab.submit("night", config_delta={"VALUE": 0.86}, category="hyperparams", agent="grace")
    lab.submit("night", config_delta={"VALUE": 0.95}, category="hyperparams", agent="ada", gpu_id=slot)


def redis(lab: RunningLab, *words: str) -> None:
    """One Redis command, as an operator sends it."""
    command = [sys.executable, "-P", "-m", "triggers.cli", "redis", "--data", str(lab.data), *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
