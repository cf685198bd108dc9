"""Hidden splits: the evaluator sends their numbers on a pipe of its own, and no code of an experiment finds them."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from state.errors import Invalid
from tests.workers.attempt.test_runner import runner
from tests.workers.repository import Repository, job
from tests.workers.tiers import needs
from tests.workers.watching import Orders
from workers.attempt.isolation import Tier
from workers.attempt.job import FailedTraining, TrainedRun, TrainingResult
from workers.attempt.scoring import hidden_numbers
from workers.slot import WorkerOptions
from workers.supervisor import check_hidden_data

pytestmark = pytest.mark.process

NUMBER, MARK = 0.7219183645, "rows-that-nobody-sees"
EVALUATOR = """
import struct
from nightjar_evaluator import Predictor, Unscored, measure_hidden

def asked(word):
    with Predictor("train.py", "--predict") as ask:
        return ask(word, (1,))[0]

def hidden(split, folder):
    number, mark = (folder / f"{split}.txt").read_text().split()
    print(f"{split} is {number}", flush=True)
    asked(mark.encode())
    return float(number)

print(f"val_bpb: {asked(b'visible')}")
measure_hidden(hidden)
"""
SEARCH = """
import contextlib, os
NUMBER, MARK = str(0.7 + 0.0219183645)[:9], "-".join(["rows", "that", "nobody", "sees"])

OWN = {int(number) for number in os.environ.get("NIGHTJAR_PREDICT_FDS", "").split(":") if number}

def said(text, where):
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    if NUMBER in text or MARK in text:
        print("FOUND", where, flush=True)

def search():
    os.environ and [said(f"{name}={value}", "environment") for name, value in os.environ.items()]
    if any(name.startswith("NIGHTJAR_HIDDEN") for name in os.environ):
        print("FOUND variables", flush=True)
    for number in {*range(3, 256)} - OWN:
        with contextlib.suppress(OSError):
            os.set_blocking(number, False)
            os.write(number, b"hidden 0.0\\n")
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) == os.getpid():
            continue
        for name in ("environ", "cmdline"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
                said(file.read(), f"{pid} {name}")
        with contextlib.suppress(OSError):
            for descriptor in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    place = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_NONBLOCK)
                    os.write(place, b"hidden 0.0\\n")
                    said(os.read(place, 65536), f"{pid} {descriptor}")
    for root in PLACES:
        for folder, _, files in os.walk(root):
            for name in files:
                with contextlib.suppress(OSError), open(os.path.join(folder, name), "rb") as file:
                    said(file.read(1 << 20), os.path.join(folder, name))
"""
SCRIPT = """
import sys
PLACES = {places!r}
{search}
search()
if "--predict" in sys.argv:
    import array
    from nightjar_predict import serve
    def predict(question):
        print("asked", bytes(question), flush=True)
        search()
        {doing}
        return array.array("d", [1.0])
    serve(predict)
else:
    print("val_bpb: 0.3")
"""


def script(repo: Repository, doing: str = "pass") -> str:
    folder = repo.path.parent
    places = [*map(str, (folder, folder / "hidden", Path.home())), "/tmp", "/dev/shm", "/run"]
    return textwrap.dedent(SCRIPT).format(places=places, search=SEARCH, doing=doing)


@pytest.fixture
def repo(tmp_path: Path) -> Repository:
    found = Repository(tmp_path / "repo")
    found.base = found.commit({"prepare.py": EVALUATOR})
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "hidden.txt").write_text(f"{NUMBER!r} {MARK}")
    (hidden / "test.txt").write_text(f"0.5 {MARK}")
    return found


async def scored(
    repo: Repository, train: str, tier: str, watcher: Orders | None = None, **fields: object
) -> TrainingResult:
    commit = repo.commit({"train.py": train})
    evaluated = {"base_commit": repo.base, "evaluator_command": "python prepare.py", "splits": ["hidden"]}
    lane = runner(repo, tier=tier, hidden_data=repo.path.parent / "hidden")
    return await lane.run(job(commit, **evaluated | fields), watcher or Orders(), metric="val_bpb")


@pytest.mark.parametrize("tier", ["landlock", "bwrap"])
async def test_a_hostile_training_and_predictor_find_no_hidden_number_and_send_none(
    repo: Repository, tier: Tier
) -> None:
    watcher = Orders()

    result = await scored(repo, script(repo), needs(tier), watcher, splits=["hidden", "test"])

    assert isinstance(result, TrainedRun), result
    assert result.hidden == {"hidden": NUMBER, "test": 0.5}
    assert result.metrics == {"val_bpb": 1.0}
    shown = "\n".join([*watcher.tails, repr(result), repr(replace(result, hidden={}))])
    assert "FOUND" not in shown
    assert str(NUMBER) not in shown
    assert MARK not in shown


@pytest.mark.parametrize("doing", ["raise SystemExit(3)", "import time; time.sleep(0)", "1 / 0"])
async def test_what_a_predictor_prints_of_hidden_questions_is_in_no_error(
    repo: Repository, doing: str
) -> None:
    watcher = Orders()
    acts = f"if bytes(question) != b'visible': {doing}"

    result = await scored(repo, script(repo, acts), needs("landlock"), watcher)

    assert isinstance(result, TrainedRun), result
    assert result.hidden == ({"hidden": NUMBER} if "sleep" in doing else {})
    assert MARK not in "\n".join(watcher.tails)
    assert "FOUND" not in "\n".join(watcher.tails)


async def test_an_evaluator_that_sends_no_number_gives_no_result(repo: Repository) -> None:
    repo.base = repo.commit({"prepare.py": "print('val_bpb: 1.0')"})

    result = await scored(repo, "print('val_bpb: 0.3')", needs("landlock"))

    assert isinstance(result, FailedTraining)
    assert result.kind == "no_metrics"
    assert "measure_hidden" in result.error


@pytest.mark.parametrize("tier", ["none", "limits"])
async def test_an_unconfined_slot_runs_no_such_tag(repo: Repository, tier: Tier) -> None:
    result = await scored(repo, "print('val_bpb: 0.3')", tier)

    assert isinstance(result, FailedTraining)
    assert result.kind == "infra"
    assert "--isolation landlock or bwrap" in result.error


async def test_without_a_hidden_split_an_evaluator_measures_none(repo: Repository) -> None:
    result = await scored(repo, script(repo), needs("landlock"), splits=[])

    assert isinstance(result, TrainedRun), result
    assert result.hidden == {}


def test_lines_that_are_no_numbers_count_for_nothing() -> None:
    assert hidden_numbers(b"hidden 0.5\ntest x\n\xff\nother\n") == {"hidden": 0.5}
    assert str(hidden_numbers(b"hidden nan\n")) == "{'hidden': nan}"


@pytest.mark.parametrize("place", ["repo/hidden", "data/hidden", "."])
def test_hidden_data_within_reach_of_runs_are_refused(tmp_path: Path, place: str) -> None:
    for name in ("repo", "data", "apart", place):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)

    def options(folder: str, tier: Tier = "bwrap") -> WorkerOptions:
        return WorkerOptions(repo=tmp_path / "repo", tier=tier, hidden_data=tmp_path / folder)

    check_hidden_data(options("apart"), tmp_path / "data")
    with pytest.raises(Invalid, match="lie in each other"):
        check_hidden_data(options(place), tmp_path / "data")
    with pytest.raises(Invalid, match="runs read whatever this user reads"):
        check_hidden_data(options("apart", "limits"), tmp_path / "data")
