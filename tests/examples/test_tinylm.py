"""The example project learns, scores and fails the way its README says.

It is loaded from its path, because it is a project of its own, with module names as plain as `train`.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

TINYLM = Path(__file__).parents[2] / "examples" / "tinylm"


def load(name: str, patch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TINYLM / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    patch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def project() -> Iterator[dict[str, ModuleType]]:
    """Both files, imported as if from their own folder; sys.modules and the environment are put back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NIGHTJAR_BUDGET_S", raising=False)
        patch.setitem(sys.modules, "nightjar_report", None)  # importing it fails: no worker here
        for library in ("OPENBLAS", "OMP", "MKL"):
            patch.setenv(f"{library}_NUM_THREADS", "1")
        yield {"prepare": load("prepare", patch), "train": load("train", patch)}


@pytest.fixture
def prepare(project: dict[str, ModuleType]) -> ModuleType:
    return project["prepare"]


@pytest.fixture
def train(project: dict[str, ModuleType]) -> ModuleType:
    return project["train"]


def run(folder: Path) -> subprocess.CompletedProcess[str]:
    """`python train.py` for a CPU second at most, as a worker would start it: in its folder, few variables."""
    return subprocess.run(
        [sys.executable, "-W", "error", "train.py"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "NIGHTJAR_BUDGET_S": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def copy_with(folder: Path, **constants: object) -> Path:
    """A copy of the project whose top-level constants are changed the way an agent changes them."""
    shutil.copy(TINYLM / "prepare.py", folder)
    source = (TINYLM / "train.py").read_text()
    for name, value in constants.items():
        source, found = re.subn(rf"^{name} = [^#\n]*", f"{name} = {value!r}  ", source, flags=re.MULTILINE)
        assert found == 1, f"{name} is assigned {found} times"
    (folder / "train.py").write_text(source)
    return folder


# ---- The data and the score --------------------------------------------------------------------------------


def test_no_validation_file_is_in_training_by_name_or_by_content(prepare: ModuleType) -> None:
    training, validation = prepare.load_files("train"), prepare.load_files("validation")

    assert training.keys().isdisjoint(validation)
    assert set(training.values()).isdisjoint(validation.values())
    assert len(prepare.load_text("train")) > 4 * len(prepare.load_text("validation")) > 4 * prepare.EVAL_BYTES


def test_a_uniform_guess_scores_exactly_eight_bits(prepare: ModuleType) -> None:
    assert prepare.evaluate_bpb(lambda contexts: np.full((len(contexts), 256), -8 * np.log(2))) == 8.0


def test_no_context_shows_a_byte_that_is_still_to_be_asked_for(prepare: ModuleType) -> None:
    positions, window = prepare.asked_positions(prepare.load_text("validation")), prepare.MAX_CONTEXT

    first_asked = np.full(len(prepare.load_text("validation")), -1)
    first_asked[positions] = np.arange(len(positions)) // prepare.EVAL_CHUNK
    for chunk in range(len(positions) // prepare.EVAL_CHUNK):
        of_chunk = positions[chunk * prepare.EVAL_CHUNK : (chunk + 1) * prepare.EVAL_CHUNK]
        shown = (of_chunk[:, None] + np.arange(-window, 0)).ravel()
        assert first_asked[shown].max() < chunk
    assert len(set(positions)) == len(positions) == prepare.EVAL_BYTES


def test_a_score_or_a_time_that_is_bought_is_refused(prepare: ModuleType) -> None:
    with pytest.raises(ValueError, match="add up to 1"):
        prepare.evaluate_bpb(lambda contexts: np.zeros((len(contexts), 256)))
    for text in ("0", "nan", "soon"):
        with pytest.raises(ValueError, match=text):
            prepare.read_budget(text, 5)


# ---- The model ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "relu2", "gelu", "silu", "tanh"])
@pytest.mark.parametrize("depth", [0, 2])
def test_backprop_agrees_with_finite_differences(train: ModuleType, activation: str, depth: int) -> None:
    rng = np.random.default_rng(3)
    model = train.Model(depth=depth, width=5, expansion=2, embed=3, context=4, activation=activation)
    params = train.init_params(model, rng, dtype=np.float64)
    # few byte values, so that one embedding row collects from several places
    contexts = rng.integers(97, 100, size=(6, 4)).astype(np.uint8)
    targets = rng.integers(97, 100, size=6).astype(np.uint8)

    _, grads = train.loss_and_grads(model, params, contexts, targets)

    assert grads.keys() == params.keys()
    for name, value in params.items():
        direction = np.where(rng.random(value.shape) < 0.5, -1.0, 1.0)
        losses = []
        for step in (1e-6, -1e-6):
            moved = params | {name: value + step * direction}
            losses.append(train.loss_and_grads(model, moved, contexts, targets)[0])
        slope = (losses[0] - losses[1]) / 2e-6
        assert float((grads[name] * direction).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-8), name


@pytest.mark.parametrize(("optimizer", "learning_rate"), [("adam", 0.02), ("lion", 0.005), ("sgd", 0.1)])
def test_every_optimizer_learns_a_batch_by_heart(
    train: ModuleType, optimizer: str, learning_rate: float
) -> None:
    rng = np.random.default_rng(4)
    model = train.Model(depth=1, width=16, embed=4, context=4)
    params = train.init_params(model, rng)
    stepper = train.Optimizer(params, optimizer)
    contexts = rng.integers(0, 256, size=(16, 4)).astype(np.uint8)
    targets = rng.integers(0, 256, size=16).astype(np.uint8)

    for _ in range(200):
        _, grads = train.loss_and_grads(model, params, contexts, targets)
        stepper.step(params, grads, learning_rate)

    assert train.loss_and_grads(model, params, contexts, targets)[0] < 1.0
    assert all(value.dtype == np.float32 for value in params.values())


# ---- The run -----------------------------------------------------------------------------------------------


@pytest.mark.process
def test_a_diverged_run_exits_with_one_and_says_so(tmp_path: Path) -> None:
    done = run(copy_with(tmp_path, LEARNING_RATE=1e30))

    assert done.returncode == 1
    assert re.search(
        r"training diverged: loss is \S+ at step \d+; try a LEARNING_RATE below 1e\+30", done.stderr
    )
    assert "Warning" not in done.stderr
    assert "---" not in done.stdout


@pytest.mark.process
def test_a_worker_that_says_stop_ends_the_run_quietly_and_without_a_result(tmp_path: Path) -> None:
    copy_with(tmp_path)
    (tmp_path / "nightjar_report.py").write_text(
        "def report(metric, progress):\n    print('told', metric, progress)\n    raise SystemExit(0)\n"
    )

    done = run(tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    told = re.findall(r"told (\S+) (\S+)", done.stdout)
    assert len(told) == 1
    assert 0.05 <= float(told[0][1]) < 1
    assert "---" not in done.stdout
