"""A GPU joins a lab with a URL and a token, and trains agents' experiments beside the lab's own workers."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types

from tests.commands import nightjar
from tests.conftest import ROOT
from tests.journeys.anywhere import RemoteWorker, remote_worker
from tests.journeys.running import FAST, TRAIN, RunningLab, git, running_lab

EXAMPLES = ROOT / "examples" / "workers"
FILES = ("slurm.sh", "skypilot.yaml", "kubernetes.yaml")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab with tokens."""
    with running_lab(tmp_path_factory.mktemp("lab"), NIGHTJAR_STALE_S="15") as found:
        found.start()
        token = found.post("token/issue", name="olga", role="operator")["token"]
        found.http.headers["authorization"] = f"Bearer {token}"
        yield found


@pytest.fixture(scope="module")
def enroll_token(lab: RunningLab) -> str:
    """What a worker's owner is sent, for any number of machines."""
    return str(lab.post("token/issue", name="friends", role="worker", kind="enroll", uses=100)["token"])


@pytest.fixture(scope="module")
def joined(
    lab: RunningLab, tmp_path_factory: pytest.TempPathFactory, enroll_token: str
) -> Iterator[RemoteWorker]:
    """A worker behind a wire, for all tests: it has to be whole again after each."""
    with remote_worker(lab, tmp_path_factory.mktemp("far") / "worker", token=enroll_token) as worker:
        worker.start()
        yield worker


def test_two_workers_share_experiments_one_of_them_without_redis(
    lab: RunningLab, joined: RemoteWorker
) -> None:
    lab.setup("shared")
    git(joined.repo, "fetch", "--quiet")
    endless = [lab.submit("shared", config_delta={"SECONDS": 600.0, "VALUE": value}) for value in (3.0, 4.0)]
    lab.until(lambda: {lab.status(name) for name in endless} == {"running"}, "both slots train")
    by_gpu = {str(lab.get(f"experiment/{name}")["experiment"]["gpu_id"]): name for name in endless}
    [far] = by_gpu.keys() & {gpu["gpu_id"] for gpu in joined.slots()}

    lab.post("experiment/stop", experiment_id=by_gpu.pop(far))
    third = lab.until_status(lab.submit("shared", config_delta={"VALUE": 2.0}), "keep")["experiment"]

    assert (third["gpu_id"], third["val_bpb"]) == (far, 2.0)
    [other] = by_gpu.values()
    lab.post("experiment/stop", experiment_id=other)
    lab.until_status(other, "stopped")


def own_slot(lab: RunningLab) -> str:
    """The slot of the lab's own worker, which registers it after the lab is ready."""

    def found() -> str | None:
        own = (gpu["gpu_id"] for gpu in lab.get("pool/list")["workers"] if gpu["transport"] == "redis")
        return next(own, None)

    return str(lab.until(found, "the lab's own slot is there"))


@pytest.fixture
def far(lab: RunningLab, joined: RemoteWorker) -> Iterator[RemoteWorker]:
    """The idle remote worker. The lab's own worker is drained, so that this one trains everything."""
    lab.until(lambda: [gpu["status"] for gpu in joined.slots()] == ["idle"], "its slot is idle")
    own = own_slot(lab)
    lab.post("pool/drain", gpu_id=own)
    yield joined
    lab.post("pool/drain", gpu_id=own, undo=True)


def submitted(lab: RunningLab, tag: str, seconds: float) -> str:
    """An experiment with a patch, since the worker's clone lacks its commit; it reports when this returns."""
    lab.setup(tag)
    commit = lab.commit({"train.py": TRAIN.replace("SECONDS = 0.2", f"SECONDS = {seconds}")})
    name = lab.submit(tag, commit_sha=commit, diff=git(lab.repo, "diff", "--binary", lab.base, commit) + "\n")

    def has_begun() -> bool:
        e = lab.get(f"experiment/{name}")["experiment"]
        return e["last_progress"] is not None or e["status"] == "crash"

    lab.until(has_begun, f"{name} reports")
    assert lab.status(name) == "running"
    return name


@pytest.mark.parametrize(
    ("victim", "status", "least"),
    [
        ("workers.asker", "keep", 2),
        pytest.param("workers.trainer", "keep", 2, marks=pytest.mark.long),
        # they are noticed in other ways too: the keeper that comes after, or the end of the script
        pytest.param("workers.keeper", "keep", 1, marks=pytest.mark.long),
        pytest.param("train.py", "crash", 1, marks=pytest.mark.long),
    ],
)
def test_a_run_outlives_the_death_of_any_process_of_its_worker(
    lab: RunningLab, far: RemoteWorker, victim: str, status: str, least: int
) -> None:
    tag = f"t-{victim.rpartition('.')[2]}"
    name = submitted(lab, tag, 4.0)
    script = far.process("train.py")
    (far.trainer_of(script) if victim.endswith("trainer") else far.process(victim)).kill()

    found = lab.until_status(name, "keep", "crash")["experiment"]

    assert found["status"] == status
    assert found["attempt"] >= least  # on a busy machine another lease may run out
    lab.until(
        lambda: not script.is_running() or script.status() == psutil.STATUS_ZOMBIE, "the first run is gone"
    )
    lab.until(lambda: [gpu["status"] for gpu in far.slots()] == ["idle"], "its slot is idle")


def test_a_result_waits_for_a_network_that_is_cut_and_outlives_the_process_that_has_it(
    lab: RunningLab, far: RemoteWorker
) -> None:
    name = submitted(lab, "cut", 4.0)
    trainer = far.trainer_of(far.process("train.py"))
    far.wire.cut()
    lab.until(far.spooled, "the result is kept")
    trainer.kill()

    far.wire.mend()

    found = lab.until_status(name, "keep")["experiment"]
    assert found["val_bpb"] == 1.0
    lab.until(lambda: not far.spooled(), "the lab has taken it")


def test_a_run_that_the_lab_did_not_hear_of_for_too_long_is_another_s_and_ends(
    lab: RunningLab, far: RemoteWorker
) -> None:
    name = submitted(lab, "lost", 30.0)
    script = far.process("train.py")
    far.wire.cut()
    lab.until(lambda: lab.status(name) == "queued", "its lease is over")
    far.wire.mend()

    lab.until(lambda: lab.get(f"experiment/{name}")["experiment"]["attempt"] >= 2, "it is tried again")
    lab.until(
        lambda: not script.is_running() or script.status() == psutil.STATUS_ZOMBIE, "the first run is gone"
    )
    lab.post("experiment/stop", experiment_id=name)
    assert lab.until_status(name, "stopped")["experiment"]["last_progress"] is not None


def test_a_worker_needs_its_token_once_and_its_directory_alone(lab: RunningLab, far: RemoteWorker) -> None:
    [before] = [gpu["gpu_id"] for gpu in far.slots()]
    options = ("--url", far.url, "--repo", str(far.repo), "--gpu", "none")

    second = nightjar(far.data, "worker", *options)
    assert (second.returncode, "another worker runs with the data directory" in second.stderr) == (1, True)
    assert far.stop(signal.SIGTERM) == 0
    assert far.slots() == []
    far.start()

    assert [gpu["gpu_id"] for gpu in far.slots()] == [before]
    assert stat.S_IMODE((far.data / "remote.json").stat().st_mode) == 0o600


def words_of(example: str) -> str:
    """What the example has a shell run."""
    text = (EXAMPLES / example).read_text()
    if example.endswith(".sh"):
        return text
    task: dict[str, Any] = yaml.safe_load(text)
    if "run" in task:
        return str(task["run"])
    [container] = task["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["/bin/sh", "-c"]
    return str(container["args"][0])


@pytest.mark.parametrize(
    "example", [pytest.param(name, marks=[] if name == "slurm.sh" else pytest.mark.long) for name in FILES]
)
def test_each_example_file_starts_a_worker(
    lab: RunningLab, tmp_path: Path, enroll_token: str, example: str
) -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == {*FILES}
    assert 'nightjar worker --url "$NIGHTJAR_URL" --repo ' in words_of(example)
    tools, home = tmp_path / "bin", tmp_path / "home"
    for name, does in {"nightjar": f'{sys.executable} -P -m triggers.cli "$@"', "srun": '"$@"'}.items():
        tools.mkdir(exist_ok=True)
        (tools / name).write_text(f"#!/bin/sh\nexec {does}\n")
        (tools / name).chmod(0o755)
    git(tmp_path, "clone", "--quiet", str(lab.repo), str(home / "project"))
    (home / ".nightjar-enroll").write_text(enroll_token)
    given = {"SLURM_JOB_ID": "7", "WORK": str(home), "TMPDIR": str(home), "HOME": str(home)}
    given |= {"NIGHTJAR_URL": f"http://127.0.0.1:{lab.port}", "NIGHTJAR_TOKEN": enroll_token}
    own_slot(lab)
    known = {gpu["gpu_id"] for gpu in lab.get("pool/list")["workers"]}
    running = subprocess.Popen(
        ["bash", "-c", words_of(example)],
        env={"PATH": f"{tools}:{os.environ['PATH']}", **given, **FAST},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        new = lab.until(
            lambda: {gpu["gpu_id"] for gpu in lab.get("pool/list")["workers"]} - known, "it joined"
        )
        os.killpg(running.pid, signal.SIGTERM)
        lab.until(lambda: new - {gpu["gpu_id"] for gpu in lab.get("pool/list")["workers"]}, "it has left")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
