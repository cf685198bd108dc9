"""The published protocol, spoken by a worker that is made of the route table alone, against a whole lab."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.commands import nightjar
from tests.journeys.running import PATIENCE_S, RunningLab, running_lab

WORKER = Path(__file__).with_name("published_worker.py")
SECRET = "the owls are not what they seem"


def worker(lab: RunningLab, worker_id: str, *more: str) -> dict[str, Any]:
    """What a worker of its own process saw, with nothing of Nightjar's on its path."""
    done = subprocess.run(
        [sys.executable, "-I", str(WORKER), str(lab.http.base_url), "--worker-id", worker_id, *more],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    """A lab without tokens, whose swarm has seen one worker."""
    with running_lab(tmp_path_factory.mktemp("open")) as found:
        found.start()
        open_swarm(found)
        worker(found, "first", "--runs", "1", "--slope", "0.01")
        yield found


def test_a_published_worker_runs_the_whole_protocol_on_an_open_lab(lab: RunningLab) -> None:
    worker_id = "w1"
    before = lab.http.get("/health").json()["experiments"]

    seen = worker(lab, worker_id, "--runs", "3", "--without-token")

    assert seen["welcome"]["message"].startswith(f"Welcome {worker_id}!")
    assert [answer["total_experiments"] for _, answer in seen["runs"]] == [before + n for n in (1, 2, 3)]
    assert all(said == [{}] * 5 for said in [*seen["ticks"], seen["extra_ticks"]])
    [active] = [run for run in seen["active"] if run["worker_id"] == worker_id]
    assert active["id"] == seen["extra"]["run_id"]
    assert seen["unchanged"] == 304
    assert seen["sync"]["experiment_count"] == before + 4
    leading = {row["worker_id"]: row for row in seen["leaderboard"]}[worker_id]
    assert leading["best_delta_bpb"] == pytest.approx(-0.15)
    assert all(population["hypothesis_statement"] for population in seen["populations"]["populations"])
    lab.until(lambda: {"LR matters", "OPTIMIZER matters"} <= claims(lab), "claims of what a swarm tries")


def claims(lab: RunningLab) -> set[str]:
    """Statements of the swarm's populations, which follow results a moment later."""
    return {p["hypothesis_statement"] for p in lab.http.get("/populations").json()["populations"]}


def open_swarm(lab: RunningLab, **more: str) -> None:
    """A swarm whose keeps no other worker has to bear out, without reference runs; its first worker only joins."""
    opener = {"worker_id": "opener", "gpu_type": "H100", "baseline_bpb": 1.0, **more}
    lab.http.post("/register", json=opener).raise_for_status()
    set_policy(lab, {"keep_rule": "strict", "belief.evidence": "baseline"})


def set_policy(lab: RunningLab, policy: dict[str, Any]) -> None:
    lab.http.post("/api/search/set-policy", json={"tag": "swarm", "policy": policy}).raise_for_status()


RANKED = {
    "stopping.rule": "median",
    "stopping.warmup_runs": 0,
    "stopping.min_peers": 1,
    "stopping.extend_at": 0.8,
}
"""A policy under which the second run is ranked already."""
MORE = {"action": "extend", "budget": 420}


def a_good_and_a_bad_worker(lab: RunningLab, slope: float, *more: str) -> None:
    """A worker's best runs are given more time, those of a bad one are stopped: what they were handed out, and what
    they began themselves."""
    before = lab.http.get("/runs/stats").json()
    of_good = ("--runs", "1", "--slope", f"{slope}", "--own-slope", f"{slope + 0.1}")
    of_bad = ("--runs", "1", "--slope", f"-{slope}", "--own-slope", f"-{slope}")

    good = worker(lab, f"good-{slope}", *of_good, *more)
    bad = worker(lab, f"bad-{slope}", *of_bad, *more)

    for said in (*good["ticks"], good["extra_ticks"]):
        assert said == [{}, {}, {}, MORE, {}, {}]
    for said in (*bad["ticks"], bad["extra_ticks"]):
        assert [answer["action"] for answer in said] == ["stop"]
    for run_id in (bad["runs"][0][0]["run_id"], bad["extra"]["run_id"]):
        record = lab.http.get(f"/api/experiment/{run_id}").json()["experiment"]
        assert (record["status"], record["last_progress"]) == ("stopped", 0.2)
    after = lab.http.get("/runs/stats").json()
    assert (after["extended"] - before["extended"], after["killed"] - before["killed"]) == (2, 2)
    assert lab.http.post("/api/lab/audit", json={}).json()["violations"] == []


def test_a_published_worker_joins_with_the_teams_secret_and_with_an_enroll_token(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("closed")
    with running_lab(folder, NIGHTJAR_SWARM_SECRET=SECRET) as closed:
        closed.start()
        open_swarm(closed, enroll_token=SECRET)
        first = worker(closed, "w1", "--runs", "1", "--enroll-token", SECRET)
        set_policy(closed, RANKED)
        a_good_and_a_bad_worker(closed, 0.2, "--enroll-token", SECRET)
        before = closed.http.get("/health").json()["experiments"]
        refused = httpx.post(
            f"{closed.http.base_url}/register",
            json={"worker_id": "w2", "gpu_type": "H100", "baseline_bpb": 1.0},
            timeout=60,
        )
        root = nightjar(closed.data, "token", "issue", "olga", "--role", "operator")
        closed.http.headers["authorization"] = f"Bearer {root.stdout.strip()}"
        issued = closed.http.post(
            "/api/token/issue", json={"name": "friends", "role": "worker", "kind": "enroll", "uses": 1}
        )
        second = worker(closed, "w3", "--runs", "1", "--enroll-token", issued.json()["token"])
        third = worker(closed, "w4", "--runs", "1", "--enroll-token", SECRET)

        assert first["health"]["experiments"] == 2
        assert (refused.status_code, refused.json()["detail"]) == (401, "Invalid enroll token")
        a_good_and_a_bad_worker(closed, 0.4, "--enroll-token", SECRET)

        assert second["health"]["experiments"] == before + 2
        assert third["health"]["experiments"] == before + 4
        assert SECRET not in "".join(log.read_text() for log in (closed.data / "logs").glob("*.log"))
