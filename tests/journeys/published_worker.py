"""A swarm worker made of the published route table alone: nothing of Nightjar's, only the standard library.

    python published_worker.py URL [--enroll-token T] [--worker-id ID] [--runs N]

It registers, asks for configs, starts a run of its own beside them, ticks five times a run, sends results and syncs;
what it saw is printed as one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
from typing import Any

BASELINE = 1.0
STEPS = (0.2, 0.4, 0.6, 0.8, 1.0)


class Server:
    """The published routes, as a client has them."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url, self.token = url.rstrip("/"), token

    def call(
        self, method: str, path: str, body: Any = None, headers: Any = None, timeout: float = 30
    ) -> tuple[int, dict[str, str], Any]:
        sent = {"Content-Type": "application/json", **(headers or {})}
        if self.token:
            sent["X-Worker-Token"] = self.token
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, headers=sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, dict(answer.headers), _parsed(answer.read())
        except urllib.error.HTTPError as problem:
            return problem.code, dict(problem.headers), _parsed(problem.read())

    def told(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        status, _, answer = self.call(method, path, body, **more)
        if status != 200:
            raise SystemExit(f"{method} {path}: {status} {answer}")
        return answer


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw.decode()


def train(server: Server, run_id: str, budget: float, slope: float) -> tuple[list[Any], float | None]:
    """Tick at each fifth; what the server said, and the value that was reached."""
    said: list[Any] = []
    step, end, metric = 0, 1.0, BASELINE
    while step < len(STEPS) or (end > 1.0 and step == len(STEPS)):
        progress = STEPS[step] if step < len(STEPS) else end
        metric = BASELINE - slope * progress
        answer = server.told(
            "POST", "/tick", {"id": run_id, "p": progress, "m": metric, "d": metric - BASELINE}, timeout=3
        )
        said.append(answer)
        if answer.get("action") == "stop":
            assert isinstance(answer["reason"], str), answer
            assert answer["reason"], answer
            return said, None
        if answer.get("action") == "extend":
            end = round(answer["budget"] / budget, 3)
        step += 1
    return said, metric


def sent(worker_id: str, run_id: str, config: Any, value: float | None) -> dict[str, Any]:
    """A run's result."""
    result = {
        "worker_id": worker_id,
        "exp_id": run_id,
        "config": config,
        "config_delta": config,
        "val_bpb": value,
        "delta_bpb": None if value is None else value - BASELINE,
        "duration_seconds": 1.5,
    }
    return result | ({"error": "stopped early"} if value is None else {})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--enroll-token")
    parser.add_argument("--worker-id", default="gpu-a")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--slope", type=float, default=0.05, help="how much a run lowers the metric")
    parser.add_argument("--own-slope", type=float, default=0.0, help="the same of the run of its own choice")
    parser.add_argument("--without-token", action="store_true", help="never send the worker's token")
    given = parser.parse_args()
    server = Server(given.url)
    assert server.told("GET", "/health")["status"] == "ok"
    body = {"worker_id": given.worker_id, "gpu_type": "H100", "baseline_bpb": BASELINE, "contact": "a friend"}
    if given.enroll_token:
        body["enroll_token"] = given.enroll_token
    welcome = server.told("POST", "/register", body)
    server.token = None if given.without_token else welcome["worker_token"]
    seen: dict[str, Any] = {
        "welcome": {k: v for k, v in welcome.items() if k != "worker_token"},
        "runs": [],
        "ticks": [],
    }
    config: Any = None
    for nth in range(given.runs):
        config = server.told("GET", f"/next_config/{given.worker_id}")
        assert config["run_id"] == config["exp_id"]
        said, value = train(
            server,
            config["run_id"],
            config["budget_seconds"],
            given.slope * (nth + 1),
        )
        result = sent(given.worker_id, config["exp_id"], config["config_delta"], value)
        seen["ticks"].append(said)
        seen["runs"].append([config, server.told("POST", "/result", result)])
    own = dict(list(config["config_delta"].items())[:1])
    extra = server.told("POST", f"/runs/start/{given.worker_id}?population_id={config['population_id']}", own)
    seen["active"] = server.told("GET", "/runs/active")
    seen["extra_ticks"], value = train(server, extra["run_id"], extra["budget_seconds"], given.own_slope)
    server.told("POST", "/result", sent(given.worker_id, extra["run_id"], own, value))
    seen["extra"] = extra
    for _ in range(600):  # what the result says is learned a moment later, and changes the answer
        status, headers, seen["sync"] = server.call("GET", f"/sync/{given.worker_id}")
        assert status == 200, seen["sync"]
        etag = headers.get("ETag") or headers.get("etag")
        seen["unchanged"] = server.call("GET", f"/sync/{given.worker_id}", headers={"If-None-Match": etag})[0]
        if seen["unchanged"] == 304:
            break
        time.sleep(0.05)
    seen["leaderboard"] = server.told("GET", "/leaderboard")
    seen["populations"] = server.told("GET", "/populations")
    seen["health"] = server.told("GET", "/health")
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
