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

import httpx
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
LONG_S = 800.0
"""For thirty runs one after the other on a busy machine."""

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]


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


def run_named(lab: RunningLab, name: str) -> dict[str, Any]:
    """One run."""
    found: dict[str, Any] = lab.get(f"experiment/{name}")["experiment"]
    return found


def handed_out(lab: RunningLab, tag: str, status: str = "running") -> dict[str, Any]:
    """The newest run of a swarm, once it has this status."""

    def newest() -> dict[str, Any] | None:
        runs = runs_of(lab, tag)
        return runs[-1] if runs and runs[-1]["status"] == status else None

    found: dict[str, Any] = lab.until(newest, f"a run of {tag} is {status}")
    return found


def as_worker(lab: RunningLab, worker: JoinedWorker) -> httpx.Client:
    """A client with this worker's own token."""
    token = worker.kept()["token"]
    return httpx.Client(
        base_url=f"http://127.0.0.1:{lab.port}", headers={"x-worker-token": token}, timeout=60
    )


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


@pytest.mark.parametrize(
    ("each", "base_s"), [(1, 1), pytest.param(15, 5, marks=pytest.mark.long, id="thirty-runs")]
)
def test_two_workers_share_a_swarm_and_run_exactly_what_it_says(
    lab: RunningLab, tmp_path: Path, tag: str, enroll_token: str, each: int, base_s: int
) -> None:
    policy = {"budgets.base_s": base_s, "stopping.warmup_runs": 8, "belief.evidence": "baseline"}
    opened(lab, tag, DIMENSIONS, keep_rule="strict", **policy)
    original = (TINYLM / "train.py").read_text()
    original = original.replace("TOTAL_WALL_CLOCK_TIME = 5\n", f"TOTAL_WALL_CLOCK_TIME = {base_s}\n")
    with ExitStack() as stack:
        workers = [stack.enter_context(joined_worker(tmp_path / f"{tag}-{n}")) for n in (1, 2)]
        for worker in workers:
            shutil.copy(TINYLM / "prepare.py", worker.home)
            worker.train_py.write_text(original)
        watch = stack.enter_context(Watch(*workers))
        for worker in workers:
            worker.join(
                *("--url", f"http://127.0.0.1:{lab.port}", "--worker-id", worker.home.parent.name),
                *("--train-py", str(worker.train_py), "--tag", tag, "--max-runs", str(each)),
                *("--baseline-runs", "1"),
                NIGHTJAR_ENROLL_TOKEN=enroll_token,
            )
        assert [worker.ended(LONG_S) for worker in workers] == [0, 0], [worker.said for worker in workers]

        assert all(f"(1 run of {base_s} s)" in worker.said for worker in workers)
        assert all(worker.train_py.read_text() == original for worker in workers)
    runs = runs_of(lab, tag)
    assert len(runs) == 2 * each
    assert {run["owner"] for run in runs} == {f"{tag}-1", f"{tag}-2"}
    for run in runs:
        found = unwatched(re.sub(r"(?m)^SEED = \d+", "SEED = N", watch.seen[run["experiment_id"]]))
        assert found == expected(original, run["config_delta"], base_s)
    stopped = [run for run in runs if run["status"] == "stopped"]
    assert all(0 < run["last_progress"] < 1 for run in stopped)
    for run in runs:
        assert (run["val_bpb"] is None) == (run["status"] in ("stopped", "crash"))
    if each > 10:
        assert stopped
        best = lab.http.get("/leaderboard", params={"tag": tag}).json()[0]
        assert best["best_delta_bpb"] < 0


def test_a_swarm_stops_what_ranks_last(
    lab: RunningLab, worker: JoinedWorker, tag: str, enroll_token: str
) -> None:
    stopping = {
        "keep_rule": "strict",
        "stopping.rule": "median",
        "stopping.warmup_runs": 2,
        "stopping.min_peers": 1,
        "belief.evidence": "baseline",
    }
    opened(lab, tag, OF_TRAIN, **{"budgets.base_s": 1}, **stopping)

    worker.first_join(
        *(f"http://127.0.0.1:{lab.port}", "--tag", tag, "--max-runs", "8"), NIGHTJAR_ENROLL_TOKEN=enroll_token
    )

    assert worker.ended() == 0
    runs = runs_of(lab, tag)
    stopped = [run for run in runs if run["status"] == "stopped"]
    whole = [run for run in runs if run["val_bpb"] is not None]
    assert len(stopped) + len(whole) == 8
    assert stopped
    assert all(0.15 <= run["last_progress"] < 1 for run in stopped)
    assert len(re.findall(r"(?m)^\S+: stopped early\. ", worker.said)) == len(stopped)
    assert all(run["val_bpb"] == run["config_delta"]["LR"] for run in whole)
    assert all(run["delta_bpb"] == run["val_bpb"] - 1 for run in whole)


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


def test_a_run_whose_worker_is_killed_in_its_middle_is_taken_up_again_and_counts_once(
    lab: RunningLab, tmp_path: Path, tag: str, enroll_token: str
) -> None:
    opened(lab, tag, OF_TRAIN, **{"budgets.base_s": 1})
    go = tmp_path / "go"
    waits = f"import os\nwhile not os.path.exists({str(go)!r}):\n    time.sleep(0.02)\nbegun ="
    with joined_worker(tmp_path / "killed", TRAIN.replace("begun =", waits)) as worker:
        url = f"http://127.0.0.1:{lab.port}"
        options = ("--tag", tag, "--isolation", "limits")
        worker.first_join(url, *options, NIGHTJAR_ENROLL_TOKEN=enroll_token)
        script = worker.script()
        name = handed_out(lab, tag)["experiment_id"]

        worker.kill()
        worker.until(lambda: not script.is_running(), "its run ends with it")
        go.touch()
        worker.join("--max-runs", "1")

        assert worker.ended() == 0, worker.said
        [run] = runs_of(lab, tag)
        assert (run["experiment_id"], run["val_bpb"]) == (name, run["config_delta"]["LR"])
        assert lab.http.get("/health", params={"tag": tag}).json()["experiments"] == 1
        assert not list((worker.data / "results").glob("*.json"))


def test_a_result_counts_once_whenever_it_comes(
    lab: RunningLab, worker: JoinedWorker, tag: str, enroll_token: str
) -> None:
    opened(lab, tag, OF_TRAIN, **{"budgets.base_s": 60})
    worker.first_join(*(f"http://127.0.0.1:{lab.port}", "--tag", tag), NIGHTJAR_ENROLL_TOKEN=enroll_token)
    worker.script()
    name = handed_out(lab, tag)["experiment_id"]
    lab.until(lambda: run_named(lab, name)["last_progress"] is not None, f"{name} reports")

    assert lab.http.delete(f"/runs/{name}", params={"reason": "it is enough"}).is_success
    lab.until(lambda: run_named(lab, name)["status"] == "stopped", f"{name} is stopped")
    worker.until(lambda: f"{name}: stopped early" in worker.said, "its worker hands that in")
    worker.script()
    worker.leave_at_once()
    assert worker.ended() == 0
    assert runs_of(lab, tag)[-1]["status"] == "lost"

    before = run_named(lab, name)
    assert 0 < before["last_progress"] < 1
    with as_worker(lab, worker) as client:
        late = {"worker_id": worker.kept()["name"], "exp_id": name, "val_bpb": 0.5, "duration_seconds": 60.0}
        answers = [client.post("/result", json=late).json() for _ in range(2)]
    assert answers[0] == answers[1]
    assert run_named(lab, name)["status"] == "stopped"
    assert run_named(lab, name)["val_bpb"] == before["val_bpb"]


def test_a_result_of_a_run_that_was_given_up_counts(
    lab: RunningLab, worker: JoinedWorker, tag: str, enroll_token: str
) -> None:
    opened(lab, tag, OF_TRAIN, **{"budgets.base_s": 2, "stale_after_s": 1})
    worker.first_join(
        *(f"http://127.0.0.1:{lab.port}", "--tag", tag, "--max-runs", "1"), NIGHTJAR_ENROLL_TOKEN=enroll_token
    )
    worker.script()
    name = handed_out(lab, tag)["experiment_id"]
    assert worker.running is not None

    worker.running.send_signal(signal.SIGSTOP)  # it sleeps with its lid closed
    lab.until(lambda: run_named(lab, name)["status"] == "lost", f"{name} is given up")
    worker.running.send_signal(signal.SIGCONT)

    assert worker.ended() == 0
    run = run_named(lab, name)
    assert (run["status"], run["val_bpb"]) == ("keep", run["config_delta"]["LR"])


def test_an_enroll_token_is_enough_to_measure_the_baseline_with_the_budget_of_the_swarm(
    lab: RunningLab, worker: JoinedWorker, tag: str, enroll_token: str
) -> None:
    opened(lab, tag, OF_TRAIN, keep_rule="strict", **{"budgets.base_s": 1})

    worker.join(
        *("--url", f"http://127.0.0.1:{lab.port}", "--worker-id", worker.home.parent.name, "--tag", tag),
        *("--train-py", str(worker.train_py), "--baseline-runs", "2", "--max-runs", "1"),
        NIGHTJAR_ENROLL_TOKEN=enroll_token,
    )

    lab.until(lambda: "baseline 1 of 2" in worker.said, "it measures its baseline")
    [budget] = re.findall(r"baseline 1 of 2: .*, (\d+) s\n", worker.said)
    assert budget == "1"  # the script's own is 300 s
    assert worker.ended() == 0, worker.said
    assert "measured anew" not in worker.said


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


NAN = """
from nightjar_report import report

LR = 0.001
LAYERS = 2

value = 1.0 if {finite} else float("nan")
for fifth in range(1, 6):
    report(value, fifth / 5)
print(f"val_bpb: {{value}}")
"""
"""A script that measures 1.0, or nothing, at once."""


def test_runs_that_measure_nan_are_crashes_and_the_swarm_goes_on(
    lab: RunningLab, tmp_path: Path, tag: str, enroll_token: str
) -> None:
    opened(lab, tag, OF_TRAIN, keep_rule="strict")
    url = f"http://127.0.0.1:{lab.port}"
    with joined_worker(tmp_path / "odd", NAN.format(finite="LR == 0.001")) as odd:
        odd.join(
            *("--url", url, "--worker-id", "odd", "--train-py", str(odd.train_py), "--tag", tag),
            *("--baseline-runs", "1", "--max-runs", "4"),
            NIGHTJAR_ENROLL_TOKEN=enroll_token,
        )
        assert odd.ended() == 0, odd.said
    body = {"worker_id": "even", "gpu_type": "H100", "baseline_bpb": 1.0, "tag": tag}
    welcome = lab.http.post("/register", json=body | {"enroll_token": enroll_token}).json()
    by = {"x-worker-token": welcome["worker_token"]}
    given = lab.http.get("/next_config/even", headers=by).json()
    sent = {"worker_id": "even", "exp_id": given["exp_id"], "val_bpb": 1.0, "duration_seconds": 1.0}
    assert lab.http.post("/result", json=sent, headers=by).json() == {"ok": True, "total_experiments": 1}

    *crashed, whole = runs_of(lab, tag)
    assert len(crashed) == 4  # one more than a tag of agents may have in a row
    for run in crashed:
        assert (run["status"], run["val_bpb"], run["last_metric"]) == ("crash", None, None)
        assert run["error"].startswith("nan: ")
    assert (whole["owner"], whole["val_bpb"], whole["delta_bpb"]) == ("even", 1.0, 0.0)
    assert lab.post("lab/audit")["violations"] == []
