"""Swarm workers of `bench.chaos`. They pull configs, tick, send results, and repeat unanswered calls."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx

from bench._users import Book, User
from functions.swarm.rules.simulating import simulate_metric
from functions.trust.rules.audit_tags import Acknowledged, ShownRun, lost, miscounted
from tests.journeys.running import RunningLab

PULLING = "pulled"
"""The tag of the swarm."""
BASELINE = 1.0
TICKS = (0.2, 0.4, 0.6, 0.8, 1.0)
DIMENSIONS = [
    {"name": "LR", "dtype": "float_log", "min": 1e-4, "max": 1e-1},
    {"name": "N_LAYERS", "dtype": "int", "min": 1, "max": 5},
    {"name": "OPTIMIZER", "dtype": "categorical", "categories": ["adam", "sgd"]},
]
POLICY = {"budgets.base_s": 5, "stale_after_s": 10}
"""A run is lost seconds after its worker is cut off. Its late result still counts."""


def open_swarm(lab: RunningLab) -> None:
    lab.post("dimension/define", tag=PULLING, dimensions=DIMENSIONS)
    lab.post("search/set-policy", tag=PULLING, policy=POLICY)


class Pulls(User):
    """A worker of the swarm: it sends results twice at times, and leaves some runs in the middle."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.worker_id = self.name.replace("/", "-").lower()
        self.has_joined = False

    def turn(self) -> None:
        if not self.has_joined:
            self.join()
        given = self.repeated(lambda: self.http.get(f"/next_config/{self.worker_id}"), "next_config")
        if self.refused(given, "next_config"):
            return
        run_id, config = given.json()["run_id"], given.json()["config_delta"]
        leaves_at = self.chance.choice(TICKS) if self.chance.random() < 0.1 else None
        for progress in TICKS:
            metric = simulate_metric(config, progress, self.chance)
            body = {"id": run_id, "p": progress, "m": metric, "d": metric - BASELINE}
            told = self.posted("/tick", body)
            if self.refused(told, "tick"):
                return
            if told.json().get("action") == "stop":
                self.book.pulled[run_id] = Acknowledged(self.worker_id, None, is_stopped=True)
                break
            if progress == leaves_at:
                return
            time.sleep(self.chance.uniform(0.02, 0.2))
        self.send(run_id, config)

    def join(self) -> None:
        """Enter with an operator's token, then use our own. Without an answer, enter again."""
        body = {"worker_id": self.worker_id, "gpu_type": "none", "baseline_bpb": BASELINE, "tag": PULLING}
        welcome = self.posted("/register", body)
        if not self.refused(welcome, "register"):
            token = welcome.json()["worker_token"]
            self.book.secrets.append(token)
            self.http.headers["authorization"] = f"Bearer {token}"
            self.has_joined = True

    def send(self, run_id: str, config: dict[str, Any]) -> None:
        """Send what came of a run, and remember it once it is acknowledged."""
        is_stopped = run_id in self.book.pulled
        has_crashed = not is_stopped and self.chance.random() < 0.1
        value = None if is_stopped or has_crashed else simulate_metric(config, 1.0, self.chance)
        body = {
            "worker_id": self.worker_id,
            "exp_id": run_id,
            "config": config,
            "config_delta": config,
            "val_bpb": value,
            "duration_seconds": 5.0,
            "error": "boom" if value is None else None,
        }
        for _ in range(2 if self.chance.random() < 0.2 else 1):
            if self.refused(self.posted("/result", body), "result"):
                return
        self.book.pulled[run_id] = Acknowledged(self.worker_id, value, is_stopped=is_stopped)

    def posted(self, path: str, body: dict[str, Any]) -> httpx.Response:
        return self.repeated(lambda: self.http.post(path, json=body), path)

    def refused(self, answer: httpx.Response, what: str) -> bool:
        if answer.is_success:
            return False
        self.book.faults.append(f"{self.worker_id}: {what}: {answer.status_code} {answer.text[:300]}")
        return True


def swarm_faults(lab: RunningLab, book: Book) -> Iterator[str]:
    """Acknowledged results of the swarm that are not there exactly once."""
    stored: dict[str, ShownRun] = {}
    for name in book.pulled:
        e = lab.get(f"experiment/{name}")["experiment"]
        stored[name] = ShownRun(e["status"], e["val_bpb"])
    yield from lost(book.pulled, stored)
    health = lab.http.get("/health", params={"tag": PULLING}).json()
    rows = lab.http.get("/leaderboard", params={"tag": PULLING}).json()
    by_worker = {row["worker_id"]: row["experiment_count"] for row in rows}
    yield from (text for _, text in miscounted(book.pulled, health["experiments"], by_worker))
