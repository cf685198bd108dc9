"""A Redis that stands open, is too old, throws keys away or tells little: refused, or told of."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from functions.kernel.process.readiness import until_ready
from state.client import Lab
from state.embedded import EmbeddedRedis, broker_url, redis_url
from state.errors import Unavailable
from state.redis_server import check_door, lab_rules, look, setuser
from state.settings import Settings
from triggers.ports import free_port

FIT = {"version": "7.0.0", "aof": True, "appendfsync": "everysec", "maxmemory_policy": "noeviction"}


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    """A Redis that these tests may set as they like."""
    with EmbeddedRedis.start(Settings.model_validate({"data": tmp_path_factory.mktemp("fitness")})) as server:
        yield server


@pytest.fixture
def admin(own_redis: EmbeddedRedis) -> Iterator[redis.Redis]:
    with closing(redis.Redis.from_url(own_redis.url, decode_responses=True)) as connection:
        yield connection
        connection.config_set("maxmemory-policy", "noeviction")
        connection.config_set("appendonly", "yes")
        connection.flushall()


@pytest.fixture
def settings(own_redis: EmbeddedRedis, tmp_path: Path) -> Settings:
    return Settings.model_validate({"redis_url": own_redis.url, "data": tmp_path, "lab": "fit"})


OPEN_DOORS = [
    *("redis://redis.example:6379/0", "rediss://redis.example/0?ssl_ca_certs=/ca.pem"),
    *("redis://10.0.0.7:6379", "redis://user@10.0.0.7:6379", "redis://[2001:db8::1]:6379"),
    *("redis://?host=10.0.0.7", "redis://0.0.0.0"),
    *("redis+sentinel://127.0.0.1,10.0.0.7:26380/mymaster", "redis+cluster://127.0.0.1,10.0.0.7:7000"),
]
SAFE_DOORS = [
    *("redis://:p@redis.example:6379/0", "redis://redis.example?password=p", "redis://localhost:6379"),
    *("redis://127.0.0.1", "redis://[::1]:6379", "redis:///0", "unix:///run/redis.sock?db=1"),
    "redis+sentinel://:p@10.0.0.7,10.0.0.8:26380/mymaster/1",
    "redis+sentinel://127.0.0.1:26379,localhost/mymaster",
    "redis+cluster://:p@10.0.0.7,10.0.0.8:7000/0",
    "rediss+cluster://:p@10.0.0.7,10.0.0.8:7000",
]
NO_DOORS = [
    *("http://:canary@redis.example", "redis://:can/ary@redis.example", "canary"),
    *("redis+sentinel://:canary@h", "redis+cluster://:canary@h/1", "redis+cluster://:canary@h/name"),
    *("redis+cluster://:canary@h?db=1", "redis+cluster://:canary@h:port"),
]


def test_a_redis_of_another_machine_needs_a_password_and_what_is_no_url_is_refused_without_a_word_of_it() -> (
    None
):
    for url in SAFE_DOORS:
        check_door(url, "NIGHTJAR_REDIS_URL")
    for url in OPEN_DOORS:
        with pytest.raises(Unavailable, match="without a password") as refusal:
            check_door(url, "NIGHTJAR_REDIS_URL")
        assert "requirepass" in str(refusal.value.hint)
    for url in NO_DOORS:
        with pytest.raises(Unavailable, match="NIGHTJAR_BROKER_URL is no URL") as refusal:
            check_door(url, "NIGHTJAR_BROKER_URL")
        assert not re.search("can/?a?r?y?@|canary", f"{refusal.value.detail} {refusal.value.hint}")


@pytest.mark.parametrize("setting", ["redis_url", "broker_url", "worker_redis_url"])
def test_every_setting_that_names_a_redis_is_looked_at(settings: Settings, setting: str) -> None:
    open_door = settings.model_copy(update={setting: SecretStr("redis://10.0.0.7:6379")})
    with pytest.raises(Unavailable, match=r"10\.0\.0\.7 without a password"):
        (redis_url if setting.endswith("redis_url") else broker_url)(
            open_door, worker=setting.startswith("worker")
        )


def test_workers_get_the_redis_of_rq_s_queues_and_not_the_lab_s() -> None:
    for setting in ("redis_url", "broker_url"):
        with pytest.raises(Unavailable, match="Cluster") as refusal:
            broker_url(Settings.model_validate({setting: "redis+cluster://127.0.0.1:7000"}))
        assert "NIGHTJAR_BROKER_URL" in str(refusal.value.hint)
    urls = {"redis_url": "redis+cluster://:ours@h", "broker_url": "redis://:plain@h"}

    beside = Settings.model_validate(urls).worker_environment
    as_worker = Settings.model_validate({**urls, "worker_redis_url": "redis://worker:p@h"}).worker_environment

    names = ("NIGHTJAR_REDIS_URL", "NIGHTJAR_BROKER_URL")
    assert [beside[name] for name in names] == ["redis://:plain@h"] * 2
    assert [as_worker[name] for name in names] == ["redis://worker:p@h"] * 2


@pytest.mark.parametrize(
    ("facts", "state", "words"),
    [
        ({}, ["ok", "ok", "ok"], "version 7.0.0"),
        ({"version": "6.2.14"}, ["error", "ok", "ok"], "7.0 or newer"),
        ({"version": "255.255.255"}, ["ok", "ok", "ok"], "255"),
        ({"version": None}, ["warning", "ok", "ok"], "does not tell its version"),
        ({"aof": False}, ["ok", "warning", "ok"], "loses everything"),
        ({"aof": None}, ["ok", "warning", "ok"], "does not tell what it keeps"),
        ({"appendfsync": None}, ["ok", "ok", "ok"], "more than a second"),
        ({"maxmemory_policy": "volatile-lru"}, ["ok", "ok", "error"], "noeviction"),
        ({"maxmemory_policy": None}, ["ok", "ok", "warning"], "throws away"),
    ],
)
def test_each_fact_has_its_verdict(facts: dict[str, Any], state: list[str], words: str) -> None:
    findings = look(FIT | facts)
    assert [finding.state for finding in findings] == state
    assert words in " ".join(f"{finding.found} {finding.remedy}" for finding in findings)
    assert all(finding.remedy for finding in findings if finding.state != "ok")


def test_no_process_starts_on_a_redis_that_throws_keys_away_and_nothing_is_written(
    admin: redis.Redis, settings: Settings, own_redis: EmbeddedRedis
) -> None:
    admin.config_set("maxmemory-policy", "allkeys-lru")

    place = {"NIGHTJAR_REDIS_URL": own_redis.url, "NIGHTJAR_DATA": str(settings.data)}
    env = os.environ | place | {"NIGHTJAR_PORT": str(free_port(0))}  # a lab may be up here

    argv = [sys.executable, "-P", "-m", "triggers.cli", "up"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)

    assert done.returncode == 1
    assert "may not hold a lab: maxmemory-policy allkeys-lru" in done.stderr
    assert "set maxmemory-policy noeviction" in done.stderr
    assert "Traceback" not in done.stderr
    assert admin.dbsize() == 0


@pytest.mark.parametrize(
    ("forbidden", "told"),
    [
        (["-config|get"], []),
        (["-config|get", "-info"], ["its version", "what it keeps", "throws away when it is full"]),
    ],
)
async def test_a_redis_that_forbids_to_be_asked_is_used_and_what_it_does_not_tell_is_said(
    admin: redis.Redis,
    own_redis: EmbeddedRedis,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
    forbidden: list[str],
    told: list[str],
) -> None:
    line = setuser("managed", "secret", [*lab_rules("fit"), *forbidden])
    admin.execute_command(*line.split())  # type: ignore[no-untyped-call]  # redis has no types here
    url = SecretStr(f"redis://managed:secret@127.0.0.1:{own_redis.port}")
    lab = Lab("fit", url.get_secret_value())

    await until_ready(lab, settings.model_copy(update={"redis_url": url}))
    await lab.close()

    said = [r.getMessage() for r in caplog.records if r.name == "functions.kernel.process.readiness"]
    assert len(said) == len(told)
    assert all(words in warning for words, warning in zip(told, said, strict=True))
