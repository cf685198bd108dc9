"""Owners lend their machines to a swarm: real workers, a real train.py, a real server, and what may die of them."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import signal
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.journeys.running import RunningLab, running_lab
from tests.workers.repository import unwatched
from tests.workers.swarm.joined import TRAIN, JoinedWorker, joined_worker

TINYLM = ROOT / "examples" / "tinylm"
DIMENSIONS: Mapping[str, Mapping[str, Any]] = {
    "LEARNING_RATE": {"dtype": "float_log", "min": 1e-4, "max": 1e-1},
    "WIDTH": {"dtype": "int", "min": 16, "max": 96},
    "OPTIMIZER": {"dtype": "categorical", "categories": ["adam", "sgd", "lion"]},
    "WARMUP": {"dtype": "float", "min": 0.0, "max": 0.5},
}
OF_TRAIN: Mapping[str, Mapping[str, Any]] = {
    "LR": {"dtype": "float_log", "min": 1e-4, "max": 1e-1},
    "LAYERS": {"dtype": "int", "min": 1, "max": 8},
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab with tokens."""
    with running_lab(tmp_path_factory.mktemp("lab")) as found:
        found.start()
        token = found.post("token/issue", name="olga", role="operator")["token"]
        found.http.headers["authorization"] = f"Bearer {token}"
        yield found


@pytest.fixture(scope="module")
def enroll_token(lab: RunningLab) -> str:
    """What owners are sent."""
    return str(lab.post("token/issue", name="friends", role="worker", kind="enroll", uses=100)["token"])


@pytest.fixture
def tag(request: pytest.FixtureRequest) -> str:
    """A swarm for each test."""
    return re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_"))[:30].strip("-")


def opened(lab: RunningLab, tag: str, dimensions: Mapping[str, Mapping[str, Any]], **policy: Any) -> None:
    """Open a swarm."""
    declared = [{"name": name, **shape} for name, shape in dimensions.items()]
    lab.post("dimension/define", tag=tag, dimensions=declared)
    lab.post("search/set-policy", tag=tag, policy=policy)


@pytest.fixture
def worker(lab: RunningLab, tmp_path: Path, tag: str) -> Iterator[JoinedWorker]:
    """A worker whose train.py is as it was, whatever died."""
    with joined_worker(tmp_path / f"w-{tag}") as found:
        yield found
        assert found.train_py.read_text() == TRAIN


def runs_of(lab: RunningLab, tag: str) -> list[dict[str, Any]]:
    """The runs of a swarm, in their order."""
    found = lab.post("experiment/history", tag=tag, limit=200)["experiments"]
    return sorted(found, key=lambda run: int(run["number"]))


def values_of(lab: RunningLab, tag: str) -> list[dict[str, Any]]:
    """The runs of a swarm that ended with a value."""
    return [run for run in runs_of(lab, tag) if run["val_bpb"] is not None]


def handed_out(lab: RunningLab, tag: str, status: str = "running") -> dict[str, Any]:
    """The newest run of a swarm, once it has this status."""

    def newest() -> dict[str, Any] | None:
        runs = runs_of(lab, tag)
        return runs[-1] if runs and runs[-1]["status"] == status else None

    found: dict[str, Any] = lab.until(newest, f"a run of {tag} is {status}")
    return found


class Watch:
    """Reads every train.py that workers run, while they run it."""

    def __init__(self, *workers: JoinedWorker) -> None:
        self._workers = workers
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.seen: dict[str, str] = {}

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.05):
            for worker in self._workers:
                for script in worker.data.glob("work/*/*@*@*/tree/train.py"):
                    try:
                        text = script.read_text()
                    except OSError:
                        continue  # its run has just ended
                    if text.endswith("main()\n"):
                        self.seen[script.parts[-3].partition("@")[0]] = text


def expected(original: str, delta: Mapping[str, object], budget: int) -> str:
    """A train.py with these constants, written by other means; its seed is not looked at."""
    for name, value in {**delta, "TOTAL_WALL_CLOCK_TIME": budget}.items():
        before = re.search(rf"(?m)^{name} = (\S+)", original)
        assert before is not None, name
        if ast.literal_eval(before[1]) != value:
            original = original.replace(before[0], f"{name} = {value!r}")
    return re.sub(r"(?m)^SEED = \d+", "SEED = N", original)


def test_two_workers_share_a_swarm_and_run_exactly_what_it_says(
    lab: RunningLab, tmp_path: Path, tag: str, enroll_token: str
) -> None:
    policy = {"keep_rule": "strict", "budgets.base_s": 1, "belief.evidence": "baseline"}
    opened(lab, tag, DIMENSIONS, **policy)
    original = (TINYLM / "train.py").read_text()
    original = original.replace("TOTAL_WALL_CLOCK_TIME = 5\n", "TOTAL_WALL_CLOCK_TIME = 1\n")
    with ExitStack() as stack:
        workers = [stack.enter_context(joined_worker(tmp_path / f"{tag}-{n}")) for n in (1, 2)]
        for worker in workers:
            shutil.copy(TINYLM / "prepare.py", worker.home)
            worker.train_py.write_text(original)
        watch = stack.enter_context(Watch(*workers))
        for worker in workers:
            worker.join(
                *("--url", f"http://127.0.0.1:{lab.port}", "--worker-id", worker.home.parent.name),
                *("--train-py", str(worker.train_py), "--tag", tag, "--max-runs", "1"),
                *("--baseline-runs", "1"),
                NIGHTJAR_ENROLL_TOKEN=enroll_token,
            )
        assert [worker.ended() for worker in workers] == [0, 0], [worker.said for worker in workers]

        assert all("(1 run of 1 s)" in worker.said for worker in workers)
        assert all(worker.train_py.read_text() == original for worker in workers)
    runs = runs_of(lab, tag)
    assert len(runs) == 2
    assert {run["owner"] for run in runs} == {f"{tag}-1", f"{tag}-2"}
    for run in runs:
        found = unwatched(re.sub(r"(?m)^SEED = \d+", "SEED = N", watch.seen[run["experiment_id"]]))
        assert found == expected(original, run["config_delta"], 1)
        assert run["val_bpb"] is not None


def test_a_server_that_restarts_in_the_middle_of_a_run_loses_nothing_of_it(
    tmp_path: Path, worker: JoinedWorker, tag: str
) -> None:
    with running_lab(tmp_path / "lab") as lab:
        lab.start()
        opened(lab, tag, OF_TRAIN, **{"budgets.base_s": 4})
        worker.first_join(f"http://127.0.0.1:{lab.port}", "--tag", tag, "--max-runs", "2")
        worker.script()
        first = handed_out(lab, tag)["experiment_id"]

        lab.stop()
        worker.until((worker.data / "results" / f"{first}.json").exists, "the result waits")
        lab.start()

        assert worker.ended() == 0
        runs = runs_of(lab, tag)
        assert [run["val_bpb"] for run in runs] == [run["config_delta"]["LR"] for run in runs]
        assert len(runs) == 2
        assert not list((worker.data / "results").glob("*.json"))


PAGE = (ROOT / "docs" / "workers.md").read_text().split("## In a swarm")[1].split("\n## ")[0]


def test_the_commands_of_a_worker_owner_s_page_do_what_they_say(
    lab: RunningLab, tmp_path: Path, enroll_token: str
) -> None:
    [block] = re.findall(r"(?s)```bash\n(.*?)```", PAGE)
    export, first = re.findall(r"(?m)^(?:\./nightjar join)? ?(.*)$", block.strip())
    assert export == "export NIGHTJAR_ENROLL_TOKEN=nj_..."
    assert "`./nightjar join` is enough" in PAGE
    opened(lab, "swarm", OF_TRAIN, keep_rule="strict", **{"budgets.base_s": 1})
    with joined_worker(tmp_path / "owner", TRAIN.replace("= 300", "= 1")) as worker:
        home = worker.home.rename(worker.home.with_name("my-project")).parent
        worker.home, worker.train_py = home, home / "my-project" / "train.py"
        worker.data = home / ".local/state/nightjar/swarm" / f"127.0.0.1-{lab.port}" / "ann-4090"
        own = {"HOME": str(home), "XDG_STATE_HOME": "", "NIGHTJAR_DATA": ""}
        words = first.replace("https://swarm.example.org", f"http://127.0.0.1:{lab.port}")

        def leaves_after(count: int) -> None:
            """So many runs have values; the first Ctrl-C ends it."""
            lab.until(lambda: len(values_of(lab, "swarm")) >= count, f"{count} runs")
            worker.signal(signal.SIGINT)
            assert worker.ended() == 0, worker.said

        worker.join(
            *(word.replace("~", str(home)) for word in shlex.split(words)),
            **own,
            NIGHTJAR_ENROLL_TOKEN=enroll_token,
        )
        leaves_after(1)
        before = len(values_of(lab, "swarm"))
        worker.join(**own)
        leaves_after(before + 1)

        assert "(3 runs of 1 s)" in worker.said
        assert stat.S_IMODE((worker.data / "joined.json").stat().st_mode) == 0o600
    [ann] = lab.get("swarm/workers")["workers"]
    assert (ann["worker_id"], ann["contact"], ann["active"]) == ("ann-4090", "ann@example.org", 0)
    assert all(run["val_bpb"] == run["config_delta"]["LR"] for run in values_of(lab, "swarm"))
