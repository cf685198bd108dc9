"""The command of a tag's guards: it runs where the training will run, before it."""

from __future__ import annotations

import textwrap

import pytest

from tests.workers.attempt.test_runner import LAB, runner
from tests.workers.repository import Repository, job
from tests.workers.tiers import needs
from tests.workers.watching import Orders
from workers.attempt.isolation import Tier
from workers.attempt.job import FailedTraining, HaltedRun, TrainedRun, TrainingResult
from workers.attempt.processes import processes_of

pytestmark = pytest.mark.process

TRAIN = "print('---'); print('val_bpb: 1.0')"


async def checked(
    repo: Repository,
    check: str,
    script: str = TRAIN,
    orders: Orders | None = None,
    check_s: float = 60.0,
    **more: object,
) -> TrainingResult:
    commit = repo.commit({"train.py": TRAIN, "check.py": textwrap.dedent(script)})
    lane = runner(repo, **more)  # type: ignore[arg-type]  # a table of options
    job_of = job(commit, base_commit=repo.base, check=check, check_s=check_s)
    result = await lane.run(job_of, orders or Orders(), metric="val_bpb")
    assert processes_of(LAB) == []
    return result


async def test_a_run_whose_check_passes_is_trained(repo: Repository) -> None:
    result = await checked(repo, "python check.py")

    assert isinstance(result, TrainedRun)
    assert result.metric == 1.0


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("assert 1 == 2, 'one is not two'", "`python check.py` exited with 1\n"),
        ("import time; time.sleep(600)", "`python check.py` did not end within 1 s"),
        ("print('val_bpb: 0.1'); raise SystemExit(3)", "`python check.py` exited with 3\n"),
    ],
)
async def test_a_run_whose_check_fails_is_not_trained(repo: Repository, script: str, why: str) -> None:
    result = await checked(repo, "python check.py", script, check_s=1.0 if "sleep" in script else 60.0)

    assert isinstance(result, FailedTraining)
    assert result.kind == "guard"
    assert result.error.startswith(f"guard check: {why}")
    assert ("one is not two" in result.error) == ("assert" in script)


@pytest.mark.parametrize("tier", [needs("landlock"), needs("bwrap")])
async def test_a_check_reaches_no_more_than_the_training(repo: Repository, tier: Tier) -> None:
    secret = repo.path.parent / "secret.txt"
    secret.write_text("s3cret")

    result = await checked(repo, "python check.py", f"print(open({str(secret)!r}).read())", tier=tier)

    assert isinstance(result, FailedTraining)
    assert "s3cret" not in result.error


async def test_a_worker_without_the_check_s_program_is_at_fault(repo: Repository) -> None:
    result = await checked(repo, "nightjar-no-such-linter .")

    assert isinstance(result, FailedTraining)
    assert (result.kind, "nightjar-no-such-linter" in result.error) == ("infra", True)


async def test_a_check_is_stopped_like_a_training(repo: Repository) -> None:
    orders = Orders(on_poll=lambda: "stop")

    result = await checked(repo, "python check.py", "import time; time.sleep(600)", orders)

    assert isinstance(result, HaltedRun)
    assert result.order == "stop"
