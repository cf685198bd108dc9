"""An operator follows a whole lab at work, and no log shows a secret."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.journeys.running import TRAIN, RunningLab, running_lab

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

KEY = uuid.uuid4().hex
"""A model provider's key in the operator's environment."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    talkative = {"NIGHTJAR_LOG_FORMAT": "json", "NIGHTJAR_LOG_LEVEL": "DEBUG", "ANTHROPIC_API_KEY": KEY}
    with running_lab(tmp_path_factory.mktemp("lab"), **talkative) as found:
        found.start()
        yield found


def lines(lab: RunningLab, **wanted: Any) -> list[dict[str, Any]]:
    """Every line of every process's log with these values; one that is no JSON object is a failure."""
    told = []
    for log in sorted((lab.data / "logs").glob("*.log*")):
        if not log.name.startswith("redis"):
            told += [json.loads(line) | {"log": log.name} for line in log.read_text().splitlines() if line]
    return [line for line in told if wanted.items() <= line.items()]


def events_until(lab: RunningLab, kind: str, experiment: str) -> list[dict[str, Any]]:
    """The experiment's events, up to the first of this type."""
    found = []
    with lab.http.stream("GET", "/api/events", params={"since": "0"}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: ") and (event := json.loads(line[6:])).get("subject") == experiment:
                found.append(event)
                if event["type"] == kind:
                    break
    return found


def test_one_trace_leads_from_the_request_through_the_run_to_its_verdict(lab: RunningLab) -> None:
    trace = uuid.uuid4().hex
    sent = f"00-{trace}-{'b' * 16}-01"
    lab.setup("traced")
    show = 'import os\nprint("trace:", os.environ["TRACEPARENT"])\nassert "ANTHROPIC_API_KEY" not in os.environ\n'
    commit = lab.commit({"train.py": show + TRAIN})

    response = lab.http.post(
        "/api/experiment/submit",
        json={
            "tag": "traced",
            "hypothesis": "h",
            "category": "other",
            "commit_sha": commit,
            "diff_summary": "d",
        },
        headers={"traceparent": sent, "X-Request-Id": "asked-1"},
    )
    experiment = response.json()["experiment_id"]
    found = lab.until_status(experiment, "keep", "crash")

    assert response.headers["traceresponse"] == sent
    assert f"trace: {sent}" in found["log_tail"]
    events = events_until(lab, "best.changed", experiment)
    assert {e["trace"] for e in events} == {sent}
    steps = list(dict.fromkeys(e["type"] for e in events))  # a worker that comes late is given it again
    assert steps == [
        *(f"experiment.{step}" for step in ("registered", "queued", "leased", "started", "finished")),
        "best.changed",
    ]
    (asked,) = lines(lab, route="/api/experiment/submit", trace_id=trace)
    assert (asked["request_id"], asked["process"], asked["status"]) == ("asked-1", "web", 200)
    ran = lab.until(
        lambda: lines(lab, trace_id=trace, logger="workers.attempt.attempted"), "the run is told of"
    )
    assert {(e["experiment_id"], e["attempt"], e["tag"], e["process"]) for e in ran} == {
        (experiment, 1, "traced", "runner")
    }
    assert all(e["gpu_id"].endswith(":cpu0") for e in ran)
    adapted = lab.until(lambda: lines(lab, trace_id=trace, function="search::adapt"), "events carry it on")
    assert adapted[0]["event_type"] == "experiment.finished"
    assert adapted[0]["event_id"] == next(e["id"] for e in events if e["type"] == "experiment.finished")


def test_the_web_process_tells_what_all_others_counted(lab: RunningLab) -> None:
    lab.setup("counted")
    lab.until_status(lab.submit("counted"), "keep")

    def counted() -> set[tuple[str, str, str]]:
        families = text_string_to_metric_families(lab.http.get("/metrics").text)
        calls = next(f for f in families if f.name == "nightjar_function_calls")
        return {(s.labels["process"], s.labels["function"], s.labels["trigger"]) for s in calls.samples}

    wanted = {
        ("web", "experiment::submit", "http"),
        ("events", "search::adapt", "event"),
        ("events", "pool::sweep", "cron"),
        ("web", "pool::heartbeat", "http"),
        ("web", "gpu::begin", "http"),
        ("web", "experiment::complete", "http"),
    }
    lab.until(lambda: wanted <= counted(), f"{wanted} are counted")


def test_no_log_shows_a_secret_or_a_body_whatever_the_lab_goes_through(lab: RunningLab) -> None:
    body, header = f"body{uuid.uuid4().hex}", f"header{uuid.uuid4().hex}"
    bearer = {"Authorization": f"Bearer {header}"}
    assert lab.http.get("/api/lab/status", headers=bearer).status_code == 401
    lab.http.headers["Cookie"] = f"session={header}"
    lab.setup("secretive")
    broken = lab.commit({"train.py": f"raise SystemExit('password={body}')"})
    lab.until_status(lab.submit("secretive", hypothesis=body), "keep")
    lab.until_status(lab.submit("secretive", hypothesis=body, commit_sha=broken), "crash")
    for path, sent in (
        ("experiment/register", {"tag": "secretive", "api_key": body}),
        ("experiment/complete", {"experiment_id": "nothing-1", "val_bpb": 1.0, "description": body}),
        ("experiment/crash", {"experiment_id": body, "error": body}),
    ):
        assert lab.http.post(f"/api/{path}?token={body}", json=sent).is_client_error
    redis = json.loads((lab.data / "redis.json").read_text())
    password = urlsplit(redis["url"]).password or ""
    psutil.Process(redis["pid"]).kill()
    lab.until(lambda: lab.http.get("/api/lab/status").status_code == 200, "Redis is back")
    lab.process("triggers.events").kill()
    lab.until(lambda: lab.get("lab/status")["counts"].get("events") == 1, "events are back")

    assert len(password) > 8
    logs = {log.name: log.read_text(errors="replace") for log in lab.data.glob("*/*.log*")}
    assert {"web.log", "events.log", "clock.log", "worker.log", "redis.log"} <= set(logs)
    everything = "\n".join([*logs.values(), lab.output()])
    for secret in (password, KEY, header):
        assert secret not in everything
    assert not [line for line in lines(lab) if line["level"] != "debug" and body in json.dumps(line)]
    assert lines(lab, status=422)
