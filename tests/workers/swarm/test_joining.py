"""A worker keeps to the published routes, whatever a server answers and whatever dies."""

from __future__ import annotations

import json
import re
import signal
import stat
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from functions.formats.digits import decimals
from tests.workers.swarm.joined import TRAIN, JoinedWorker, joined_worker
from tests.workers.swarm.published import Reply, Swarm, assignment, problem, serving

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]


@pytest.fixture
def swarm() -> Iterator[Swarm]:
    with serving(Swarm()) as found:
        yield found


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[JoinedWorker]:
    with joined_worker(tmp_path / "w1") as found:
        yield found
        assert found.train_py.read_text() == TRAIN


def test_an_assignment_is_run_with_exactly_its_constants_and_reported(
    swarm: Swarm, worker: JoinedWorker
) -> None:
    delta = {"LR": 0.0003, "LAYERS": 4, "OPTIMIZER": "sgd"}
    swarm.todo = [assignment("swarm-1", delta)]
    swarm.dimensions = ["LR", "LAYERS", "OPTIMIZER"]
    paused = (503, {"title": "Service unavailable", "detail": "the tag is paused", "retry_after": 1})
    swarm.refusals["next_config"] = [paused]

    worker.runs(swarm.url, "--max-runs", "1", "--gpu-type", "H200", "--contact", "me", "--tag", "t")
    expected = {"worker_id": "w1", "gpu_type": "H200", "baseline_bpb": 1.0, "contact": "me", "tag": "t"}
    assert swarm.registered == [expected]
    (result,) = swarm.results
    assert 1 <= result.pop("duration_seconds") < 60
    assert result.pop("cpu_seconds") > 0
    assert result == {
        "worker_id": "w1",
        "exp_id": "swarm-1",
        "config": delta,
        "config_delta": delta,
        "val_bpb": 0.0003,
        "delta_bpb": 0.0003 - 1.0,
    }
    assert all(tick["d"] == tick["m"] - 1.0 for tick in swarm.ticks)
    assert any(tick["p"] > 0.1 for tick in swarm.ticks)
    assert "Welcome w1! You are worker #1.\n# the program\n" in worker.said
    assert "the tag is paused; asking again in 1 s" in worker.said
    assert (worker.data / "program.md").read_text() == "# the program\n"


UNMODIFIED = """
import time

TOTAL_WALL_CLOCK_TIME = 300
LR = 0.001

for percent in range(11):
    print(f"\\rstep {percent:05d} ({percent:.1f}%) | loss: {9 - percent:.6f} | lrm: 1.00    ", end="", flush=True)
while True:
    time.sleep(0.05)
"""
"""It knows nothing of report."""


def test_a_script_that_only_prints_its_progress_is_stopped_where_the_swarm_reads_it(
    swarm: Swarm, tmp_path: Path
) -> None:
    swarm.todo = [assignment("swarm-1", budget=120) | {"tick_source": "stdout"}]
    swarm.on_tick = lambda tick: (
        {"action": "stop", "reason": "it is among the last"} if tick["p"] > 0.07 else {}
    )

    with joined_worker(tmp_path / "w1", UNMODIFIED) as worker:
        worker.runs(swarm.url, "--max-runs", "1")
    assert swarm.ticks[-1] == {"id": "swarm-1", "p": 0.08, "m": 1.0, "tick_source": "stdout"}
    (result,) = swarm.results
    assert (result["val_bpb"], "error" in result) == (None, False)
    assert "unless it prints lines `step 00123 (12.3%) | loss: 2.34 |`" in worker.said


def test_a_run_that_is_extended_trains_longer_where_its_script_reads_the_budget(
    swarm: Swarm, tmp_path: Path
) -> None:
    source = TRAIN.replace("import time\n", "import time\nimport nightjar_report\n")
    source = source.replace("- begun) < TOTAL_WALL_CLOCK_TIME:", "- begun) < nightjar_report.budget_s:")
    swarm.todo = [assignment("swarm-1", budget=1)]
    swarm.on_tick = lambda tick: {"action": "extend", "budget": 2}

    with joined_worker(tmp_path / "w1", source) as worker:
        worker.runs(swarm.url, "--max-runs", "1")
    assert max(tick["p"] for tick in swarm.ticks) > 1.05
    assert swarm.results[0]["val_bpb"] == 0.001


def test_ticks_that_are_not_answered_or_refused_never_stop_a_run(swarm: Swarm, worker: JoinedWorker) -> None:
    swarm.todo = [assignment("swarm-1", budget=2)]
    swarm.refusals["tick"] = [
        problem(500, "Service unavailable"),
        problem(404, "Not found"),
        (200, {"action": 7}),
    ]
    late: list[float] = []

    def silent(tick: dict[str, Any]) -> dict[str, Any]:
        late.append(tick["p"])
        time.sleep(5.0)
        return {"action": "stop", "reason": "nobody hears it"}

    swarm.on_tick = silent
    worker.runs(swarm.url, "--max-runs", "1")
    assert swarm.results[0]["val_bpb"] == 0.001
    assert late


def test_a_result_that_is_refused_is_put_aside_and_the_worker_goes_on(
    swarm: Swarm, worker: JoinedWorker
) -> None:
    swarm.todo = [assignment("swarm-1", {"LR": 0.5}), assignment("swarm-2", {"LR": 0.25})]
    swarm.refusals["result"] = [problem(409, "Conflict")]
    first = swarm.todo[0]

    def forget(tick: dict[str, Any]) -> dict[str, Any]:
        swarm.todo = [given for given in swarm.todo if given != first]
        return {}

    swarm.on_tick = forget
    worker.runs(swarm.url, "--max-runs", "2")
    assert [result["exp_id"] for result in swarm.results] == ["swarm-2"]
    aside = worker.data / "results" / "refused" / "swarm-1.json"
    assert '"val_bpb": 0.5' in aside.read_text()
    assert f"swarm-1 was not taken: so it is. It is kept in {aside}" in worker.said


def test_a_result_outlives_a_server_that_is_away_and_a_worker_that_is_killed(
    swarm: Swarm, worker: JoinedWorker
) -> None:
    swarm.todo = [assignment("swarm-1", {"LR": 0.5})]
    swarm.refusals["result"] = [problem(503, "Service unavailable", "restarting", retry_after=1)] * 1000
    worker.first_join(swarm.url)
    spooled = worker.data / "results" / "swarm-1.json"
    worker.until(spooled.exists, "the result is written down")

    worker.kill()
    swarm.refusals.clear()
    worker.join("--max-runs", "1")
    worker.until(lambda: swarm.results, "the result is handed in")

    assert swarm.results[0]["val_bpb"] == 0.5
    worker.signal(signal.SIGINT)
    assert worker.ended() == 0
    assert not spooled.exists()


def test_a_worker_waits_for_its_server_before_it_leaves_unless_its_owner_is_in_a_hurry(
    swarm: Swarm, worker: JoinedWorker
) -> None:
    away = problem(503, "Service unavailable", "restarting", retry_after=1)
    swarm.todo = [assignment("swarm-1", {"LR": 0.5})]
    swarm.refusals["result"] = [away] * 4
    worker.runs(swarm.url, "--max-runs", "1")
    assert swarm.results[0]["val_bpb"] == 0.5

    swarm.todo = [assignment("swarm-2", {"LR": 0.5})]
    swarm.refusals["result"] = [away] * 1000
    worker.join("--max-runs", "1")
    worker.until(lambda: (worker.data / "results" / "swarm-2.json").exists(), "its result waits")
    worker.signal(signal.SIGINT)

    assert worker.ended() == 0
    assert "results that wait here: 1; the next `nightjar join` hands them in" in worker.said


def test_a_second_start_needs_no_flags_and_a_worker_that_is_forgotten_registers_anew(
    swarm: Swarm, worker: JoinedWorker
) -> None:
    swarm.todo = [assignment("swarm-1")]
    worker.runs(swarm.url, "--max-runs", "1", NIGHTJAR_ENROLL_TOKEN="team")

    swarm.todo = [assignment("swarm-2")]
    worker.join("--max-runs", "1")

    assert worker.ended() == 0
    assert [result["exp_id"] for result in swarm.results] == ["swarm-1", "swarm-2"]
    assert [request.get("enroll_token") for request in swarm.registered] == ["team"]
    assert stat.S_IMODE((worker.data / "joined.json").stat().st_mode) == 0o600
    assert worker.kept()["token"] == "nj_w"
    assert "team" not in (worker.data / "joined.json").read_text() + worker.said
    assert "nj_w" not in worker.said

    swarm.todo = [assignment("swarm-3")]
    swarm.refusals["sync"] = [problem(401, "Unauthenticated")]
    worker.join("--max-runs", "1")

    assert worker.ended() == 0
    assert "does not know this worker any more (so it is): it registers anew" in worker.said
    assert swarm.bearers == [None, None]
    assert [result["exp_id"] for result in swarm.results] == ["swarm-1", "swarm-2", "swarm-3"]


def test_ctrl_c_in_the_baseline_of_a_worker_that_was_refused_keeps_its_results(
    swarm: Swarm, tmp_path: Path
) -> None:
    revoked = problem(401, "Unauthenticated", "the token was revoked")
    swarm.todo = [assignment("swarm-1")]
    with joined_worker(tmp_path / "w1") as worker:
        worker.runs(swarm.url, "--max-runs", "1")
        (worker.data / "results" / "swarm-2.json").write_text(
            json.dumps({"function": "swarm::result", "request": swarm.results[0]})
        )
        worker.train_py.write_text(TRAIN.replace("LAYERS = 2", "LAYERS = 3"))
        swarm.refusals = {"sync": [revoked], "result": [revoked]}
        worker.join()
        worker.until(lambda: "baseline 1 of 3" in worker.said, "its baseline is measured anew")
        worker.script()

        worker.signal(signal.SIGINT)

        assert worker.ended() == 0
        assert "does not know this worker any more (the token was revoked)" in worker.said
        assert "results that wait here: 1; the next `nightjar join` hands them in" in worker.said


def test_the_first_ctrl_c_finishes_the_run(swarm: Swarm, worker: JoinedWorker) -> None:
    swarm.todo = [assignment("swarm-1", budget=3), assignment("swarm-2")]
    worker.first_join(swarm.url)
    worker.script()

    worker.signal(signal.SIGINT)

    assert worker.ended() == 0
    assert [(result["exp_id"], result["val_bpb"]) for result in swarm.results] == [("swarm-1", 0.001)]
    assert "swarm-1 is finished first, then I leave; Ctrl-C again gives it back now" in worker.said


def test_the_second_ctrl_c_gives_the_run_back(swarm: Swarm, worker: JoinedWorker) -> None:
    swarm.todo = [assignment("swarm-1", budget=120)]
    worker.first_join(swarm.url)
    script, first = worker.script(), worker.running

    worker.join()  # two processes are not one worker

    assert worker.ended() == 1
    assert "another worker runs with the data directory" in worker.said
    worker.running = first

    worker.leave_at_once()

    assert worker.ended() == 0
    assert [(result["exp_id"], result["error"]) for result in swarm.results] == [("swarm-1", "returned")]
    assert "swarm-1 is ended, and given back" in worker.said
    assert not script.is_running()


def test_a_worker_that_was_killed_leaves_no_run_and_takes_its_assignment_up_again(
    swarm: Swarm, worker: JoinedWorker
) -> None:
    swarm.todo = [assignment("swarm-1", {"LR": 0.5}, budget=120)]
    worker.first_join(swarm.url)
    script = worker.script()

    worker.kill()

    worker.until(lambda: not script.is_running(), "its run ends with it")
    assert worker.train_py.read_text() == TRAIN
    swarm.todo = [assignment("swarm-1", {"LR": 0.5})]
    worker.join("--max-runs", "1")
    assert worker.ended() == 0
    assert [(result["exp_id"], result["val_bpb"]) for result in swarm.results] == [("swarm-1", 0.5)]
    assert list((worker.data / "work").glob("*/*")) == []


def test_a_run_over_its_time_is_a_timeout(swarm: Swarm, tmp_path: Path) -> None:
    source = "import time\nLR = 0.1\ntime.sleep(600)\n"
    swarm.todo = [assignment("swarm-1", budget=-29)]  # 2 x -29 + 60: two seconds

    with joined_worker(tmp_path / "w1", source) as worker:
        worker.runs(swarm.url, "--max-runs", "1")
        assert "it has no TOTAL_WALL_CLOCK_TIME" in worker.said
        assert "it calls no report: bad runs are not stopped early" in worker.said
    assert swarm.results[0]["error"] == "TIMEOUT"


def test_the_baseline_is_measured_at_the_swarm_s_budget_and_shown_with_its_spread(
    swarm: Swarm, tmp_path: Path
) -> None:
    source = TRAIN.replace("LAYERS = 2", "LAYERS = 2\nSEED = 1").replace("{LR}", "{LR + SEED % 7}")
    swarm.base_s = 1.0

    with joined_worker(tmp_path / "w1", source) as worker:
        worker.join("--url", swarm.url, "--worker-id", "w1", "--train-py", str(worker.train_py))
        worker.until(lambda: swarm.registered, "it has registered")
        worker.signal(signal.SIGINT)

        assert worker.ended() == 0
        found = re.findall(r"^  val_bpb (\d+\.\d+) in \d+ s$", worker.said, re.MULTILINE)
        mean, sigma = statistics.fmean(map(float, found)), statistics.stdev(map(float, found))
        assert float(found[0]) == 1.001
        assert len(set(found)) > 1
        told = ", sigma ".join(f"{value:.{decimals(sigma)}f}" for value in (mean, sigma))
        assert f"baseline: val_bpb {told} (3 runs of 1 s)" in worker.said
    assert swarm.registered[0]["baseline_bpb"] == pytest.approx(mean)


def test_a_script_without_a_constant_on_trial_runs_what_does_not_name_it_and_hands_the_rest_back(
    swarm: Swarm, worker: JoinedWorker
) -> None:
    swarm.todo = [assignment("swarm-1", {"LR": 0.01, "WARMUP": 0.2}), assignment("swarm-2", {"LR": 0.02})]
    swarm.dimensions, swarm.on_trial = ["LR"], {"WARMUP": 0.0}

    worker.runs(swarm.url, "--max-runs", "2")
    told = "tries WARMUP, which train.py has no constant for: to take part, add `WARMUP = 0.0`"
    assert worker.said.count(told) == 1
    back, ran = swarm.results
    assert (back["val_bpb"], back["error"]) == (None, "no such constant: WARMUP")
    assert (ran["val_bpb"], "error" in ran) == (0.02, False)


def test_a_worker_leaves_once_every_config_names_a_constant_that_its_script_has_not(
    swarm: Swarm, worker: JoinedWorker
) -> None:
    swarm.todo = [assignment("swarm-1", {"LR": 0.01}, budget=2), assignment("swarm-2", {"LR": 0.02})]
    swarm.dimensions, swarm.on_trial = ["LR"], {"WARMUP": 0.0}

    def promoted(tick: dict[str, Any]) -> dict[str, Any]:
        swarm.dimensions, swarm.on_trial = ["LR", "WARMUP"], {}
        return {}

    swarm.on_tick = promoted

    worker.first_join(swarm.url)

    assert worker.ended() == 1
    assert "varies what train.py has no constant for: WARMUP" in worker.said
    assert [result["val_bpb"] for result in swarm.results] == [0.01]


def test_a_server_that_refuses_the_worker_ends_it_with_its_own_words(
    swarm: Swarm, worker: JoinedWorker
) -> None:
    swarm.refusals["register"] = [problem(401, "Unauthenticated", "Invalid enroll token")]

    worker.first_join(swarm.url, NIGHTJAR_ENROLL_TOKEN="wrong")

    assert worker.ended() == 1
    assert "nightjar: Invalid enroll token" in worker.said


DRAFT = {"spec_id": "s-1", "program_md": "# the draft\n", "confidence": 0.9, "deployment_confidence": 0.8}


def stands(state: str | None, *, deploys: bool = False, flushed: str | None = None) -> Reply:
    """What a server says of its draft."""
    spec_id = None if state is None else "s-1"
    return 200, {
        "spec_state": state,
        "spec_id": spec_id,
        "deploy_allowed": deploys,
        "last_flush_token": flushed,
    }


class Programs:
    """What a worker follows in each run, while the server's pipeline goes on from one to the next."""

    def __init__(
        self, swarm: Swarm, worker: JoinedWorker, *states: tuple[Reply, dict[str, Any] | None]
    ) -> None:
        self.seen: dict[str, str] = {}
        self.renewed: dict[str, str] = {}
        """What the swarm's own program is from a run on."""
        self._swarm, self._worker, self._states = swarm, worker, states
        swarm.todo = [assignment(f"swarm-{n}") for n in range(1, len(states) + 1)]
        swarm.pipeline, swarm.draft = states[0]
        swarm.on_tick = self._on_tick

    def _on_tick(self, tick: dict[str, Any]) -> dict[str, Any]:
        self._swarm.program = self.renewed.get(tick["id"], self._swarm.program)
        if tick["id"] not in self.seen:
            self.seen[tick["id"]] = (self._worker.data / "program.md").read_text()
            self._swarm.pipeline, self._swarm.draft = self._states[min(len(self.seen), len(self._states) - 1)]
        return {}


def test_a_worker_follows_a_draft_once_it_is_deployed_and_leaves_it_once_it_is_flushed(
    swarm: Swarm, worker: JoinedWorker
) -> None:
    told = Programs(
        swarm,
        worker,
        (stands("drafting"), None),
        (stands("ready"), DRAFT),
        (stands("ready", deploys=True), DRAFT),
        (stands(None, flushed="s-1"), None),
    )

    worker.runs(swarm.url, "--max-runs", "4", "--use-spec-pipeline")
    assert [told.seen[f"swarm-{n}"] for n in (1, 2, 3, 4)] == [
        "# the program\n",
        "# the program\n",
        "# the draft\n",
        "# the program\n",
    ]
    assert swarm.preloads == 1
    assert "s-1 was dropped" in worker.said
    kept = [file for file in worker.data.rglob("*") if file.is_file() and b"the draft" in file.read_bytes()]
    assert kept == []
