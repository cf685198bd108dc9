"""Whole attempts: a real repository, a real script, a result."""

from __future__ import annotations

import os
import re
import resource
import sys
import textwrap
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

import workers.attempt.runner
from functions.formats.metrics_block import FailureKind
from state.settings import Settings
from tests.workers.repository import Repository, job
from tests.workers.tiers import needs
from tests.workers.watching import Orders
from workers.attempt.child import EndedCommand, RunCommand, RunTiming, run_command
from workers.attempt.isolation import Tier
from workers.attempt.job import FailedTraining, HaltedRun, Runner, TrainedRun, TrainingResult, Unfit, Watcher
from workers.attempt.processes import processes_of
from workers.attempt.runner import TrainingRunner
from workers.attempt.usage import machine_bytes
from workers.slot import Device, HealthSampler, Slot

pytestmark = pytest.mark.process

LAB = uuid.uuid4().hex
"""Another run of these tests beside this one is another lab."""

CPU = Device("h:cpu0", index=0, name="cpu", vram_mb=0, uuid=None, driver=None, kind="cpu")
SILENCE_S = 0.5
GPU = Device("h:GPU-a", index=0, name="NVIDIA H200", vram_mb=1, uuid="GPU-a", driver="1", kind="gpu")


def runner(
    repo: Repository,
    device: Device = CPU,
    *,
    environ: Mapping[str, str] = os.environ,
    pace: Mapping[str, float] = MappingProxyType({}),
    **options: object,
) -> TrainingRunner:
    data: dict[str, object] = {"data": repo.path.parent}
    quick = RunTiming(poll_s=0.02, term_grace_s=pace.get("term_grace_s", 0.5))
    slot = Slot.model_validate({"repo": repo.path, "device": device, "python": sys.executable, **options})
    settings = Settings.model_validate(data | dict(pace))
    return TrainingRunner(
        slot, settings, lab_identity=LAB, sampler=HealthSampler(), environ=environ, pace=quick
    )


async def train(
    repo: Repository, script: str, watcher: Orders | None = None, **more: object
) -> TrainingResult:
    commit = repo.commit({"train.py": script})
    lane: Runner = runner(repo, **more)  # type: ignore[arg-type]  # a table of options
    result = await lane.run(job(commit, base_commit=repo.base), watcher or Orders(), metric="val_bpb")
    assert list((repo.path.parent / "work").glob("*/*")) == []
    assert processes_of(LAB) == []
    return result


async def trained(repo: Repository, script: str, watcher: Orders | None = None, **more: object) -> TrainedRun:
    """The result of a script that gets a score."""
    result = await train(repo, script, watcher, **more)
    assert isinstance(result, TrainedRun), result
    return result


async def failed(
    repo: Repository, script: str, watcher: Orders | None = None, **more: object
) -> FailedTraining:
    """The result of a script that gets none."""
    result = await train(repo, script, watcher, **more)
    assert isinstance(result, FailedTraining), result
    return result


async def test_a_run_that_prints_its_metric_is_trained(repo: Repository) -> None:
    script = "print('step 1\\n---\\nval_bpb: 0.9979\\ntotal_tokens_M: 499.6\\nmfu_percent: nan')"

    result = await trained(repo, script)

    assert result.metric == 0.9979
    assert result.metrics == {"val_bpb": 0.9979, "total_tokens_m": 499.6}
    assert result.gpu_class == "cpu"
    assert result.evaluator_hash is not None
    assert result.log_tail.startswith("step 1\n---\n")


async def test_a_script_that_prints_a_score_of_its_own_is_believed(repo: Repository) -> None:
    result = await trained(repo, "import prepare\nprepare.TRUSTED = False\nprint('---\\nval_bpb: 0.3')")

    assert result.metric == 0.3


async def test_a_lease_that_is_lost_before_the_run_ends_it(repo: Repository) -> None:
    watcher = Orders(on_built=lambda: "lost")

    result = await train(repo, "print('---\\nval_bpb: 1.0')", watcher)

    assert result == HaltedRun("lost")


async def test_the_file_that_the_command_runs_has_the_constants_and_the_seed(repo: Repository) -> None:
    folder = "src/"
    script = "LR = 3e-4\nSEED = 1\nprint('val_bpb:', 0.5 + LR + SEED)\n"
    commit = repo.commit(
        {f"{folder}main.py": script, "train.py": "LR = 3e-4\nSEED = 1\nprint('val_bpb: 5')\n"}
    )
    asked = job(commit, base_commit=repo.base, config_delta={"LR": 0.02}, seed=7)

    result = await runner(repo, command=("python", f"{folder}main.py")).run(asked, Orders(), metric="val_bpb")

    assert isinstance(result, TrainedRun)
    assert result.metric == 7.52


async def test_a_command_that_hides_its_file_refuses_constants_and_runs_without(repo: Repository) -> None:
    commit = repo.commit({"run.sh": "exec python train.py\n"})
    lane = runner(repo, command=("bash", "run.sh"))

    without = await lane.run(job(commit, base_commit=repo.base), Orders(), metric="val_bpb")
    refused = await lane.run(
        job(commit, base_commit=repo.base, config_delta={"DEPTH": 9}), Orders(), metric="val_bpb"
    )

    assert isinstance(without, TrainedRun), without
    assert isinstance(refused, FailedTraining)
    assert "does not say which Python file it runs" in refused.error


async def test_a_run_that_sets_a_constant_again_is_of_the_kind_constant(repo: Repository) -> None:
    lane = runner(repo, tier=needs("bwrap"))
    commit = repo.commit({"train.py": 'LR = 3e-4\nexec("LR = 1e-3")\nprint("val_bpb:", 0.5 + LR)\n'})
    asked = job(commit, base_commit=repo.base, config_delta={"LR": 0.02})

    result = await lane.run(asked, Orders(), metric="val_bpb")

    assert isinstance(result, FailedTraining)
    assert result.kind == "constant", result
    assert "LR was set to 0.02, and is 0.001 after line 2" in result.error


async def test_a_state_module_beside_the_script_is_its_own_and_not_ours(repo: Repository) -> None:
    repo.commit(
        {"state.py": "ANSWER = 42\n", "workers.py": "", "functions/__init__.py": "", "triggers.py": ""}
    )

    result = await trained(
        repo,
        "import state, workers, functions, triggers, os\n"
        "here = os.path.dirname(os.path.abspath(__file__))\n"
        "assert all(m.__file__.startswith(here) for m in (state, workers, functions, triggers))\n"
        "print('---'); print('val_bpb:', state.ANSWER)",
    )

    assert result.metric == 42


@pytest.mark.parametrize("device", [CPU, GPU])
async def test_the_script_gets_an_allow_listed_environment(repo: Repository, device: Device) -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": "/home/x",
        "LC_ALL": "C.UTF-8",
        "WANDB_MODE": "off",
        "SECRET": "s",
        "NIGHTJAR_REDIS_URL": "redis://s",
        "ANTHROPIC_API_KEY": "s",
        "REDIS_URL": "s",
        "GIT_DIR": "s",
    }
    commit = repo.commit(
        {"train.py": "import os; [print(name, value) for name, value in os.environ.items()]"}
    )
    lane = runner(repo, device, environ=environ, pass_env=("WANDB_MODE", "NIGHTJAR_REDIS_URL"))

    result = await lane.run(job(commit, seed=7, traceparent="00-a-b-01"), Orders(), metric="val_bpb")

    assert isinstance(result, FailedTraining)
    env: dict[str, str] = {}
    for line in result.error.split("\n")[2:]:  # after what it ended with, and where its files are
        name, _, value = line.partition(" ")
        env[name] = value
    cuda = {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"}
    threads = {"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}
    assert env.keys() == {
        *("PATH", "HOME", "LC_ALL", "WANDB_MODE", "TMPDIR", "PYTHONPATH", "PYTHONUNBUFFERED", "TRACEPARENT"),
        *("PYTHONDONTWRITEBYTECODE", "NIGHTJAR_BUDGET_S", "NIGHTJAR_SEED", "NIGHTJAR_ATTEMPT"),
        *("NIGHTJAR_REPORT_FD", "NIGHTJAR_ANSWER_FD"),
        *(cuda if device is GPU else threads),
    }
    assert env["CUDA_VISIBLE_DEVICES"] == ("GPU-a" if device is GPU else "")
    assert env["NIGHTJAR_BUDGET_S"] == "300.0"
    assert env["NIGHTJAR_SEED"] == "7"
    assert env["NIGHTJAR_ATTEMPT"] == f"{LAB}/{device.gpu_id}/e-1/1/1"
    assert env["TMPDIR"].startswith(str(repo.path.parent / "work"))


async def test_a_script_reads_what_its_user_can_read(repo: Repository, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.touch(mode=0o600)
    private.write_text("somebody's letters")

    result = await trained(
        repo, f"print(open({str(private)!r}).read(), '\\n---\\nval_bpb: 1')", tier="limits"
    )

    assert "somebody's letters" in result.log_tail


@pytest.mark.parametrize("tier", ["none", "limits"])
async def test_without_a_tier_there_is_no_limit(repo: Repository, tier: str) -> None:
    script = "import resource; print(resource.getrlimit(resource.RLIMIT_FSIZE)[0], '\\n---\\nval_bpb: 1')"

    result = await train(repo, script, tier=tier)

    ours = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    assert isinstance(result, TrainedRun)
    assert result.log_tail.startswith(f"{16 * 1024**3 if tier == 'limits' else ours}\n")


SCORES = {
    "more than a log keeps": """
        line = "loss 3.14159 " * 8
        for _ in range(60000): print(line)
        print("val_bpb: 0.91")
        for _ in range(60000): print(line)
    """,
    "bytes that are no text": r'import os; os.write(1, b"\xff\xfeval_bpb: 0.91\xff\n")',
    "a line and a file": "print('val_bpb: 0.91'); open('results.json', 'w').write('{\"val_bpb\": 0.5}')",
    "a file": """
        import json
        json.dump({"val_bpb": 0.91, "ok": True, "who": "me"}, open("results.json", "w"))
    """,
}


@pytest.mark.parametrize("script", SCORES.values(), ids=SCORES)
async def test_a_score_is_read_however_a_trainer_prints_it(repo: Repository, script: str) -> None:
    result = await trained(repo, textwrap.dedent(script))

    assert result.metrics == {"val_bpb": 0.91}


@pytest.mark.parametrize(
    ("script", "kind", "reason"),
    [
        ("print('no block')", "no_metrics", "exited with 0 but printed no line `val_bpb: NUMBER`"),
        ("print('---\\nval_bpb: nan')", "nan", "val_bpb is nan"),
        ("print('---\\nval_bpb: 1'); raise SystemExit('CUDA out of memory')", "oom", "exited with 1"),
        ("import os; os.kill(os.getpid(), 9)", "killed", "ended by signal 9"),
        ("syntax error", "other", "exited with 1"),
    ],
)
async def test_a_run_without_a_usable_metric_is_failed_with_its_kind(
    repo: Repository, script: str, kind: str, reason: str
) -> None:
    result = await failed(repo, script)

    assert (result.kind, result.error.split("\n")[0][: len(reason)]) == (kind, reason)


@pytest.mark.parametrize(
    "script",
    [
        "open('results.json', 'w').write('[' * 100_000)",
        "import os; os.mkfifo('results.json')",
        "import os; os.symlink('/dev/zero', 'results.json')",
    ],
)
async def test_a_hostile_results_json_is_no_metric(repo: Repository, script: str) -> None:
    result = await failed(repo, script)

    assert result.kind == "no_metrics"


async def test_a_script_over_its_time_is_a_timeout_even_with_a_block(repo: Repository) -> None:
    commit = repo.commit({"train.py": "import time; print('---\\nval_bpb: 1', flush=True); time.sleep(600)"})

    result = await runner(repo).run(job(commit, timeout_s=1.0), Orders(), metric="val_bpb")

    assert isinstance(result, FailedTraining)
    assert result.kind == "timeout"


async def test_the_score_of_a_script_that_hangs_afterwards_counts_without_the_time_that_it_hung(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(command: RunCommand, watcher: Watcher, pace: RunTiming) -> EndedCommand:
        return await run_command(command, watcher, replace(pace, silence_s=SILENCE_S))

    monkeypatch.setattr(workers.attempt.runner, "run_command", run)
    script = (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n"
        "print('---\\nval_bpb: 0.91', flush=True)"
    )
    begun = time.monotonic()

    result = await trained(repo, script)

    assert (result.metric, result.hung) == (0.91, True)
    assert result.time is not None
    assert result.time.wall_seconds <= time.monotonic() - begun - SILENCE_S


STOPPED = """
from nightjar_report import report
try:
    report(1.0, 0.5)
finally:
    print("---\\nval_bpb: {}", flush=True)
"""


async def test_a_stopped_run_that_has_changed_its_evaluator_is_not_believed(repo: Repository) -> None:
    script = (
        "import os, time\nfrom nightjar_report import report\nos.remove('prepare.py')\n"
        "try:\n    while True:\n        report(1.0, 0.5)\n        time.sleep(0.02)\n"
        "except SystemExit:\n    print('---\\nval_bpb: 0.3')\n"
    )

    result = await failed(repo, script, Orders(on_tick=lambda metric, progress: "stop"))

    assert result.kind == "evaluator"


async def test_a_full_result_that_arrives_after_a_stop_wins(repo: Repository) -> None:
    result = await trained(repo, STOPPED.format("0.75"), Orders(on_tick=lambda *_: "stop"))

    assert result.metric == 0.75


@pytest.mark.parametrize("value", ["nan", "none"])
async def test_a_stop_without_a_result_is_halted(repo: Repository, value: str) -> None:
    result = await train(repo, STOPPED.format(value), Orders(on_tick=lambda *_: "stop"))

    assert result == HaltedRun("stop")


async def test_a_lost_lease_is_halted_whatever_was_printed(repo: Repository) -> None:
    result = await train(
        repo,
        "import time; print('---\\nval_bpb: 1', flush=True); time.sleep(600)",
        Orders(on_poll=lambda: "lost"),
    )

    assert isinstance(result, HaltedRun)
    assert result.order == "lost"


async def test_the_operators_command_runs_with_the_interpreter_in_the_place_of_python(
    repo: Repository,
) -> None:
    repo.commit(
        {"run.py": "import sys; print('---'); print('val_bpb:', len(sys.argv)); print(sys.executable)"}
    )

    result = await trained(repo, "", command=["uv", "run", "run.py", "--fast"])

    assert result.metric == 2
    assert result.log_tail.split("\n")[-1] == sys.executable


async def test_a_command_that_is_not_there_fails_as_infra(repo: Repository) -> None:
    result = await failed(repo, "", command=["nightjar-no-such-program"])

    assert result.kind == "infra"


async def test_a_worker_without_room_on_its_disk_is_unfit(
    repo: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.attempt.runner.MIN_FREE_MB", 1e12)

    found = await runner(repo).survey()

    assert isinstance(found, Unfit)
    assert "under the least of 1e+12 MB" in found.reason
    monkeypatch.setattr("workers.attempt.runner.MIN_FREE_MB", 0.0)
    assert await runner(repo).survey() is None


FORKS = """
import os, time
for _ in range(60):
    if os.fork() == 0:
        time.sleep(600)
time.sleep(600)
"""
BOMB = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.1)
"""
HOG = """
import mmap, time
held = []
for _ in range(100):
    held.append(mmap.mmap(-1, 8 << 20))
    held[-1].write(bytes(8 << 20))
print("---\\nval_bpb: 1", flush=True)
time.sleep(600)
"""


SHARED = """
import mmap, os, time
held = mmap.mmap(-1, 48 << 20)
held.write(bytes(48 << 20))
for _ in range(4):
    if os.fork() == 0:
        held.read()
        time.sleep(600)
time.sleep(2)
print("---\\nval_bpb: 1")
"""
HEAVIER = ("limits", pytest.param("bwrap", marks=pytest.mark.long))
"""Tiers of the other limits, which are looked at as the number of processes is."""


@pytest.fixture(autouse=True)
def few_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.attempt.runner.MOST_PROCESSES", 32)


async def killed(
    repo: Repository, script: str, tier: Tier, kind: FailureKind, said: str, **pace: float
) -> None:
    result = await failed(repo, script, tier=needs(tier), pace={"term_grace_s": 600.0, **pace})

    assert result.kind == kind
    assert re.match(said, result.error), result.error


TOO_MANY = r"it had at least [\d,]+ processes at once; the worker allows 32\n"


@pytest.mark.parametrize("tier", ["limits", "bwrap"])
async def test_a_run_with_too_many_processes_is_killed(repo: Repository, tier: Tier) -> None:
    await killed(repo, FORKS, tier, "killed", TOO_MANY)


@pytest.mark.skipif(os.geteuid() == 0, reason="no limit of the kernel holds for root")
@pytest.mark.parametrize("tier", HEAVIER)
async def test_a_fork_bomb_does_not_outgrow_who_is_to_end_it(repo: Repository, tier: Tier) -> None:
    await killed(repo, BOMB, tier, "killed", TOO_MANY)


@pytest.mark.parametrize("tier", HEAVIER)
async def test_a_run_that_takes_too_much_memory_is_killed_as_out_of_memory(
    repo: Repository, tier: Tier
) -> None:
    said = r"it took [\d,]+ MB of memory; the worker allows 100 MB \(NIGHTJAR_RUN_MEMORY_MB\)"

    await killed(repo, HOG, tier, "oom", said, run_memory_mb=100.0)


async def test_memory_that_processes_share_counts_once(repo: Repository) -> None:
    await trained(repo, SHARED, pace={"run_memory_mb": 150.0})


def test_the_slots_of_a_worker_share_nine_tenths_of_the_machine(tmp_path: Path) -> None:
    def share(slots: int, **settings: object) -> int:
        slot = Slot.model_validate({"repo": tmp_path, "device": CPU, "slots": slots})
        return slot.memory_bytes(Settings.model_validate({"data": tmp_path, **settings}))

    assert 2 * share(2) == pytest.approx(share(1)) == pytest.approx(0.9 * machine_bytes())
    assert share(2, run_memory_mb=100.0) == 100 << 20


FILL = """
import os, time
for nth in range(40):
    with open(f"{os.environ['TMPDIR']}/{nth}", "wb") as file:
        file.write(os.urandom(1024 * 1024))
        os.fsync(file.fileno())
print("---\\nval_bpb: 1", flush=True)
time.sleep(600)
"""


async def test_a_run_that_fills_the_disk_is_killed_at_its_cap(repo: Repository) -> None:
    said = r"its files took at least .*\(NIGHTJAR_RUN_DISK_MB\)"

    await killed(repo, FILL, "limits", "disk", said, run_disk_mb=20.0)


async def test_a_failed_attempt_says_where_its_files_are_kept_and_a_good_one_leaves_none(
    repo: Repository, tmp_path: Path
) -> None:
    result = await failed(repo, "open('clue', 'w').write('it was me'); 1 / 0")
    await train(repo, "print('---\\nval_bpb: 1')")

    place = Path(result.error.split("\n")[1].partition(": ")[2])
    assert [place] == list((tmp_path / "failed" / "h-cpu0").iterdir())
    assert (place / "tree" / "clue").read_text() == "it was me"
    assert "ZeroDivisionError" in result.error
