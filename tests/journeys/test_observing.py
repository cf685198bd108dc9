"""An operator follows a whole lab at work, and no log shows a secret."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.journeys.running import TRAIN, RunningLab, running_lab

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
    ran = lab.until(lambda: lines(lab, trace_id=trace, logger="workers.attempt.job"), "the run is told of")
    assert {(e["experiment_id"], e["attempt"], e["tag"], e["process"]) for e in ran} == {
        (experiment, 1, "traced", "runner")
    }
    assert all(e["gpu_id"].endswith(":cpu0") for e in ran)
    adapted = lab.until(lambda: lines(lab, trace_id=trace, function="search::adapt"), "events carry it on")
    assert adapted[0]["event_type"] == "experiment.finished"
    assert adapted[0]["event_id"] == next(e["id"] for e in events if e["type"] == "experiment.finished")
