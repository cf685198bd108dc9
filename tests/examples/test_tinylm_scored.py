"""tinylm under its evaluator: the score is what its predictions are worth, whatever train.py prints."""

from __future__ import annotations

import random
import shutil
import sys
import uuid
from pathlib import Path

import pytest

from state.settings import Settings
from tests.workers.repository import Repository, job
from tests.workers.tiers import needs
from tests.workers.watching import Orders
from triggers.cli.demo import EVALUATOR
from workers.attempt.job import FailedTraining, TrainedRun, TrainingResult
from workers.attempt.processes import processes_of
from workers.attempt.runner import TrainingRunner
from workers.slot import Device, HealthSampler, Slot

pytestmark = pytest.mark.process

TINYLM = Path(__file__).parents[2] / "examples" / "tinylm"
TRAIN = (TINYLM / "train.py").read_text()
LAB = uuid.uuid4().hex
CPU = Device("h:cpu0", index=0, name="cpu", vram_mb=0, uuid=None, driver=None, kind="cpu")

PEEK = """
def answer(contexts, honest, width=64):
    # where two contexts overlap, the later one shows the byte that the earlier one is asked for
    known = honest(contexts).copy()
    for this, following, row in zip(contexts, contexts[1:], known):
        for step in range(1, width):
            if (this[step:] == following[:-step]).all():
                row[:] = np.log(1e-6)
                row[following[-step]] = np.log1p(-255e-6)
                break
    return known
"""
BY_THE_COMPANY = """
def answer(contexts, honest):
    # as a normalisation over the batch does, however little the model has learnt
    return log_softmax(honest(contexts) + np.arange(VOCAB) * contexts.mean() / 100)
"""


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    found = Repository(tmp_path / "repo")
    for file in TINYLM.iterdir():
        if file.is_file():
            shutil.copy(file, found.path)
    found.base = found.commit({})
    return found


def answering(code: str) -> str:
    """train.py with `honest` answering the evaluator through this `answer`."""
    served = "serve(lambda contexts: log_probs(np.asarray(contexts)))"
    assert served in TRAIN
    patched = "honest = log_probs\n    serve(lambda contexts: answer(np.asarray(contexts), honest))"
    return TRAIN.replace(served, patched).replace(
        "def predict() -> None:", f"{code}\n\ndef predict() -> None:"
    )


async def scored(repo: Repository, train: str, hidden: Path | None = None) -> TrainingResult:
    commit = repo.commit({"train.py": train})
    slot = Slot(
        repo=repo.path,
        device=CPU,
        python=Path(sys.executable),
        tier=needs("landlock") if hidden else "limits",
        hidden_data=hidden,
    )
    settings = Settings.model_validate({"data": repo.path.parent})
    runner = TrainingRunner(slot, settings, lab_identity=LAB, sampler=HealthSampler())
    splits = ["hidden"] if hidden else []
    asked = job(
        commit,
        base_commit=repo.base,
        evaluator_command=EVALUATOR,
        splits=splits,
        budget_s=0.3,
        timeout_s=600.0,
    )
    result = await runner.run(asked, Orders(), metric="val_bpb")
    assert processes_of(LAB) == []
    return result


async def test_an_honest_run_has_the_score_that_it_prints_and_one_of_a_hidden_text(
    repo: Repository, tmp_path: Path
) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "hidden.bin").write_bytes(random.Random(1).randbytes(300_000))

    result = await scored(repo, TRAIN, tmp_path / "hidden")

    assert isinstance(result, TrainedRun), result
    assert result.reported is not None
    assert result.metric == pytest.approx(result.reported, abs=2e-6)
    assert (result.score, 1 < result.metric < 8) == ("trusted", True)
    assert {"num_steps", "depth"} <= result.metrics.keys()
    assert 0.3 <= result.metrics["training_seconds"] < 1.6  # its budget and one step
    assert result.hidden["hidden"] > 8  # nothing predicts random bytes


@pytest.mark.parametrize("way", [pytest.param(PEEK, marks=pytest.mark.long), BY_THE_COMPANY])
async def test_answers_that_change_with_what_is_asked_beside_them_are_a_leak(
    repo: Repository, way: str
) -> None:
    result = await scored(repo, answering(way))

    assert isinstance(result, FailedTraining), result
    assert result.kind == "leak", result.error
    assert "predictions use the future" in result.error
