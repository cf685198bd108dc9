"""GET /metrics: what it counts and shows, that Prometheus can read it, and that its labels are bounded."""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.process.meters import Meters
from functions.kernel.table import table
from state.author_budget import AuthorBudget, Cost
from state.embedded import EmbeddedRedis
from state.errors import Unavailable
from state.presence import Tallies
from state.records import STATUSES
from state.settings import Settings
from tests.conftest import http_client
from tests.labs import add_gpu, claimed, crashed, idea, open_tag, running, silence, told, tried
from triggers import metrics

HEALTH = {
    "temperature_c": 61.0,
    "memory_used_mb": 1024.0,
    "memory_total_mb": 81920.0,
    "utilization_percent": 97.0,
    "power_w": 412.5,
}


class Scrape:
    """One answer of /metrics, as Prometheus reads it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {f.name: f for f in text_string_to_metric_families(text)}
        self.samples = [s for f in self.families.values() for s in f.samples]

    def value(self, name: str, **labels: str) -> float | None:
        """The sample of this name with exactly these labels."""
        found = [s.value for s in self.samples if s.name == name and s.labels == labels]
        assert len(found) <= 1, (name, labels)
        return found[0] if found else None

    def labels(self, name: str) -> list[Mapping[str, str]]:
        return [s.labels for s in self.samples if s.name == name]


async def scrape(client: httpx.AsyncClient) -> Scrape:
    response = await client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    return Scrape(response.text)


async def test_a_lab_at_work_is_shown_as_it_stands(client: httpx.AsyncClient, process: Process) -> None:
    await open_tag(client)
    await tried(client, 1.0)
    await tried(client, 1.2)
    await crashed(client)
    await add_gpu(client, "host:gpu0")
    await add_gpu(client, "host:gpu1")
    e = await running(client, process)
    assert e.gpu_id is not None
    free = ({"host:gpu0", "host:gpu1"} - {e.gpu_id}).pop()
    await told(client, "/api/pool/drain", gpu_id=free)
    await told(client, "/api/pool/heartbeat", gpu_id=e.gpu_id, fence=e.fence, health=HEALTH)
    await add_gpu(client, "gone:gpu0")
    await told(client, "/api/pool/heartbeat", gpu_id="gone:gpu0", health=HEALTH)
    await silence(process.lab, "gone:gpu0")
    await told(client, "/api/experiment/submit", **idea())
    await told(client, "/api/experiment/submit", **idea(gpu_id=free))
    await AuthorBudget(process.lab).reserve(Cost(1200, 2_500_000), Cost(5000, 5_000_000))
    subscription = process.stream.events("search::adapt", "one")
    await subscription.serve()
    behind = await subscription.read(1000, 1.0)
    await subscription.done([event.id for event in behind[2:]])
    await open_tag(client, "later")

    seen = await scrape(client)

    counted = {s: seen.value("nightjar_experiments", status=s) for s in STATUSES}
    wanted = {"keep": 1, "discard": 1, "crash": 1, "running": 1, "queued": 2}
    assert counted == dict.fromkeys(STATUSES, 0.0) | wanted
    assert {
        s: seen.value("nightjar_gpus", status=s) for s in ("training", "draining", "idle", "offline")
    } == {
        "training": 1,
        "draining": 1,
        "idle": 0,
        "offline": 1,
    }
    for name, value in {
        "nightjar_queue_experiments": 2,
        "nightjar_leases": 1,
        "nightjar_stream_events": len(await process.stream.last(1000)),
        "nightjar_dead_letters": 0,
        "nightjar_redis_up": 1,
        "nightjar_redis_aof_last_write_ok": 1,
        "nightjar_sse_subscribers": 0,
        "nightjar_author_day_tokens": 1200,
        "nightjar_author_day_usd": 2.5,
    }.items():
        assert seen.value(name) == value, name
    for name, value in {
        "temperature_celsius": 61,
        "memory_used_bytes": 1024**3,
        "memory_total_bytes": 80 * 1024**3,
        "utilization_ratio": 0.97,
        "power_watts": 412.5,
    }.items():
        assert seen.value(f"nightjar_gpu_{name}", gpu_id=e.gpu_id) == value, name
        assert len(seen.labels(f"nightjar_gpu_{name}")) == 1  # none of what was never sampled, or long ago
    for name in ("nightjar_queue_oldest_seconds", "nightjar_lease_oldest_seconds"):
        assert 0 < (seen.value(name) or 0) < 600
    assert seen.value("nightjar_processes", kind="web") == 1
    assert (seen.value("nightjar_redis_memory_used_bytes") or 0) > 1e5
    assert seen.value("nightjar_binding_undelivered_events", binding="search::adapt") == 1
    assert seen.value("nightjar_binding_unacknowledged_events", binding="search::adapt") == 2
    assert 0 <= (seen.value("nightjar_binding_oldest_seconds", binding="search::adapt") or 0) < 600


async def test_calls_are_counted_by_function_by_what_fired_them_and_by_outcome(
    client: httpx.AsyncClient, process: Process
) -> None:
    await open_tag(client)
    await client.post("/api/experiment/setup", json={"tag": "mar11"})
    submitted = await client.post("/api/experiment/submit", json=idea())
    await client.post("/api/experiment/submit", json=idea(category="nonsense"))
    train = {"experiment_id": submitted.json()["experiment_id"]}
    await process.invoker.system("test").invoke("gpu::train", train)

    seen = await scrape(client)

    def calls(function: str, trigger: str, outcome: str) -> float | None:
        ids = {"process": "web", "function": function, "trigger": trigger, "outcome": outcome}
        return seen.value("nightjar_function_calls_total", **ids)

    assert calls("experiment::setup", "http", "ok") == 1
    assert calls("experiment::setup", "http", "conflict") == 1
    assert calls("experiment::submit", "http", "ok") == 1
    assert calls("gpu::train", "call", "ok") == 1
    ids = {"process": "web", "function": "experiment::setup", "trigger": "http"}
    assert seen.value("nightjar_function_duration_seconds_count", **ids) == 2
    submits = {"method": "POST", "route": "/api/experiment/submit"}
    assert seen.value("nightjar_http_requests_total", **submits, status="200") == 1
    assert seen.value("nightjar_http_requests_total", **submits, status="422") == 1
    assert seen.value("nightjar_http_request_duration_seconds_count", **submits) == 2
    assert seen.value("nightjar_http_requests_in_flight") == 1  # this one


async def test_what_became_of_the_clock_s_firings_is_shown(
    client: httpx.AsyncClient, process: Process
) -> None:
    now = await process.lab.now()
    await claimed(process, "pool::sweep", now - 2, fire=now - 2, missed=3)
    await claimed(process, "pool::sweep", now - 1, before=now - 2, fire=now - 1)
    await told(client, "/api/cron/run", function="gpu::health")
    await told(client, "/api/cron/pause", function="gpu::health")

    seen = await scrape(client)

    outcomes = {"fired": 1, "by_hand": 0, "missed": 3, "skipped": 1}
    for outcome, count in outcomes.items():
        assert seen.value("nightjar_clock_ticks_total", function="pool::sweep", outcome=outcome) == count
    assert seen.value("nightjar_clock_ticks_total", function="gpu::health", outcome="by_hand") == 1
    assert seen.value("nightjar_clock_paused", function="gpu::health") == 1
    assert seen.value("nightjar_clock_paused", function="pool::sweep") == 0
    age = seen.value("nightjar_clock_fired_age_seconds", function="pool::sweep")
    assert age is not None
    assert 0 <= age < 600


async def test_labels_are_bounded_and_hold_nothing_that_a_caller_made_up(
    client: httpx.AsyncClient, process: Process
) -> None:
    canary = f"c{uuid.uuid4().hex}"
    await open_tag(client)
    await add_gpu(client)
    e = await running(client, process, hypothesis=canary, agent=canary)
    await told(client, "/api/experiment/crash", experiment_id=e.experiment_id, fence=e.fence, error=canary)
    for path in (f"/{canary}", f"/api/experiment/{canary}", f"/api/report/tags?x={canary}"):
        await client.get(path, headers={"X-Request-Id": canary, "Authorization": f"Bearer {canary}"})
    await client.request(canary.upper(), "/healthz")

    seen = await scrape(client)

    assert canary not in seen.text.lower()
    doors = {door.path for declared in table().values() for door in declared.doors}
    routes = doors | {"(none)", "/metrics", "/healthz"}
    assert {x["route"] for x in seen.labels("nightjar_http_requests_total")} <= routes
    assert {x["method"] for x in seen.labels("nightjar_http_requests_total")} <= {"GET", "POST", "(none)"}
    assert {x["function"] for x in seen.labels("nightjar_function_calls_total")} <= set(table())
    calls, requests = {"process", "function", "trigger", "outcome"}, {"method", "route", "status"}
    known = calls | requests | {"kind", "gpu_id", "binding", "le", "tag"}
    assert {name for s in seen.samples for name in s.labels} <= known
    assert e.experiment_id not in seen.text


async def test_the_newest_tags_have_best_runs_and_keeps_and_the_others_are_counted(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tag in ("old", "mar10", "mar11"):
        await open_tag(client, tag)
    for value in (1.0, 0.9, 1.2):
        await tried(client, value)
    await crashed(client)
    monkeypatch.setattr(metrics, "TAGS_LABELLED", 2)

    seen = await scrape(client)

    assert seen.value("nightjar_tag_best_value", tag="mar11") == 0.9
    assert seen.value("nightjar_tag_runs_total", tag="mar11") == 4
    assert seen.value("nightjar_tag_keeps", tag="mar11") == 2
    assert seen.value("nightjar_tag_runs_total", tag="mar10") == 0
    assert seen.value("nightjar_tag_best_value", tag="mar10") is None
    assert not [labels for s in seen.samples if (labels := s.labels).get("tag") == "old"]
    assert seen.value("nightjar_tags_left_out") == 1


@pytest.mark.parametrize("blow", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)])
async def test_without_redis_a_process_still_shows_what_it_counted_itself(
    tmp_path: Path, blow: signal.Signals
) -> None:
    with EmbeddedRedis.start(Settings.model_validate({"data": tmp_path})) as server:
        own = Settings.model_validate({"data": tmp_path, "redis_url": server.url, "redis_timeout_s": 0.5})
        async with opened("web", own) as process, http_client(process) as client:
            await open_tag(client)
            assert (await scrape(client)).value("nightjar_redis_up") == 1
            assert server.pid is not None
            pid = server.pid
            os.kill(pid, blow)
            try:
                seen = await scrape(client)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    assert seen.value("nightjar_redis_up") == 0
    ids = {"process": "web", "function": "experiment::setup", "trigger": "http", "outcome": "ok"}
    assert seen.value("nightjar_function_calls_total", **ids) == 1
    assert "nightjar_gpus" not in seen.families


async def test_without_redis_a_closed_lab_shows_nobody_anything(tmp_path: Path) -> None:
    with EmbeddedRedis.start(Settings.model_validate({"data": tmp_path})) as server:
        own = Settings.model_validate({"data": tmp_path, "redis_url": server.url, "redis_timeout_s": 0.5})
        async with opened("web", own) as process, http_client(process, by_key=False) as stranger:
            await process.tokens.issue(name="me", role="operator", issued_by="local")
            shown = {"authorization": "Bearer nj_aaaaaaaaaa_" + "A" * 43}
            codes = [(await stranger.get("/metrics", headers=shown)).status_code]
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            codes.append((await stranger.get("/metrics", headers=shown)).status_code)

    assert codes == [401, 503]


async def test_what_other_processes_counted_stays_when_they_have_ended(
    client: httpx.AsyncClient, settings: Settings
) -> None:
    for _ in range(2):
        async with opened("events", settings) as events:
            call = events.invoker.system("clock", "cron")
            await events.invoker.call("pool::sweep", {}, call)

    seen = await scrape(client)

    ids = {"process": "events", "function": "pool::sweep", "trigger": "cron"}
    assert seen.value("nightjar_function_calls_total", **ids, outcome="ok") == 2
    assert seen.value("nightjar_function_duration_seconds_count", **ids) == 2
    buckets = [
        x["le"] for x in seen.labels("nightjar_function_duration_seconds_bucket") if ids.items() <= x.items()
    ]
    assert buckets == sorted(buckets, key=float)
    assert buckets[-1] == "+Inf"


async def test_counts_are_handed_over_once_and_those_that_redis_missed_the_next_time(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    meters, tallies = Meters("clock"), Tallies(process.lab)
    meters.called("a::b", "cron", "ok", 0.1)
    await meters.hand_over(tallies)
    await meters.hand_over(tallies)
    meters.called("a::b", "cron", "ok", 0.2)
    with monkeypatch.context() as patched:

        async def away(*_: object) -> None:
            raise Unavailable("Redis is gone")

        patched.setattr(Tallies, "add", away)
        with pytest.raises(Unavailable):
            await meters.hand_over(tallies)
    await meters.hand_over(tallies)

    sums = {name: value for name, value in (await tallies.all()).items() if "calls_total" in name}
    assert list(sums.values()) == [2.0]
