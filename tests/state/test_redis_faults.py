"""Redis full, read-only, crowded, locked, loading, slow or cut off: a clear 503, no half a write, and back again."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import redis

from functions.kernel.process.lifecycle import Process, opened
from state.embedded import EmbeddedRedis
from state.errors import Unavailable
from state.settings import Settings
from tests.conftest import http_client
from tests.labs import PRESENCE, add_gpu, begun, dump, idea, open_tag, registered, told


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """A Redis that these tests may hurt."""
    with EmbeddedRedis.start(Settings.model_validate({"data": tmp_path_factory.mktemp("faults")})) as server:
        yield server


@pytest.fixture
def admin(own_redis: EmbeddedRedis) -> Iterator[redis.Redis]:
    with closing(redis.Redis.from_url(own_redis.url)) as connection:
        connection.flushall()
        yield connection


@pytest.fixture
def settings(own_redis: EmbeddedRedis, tmp_path: Path) -> Settings:
    return Settings.model_validate({"redis_url": own_redis.url, "data": tmp_path, "lab": "faulty"})


@pytest.fixture
async def process(admin: redis.Redis, settings: Settings) -> AsyncIterator[Process]:
    async with opened("web", settings) as running:
        yield running


@contextlib.contextmanager
def config(admin: redis.Redis, **values: Any) -> Iterator[None]:
    names = {name.replace("_", "-"): value for name, value in values.items()}
    before: dict[str, Any] = {name: admin.config_get(name)[name] for name in names}
    for name, value in names.items():
        admin.config_set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            admin.config_set(name, value)


def cut_all(admin: redis.Redis) -> None:
    for kind in ("normal", "pubsub"):
        admin.client_kill_filter(_type=kind, skipme=True)


@contextlib.contextmanager
def out_of_memory(admin: redis.Redis, server: EmbeddedRedis) -> Iterator[None]:
    with config(admin, maxmemory=1):
        yield


@contextlib.contextmanager
def read_only(admin: redis.Redis, server: EmbeddedRedis) -> Iterator[None]:
    admin.replicaof("127.0.0.1", 1)
    try:
        yield
    finally:
        admin.replicaof("NO", "ONE")


@contextlib.contextmanager
def disk_full(admin: redis.Redis, server: EmbeddedRedis) -> Iterator[None]:
    """Its append-only file may not grow: what a full disk is to it, and needs no disk of its own."""
    files = psutil.Process(server.pid)
    aof = next((server._dir / "appendonlydir").glob("*.incr.aof"))
    files.rlimit(resource.RLIMIT_FSIZE, (aof.stat().st_size + 1, resource.RLIM_INFINITY))
    try:
        with contextlib.suppress(redis.RedisError):
            while True:  # the first write that does not fit is what tells Redis
                admin.set("filler", "x" * 100)
                time.sleep(0.01)
        yield
    finally:
        files.rlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        until(lambda: bool(admin.set("filler", "")))


@contextlib.contextmanager
def another_password(admin: redis.Redis, server: EmbeddedRedis) -> Iterator[None]:
    with config(admin, requirepass="another"):
        cut_all(admin)
        yield


FAULTS: dict[str, tuple[Callable[..., Any], str]] = {
    "out of memory": (out_of_memory, "no memory left"),
    "a read-only replica": (read_only, "read-only replica"),
    "disk full": (disk_full, "cannot write to its disk"),
    "another password": (another_password, "refuses our password"),
}


def until(met: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while True:
        with contextlib.suppress(redis.RedisError):
            if met():
                return
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(0.05)


async def a_lab(http: httpx.AsyncClient, process: Process) -> dict[str, Mapping[str, Any]]:
    """A lab with something of everything, and for each writing door a body that it would accept."""
    await open_tag(http)
    await add_gpu(http, "h:gpu0")
    await add_gpu(http, "h:gpu1")
    submitted = await told(http, "/api/experiment/submit", **idea(gpu_id="h:gpu0"))
    await told(http, "/api/pool/dispatch")
    run = await begun(process, submitted["experiment_id"])
    mine, other, third = [await registered(http) for _ in range(3)]
    lease = await told(http, "/api/pool/acquire", experiment_id=third)
    await add_gpu(http, "h:spare")
    trained = {"experiment_id": run.experiment_id, "attempt": run.attempt, "fence": run.fence}
    return {
        "/api/experiment/setup": {"tag": "new"},
        "/api/experiment/register": idea(),
        "/api/experiment/submit": idea(),
        "/api/experiment/complete": {**trained, "val_bpb": 0.9},
        "/api/experiment/crash": {"experiment_id": mine, "error": "boom"},
        "/api/experiment/stop": {"experiment_id": other},
        "/api/search/set-policy": {"tag": "mar11", "policy": {"crash_limit": 7}},
        "/api/search/set-strategy": {"tag": "mar11", "mode": "exploit", "reason": "because"},
        "/api/pool/register": {"gpu_id": "h:gpu2", "gpu_index": 2, "gpu_name": "H100", "vram_mb": 8e4},
        "/api/pool/drain": {"gpu_id": "h:spare"},
        "/api/pool/release": {"gpu_id": "h:gpu1", "experiment_id": third, "fence": lease["fence"]},
    }


async def post(http: httpx.AsyncClient, path: str, body: Mapping[str, Any], **headers: str) -> httpx.Response:
    return await http.post(path, json=dict(body), headers=headers)


def a_clear_refusal(answer: httpx.Response, words: str) -> None:
    assert answer.status_code == 503, answer.text
    problem = answer.json()
    assert answer.headers["content-type"].startswith("application/problem+json")
    # the first request on a connection that was cut is told of that
    cut = words == "refuses our password" and problem["detail"] == "Redis cannot be reached"
    assert words in problem["detail"] or cut, problem
    assert problem["hint"]
    assert ("Retry-After" in answer.headers) == ("retry_after" in problem)
    assert "retry_after" in problem or "password" in problem["detail"]  # there waiting does not help


@pytest.mark.parametrize("fault", FAULTS)
async def test_every_writing_door_answers_a_clear_503_writes_nothing_and_works_again_afterwards(
    process: Process, own_redis: EmbeddedRedis, admin: redis.Redis, fault: str
) -> None:
    hurt, words = FAULTS[fault]
    async with http_client(process) as http:
        doors = await a_lab(http, process)
        before = await dump(process.lab, without=PRESENCE)

        with hurt(admin, own_redis):
            answers = {path: await post(http, path, body) for path, body in doors.items()}
            ready, alive = await http.get("/readyz"), await http.get("/healthz")
            read = await http.get("/api/pool/list")
        between = await dump(process.lab, without=PRESENCE)

        # a script that frees memory may run, and then runs to its end
        done = {path for path, answer in answers.items() if answer.is_success}
        for path in answers.keys() - done:
            a_clear_refusal(answers[path], words)
        a_clear_refusal(ready, words)
        assert alive.status_code == 200
        assert read.status_code == (503 if fault == "another password" else 200)
        assert done <= ({"/api/pool/release"} if fault == "out of memory" else set())
        if not done:
            assert between == before
        async with asyncio.timeout(30):  # by itself, for nobody restarts it
            while (await http.get("/readyz")).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        for path in answers.keys() - done:
            answer = await post(http, path, doors[path])
            assert answer.is_success, (path, answer.text)
        assert (await told(http, "/api/lab/audit"))["violations"] == []


async def test_an_answer_that_cannot_be_kept_is_given_all_the_same(
    process: Process, admin: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: str) -> None:
        raise Unavailable("Redis has no memory left", retry_after=2.0)

    async with http_client(process) as http:
        await open_tag(http)
        monkeypatch.setattr(process.answers, "store", full)
        body = idea()

        answer = await post(http, "/api/experiment/register", body, **{"Idempotency-Key": "k"})

        assert (answer.status_code, answer.json()["number"]) == (200, 1)
