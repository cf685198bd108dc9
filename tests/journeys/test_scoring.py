"""A tag whose score is measured by its evaluator, through a whole lab."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.commands import nightjar
from tests.journeys.running import FAST, TRAIN, RunningLab, running_lab

EVALUATOR = """
OFFSET = 0.0

def score():
    import struct, time
    from nightjar_evaluator import Predictor
    with Predictor("train.py", "--predict") as ask:
        time.sleep(SECONDS)
        return ask(struct.pack("4B", 1, 2, 3, 4), (1,))[0]

SECONDS = 1.0
if __name__ == "__main__":
    print(f"val_bpb: {score()}")
"""
PREDICTS = """
import sys
if "--predict" in sys.argv:
    import array
    from nightjar_predict import serve
    serve(lambda question: array.array("d", [VALUE + sum(question) / 100]))
    raise SystemExit
"""


def training(value: float, *, printed: float) -> str:
    """A script whose predictor is worth one value, and which prints another."""
    head, _, rest = TRAIN.partition("begun =")
    script = f"{head.replace('VALUE = 1.0', f'VALUE = {value}')}{PREDICTS}\nbegun ={rest}"
    return script.replace("{VALUE + prepare.OFFSET}", str(printed))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with running_lab(tmp_path_factory.mktemp("lab"), FAST) as found:
        found.base = found.commit({"prepare.py": EVALUATOR, "train.py": training(0.9, printed=0.9)})
        found.start()
        yield found


def test_what_a_run_prints_is_kept_beside_its_true_score_which_decides(lab: RunningLab) -> None:
    tag = "judged"
    lab.setup(tag, {"evaluator_command": "python prepare.py"})
    honest = lab.until_status(lab.submit(tag), "keep")["experiment"]
    liar = lab.submit(tag, commit_sha=lab.commit({"train.py": training(0.95, printed=0.3)}))

    found = lab.until_status(liar, "discard")

    e = found["experiment"]
    assert (honest["val_bpb"], honest["reported"], honest["score"]) == (1.0, 0.9, "trusted")
    assert (e["val_bpb"], e["reported"], e["score"]) == (1.05, 0.3, "trusted")
    assert e["evaluator_hash"] == honest["evaluator_hash"]
    assert "val_bpb: 0.3" in found["log_tail"]
    assert "[the evaluator]\nval_bpb: 1.05" in found["log_tail"]
    assert lab.post("experiment/best", tag=tag)["best"]["val_bpb"] == 1.0
    waited = nightjar(lab.data, "wait", liar)
    assert "discard  1.050000 (train.py printed 0.300000)" in waited.stdout
    side = lab.post("report/diff", experiment_a=honest["experiment_id"], experiment_b=liar)["b"]
    assert (side["val_bpb"], side["reported"]) == (1.05, 0.3)
    retest = lab.post("experiment/retest", experiment_id=liar)["retest_id"]
    lab.until_status(retest, "measured")
    [again] = lab.get(f"experiment/{liar}")["retests"]
    assert (again["val_bpb"], again["reported"], again["score"]) == (1.05, 0.3, "trusted")
    assert lab.post("lab/audit")["violations"] == []


def test_a_killed_worker_leaves_nothing_of_a_scoring(lab: RunningLab) -> None:
    slow = training(0.9, printed=0.9).replace("serve(", "import time; time.sleep(600); serve(")
    lab.setup("killed", {"evaluator_command": "python prepare.py"})
    name = lab.submit("killed", commit_sha=lab.commit({"train.py": slow}))
    evaluator, predictor = lab.process("score.py"), lab.process("train.py", "--predict")

    worker = evaluator.parent()
    assert worker is not None
    worker.kill()

    lab.until(lambda: not evaluator.is_running() and not predictor.is_running(), "both are gone")
    lab.until(lambda: lab.get(f"experiment/{name}")["experiment"]["attempt"] == 2, "it runs again")
    lab.post("experiment/stop", experiment_id=name)
    lab.until_status(name, "stopped")
    lab.until_idle()
