"""Workers are a Redis user of their own, who can train and nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
import redis
from redis.exceptions import ResponseError

from state.embedded import EmbeddedRedis
from state.settings import Settings
from tests.commands import forked_nightjar
from tests.journeys.running import RunningLab, running_lab

OF_WORKERS = ("workers.supervisor", "workers.keeper", "workers.gpu", "train.py")


@dataclass(frozen=True)
class Users:
    """A running lab, and how its two users reach its Redis."""

    lab: RunningLab
    full: str
    """The password that no worker may have."""
    port: int
    admin: redis.Redis
    worker: redis.Redis


def connected(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True, driver_info=None)


def send(connection: redis.Redis, words: str) -> Any:
    return connection.execute_command(*words.split())  # type: ignore[no-untyped-call]  # redis has no types here


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    """The users that `./nightjar redis acl` prints, made as an operator would make them."""
    folder = tmp_path_factory.mktemp("users")
    with EmbeddedRedis.start(Settings.model_validate({"data": folder / "server"})) as server:
        said = nightjar("redis", "acl")
        with closing(connected(server.url)) as admin:
            for line in said.stdout.splitlines():
                assert send(admin, line)
            urls = re.findall(
                r"(NIGHTJAR\w+)=(\S+)", said.stderr.replace("HOST:6379", f"127.0.0.1:{server.port}")
            )
            assert [name for name, _ in urls] == ["NIGHTJAR_REDIS_URL", "NIGHTJAR_WORKER_REDIS_URL"]
            with running_lab(folder, **dict(urls)) as lab, closing(connected(urls[1][1])) as weak:
                lab.start()
                yield Users(lab, str(urlsplit(urls[0][1]).password), server.port, admin, weak)


def nightjar(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    done = forked_nightjar(words, os.environ | environment, Path.cwd())
    assert done.returncode == 0, done.stderr
    return done


def denials(admin: redis.Redis) -> list[tuple[str, str, str]]:
    """What Redis has refused to anybody."""
    log: Any = admin.acl_log()
    return [(entry["username"], entry["reason"], entry["object"]) for entry in log]


def test_a_run_goes_from_queue_to_verdict_with_workers_that_are_refused_nothing(users: Users) -> None:
    users.admin.acl_log_reset()
    users.lab.setup("trained")

    kept = users.lab.until_status(users.lab.submit("trained"), "keep")["experiment"]
    crash = users.lab.submit("trained", commit_sha=users.lab.commit({"train.py": "raise SystemExit(3)"}))
    crashed = users.lab.until_status(crash, "crash")["experiment"]
    killed = users.lab.submit("trained", config_delta={"SECONDS": 8.0})
    users.lab.until_training(killed).parents()[0].kill()  # the horse
    again = users.lab.until_status(killed, "keep", "discard")["experiment"]
    users.lab.until_idle()

    assert (kept["val_bpb"], kept["attempt"]) == (1.0, 1)
    assert crashed["error_kind"] == "other"
    assert again["attempt"] == 2
    assert denials(users.admin) == []
    assert users.lab.post("lab/audit")["violations"] == []


def test_no_process_of_a_worker_has_the_full_password_in_its_environment_or_command_line(
    users: Users,
) -> None:
    users.lab.setup("looked-at")
    users.lab.until_training(users.lab.submit("looked-at", config_delta={"SECONDS": 8.0}))

    processes = [p for words in OF_WORKERS for p in users.lab.processes(words)]

    for words in OF_WORKERS:
        assert users.lab.processes(words), words
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # its run has ended meanwhile
            shown = [*process.cmdline(), *process.environ().values()]
            assert not any(users.full in text for text in shown), process


@pytest.mark.parametrize(
    "words",
    [
        "FLUSHALL", "FLUSHDB", "CONFIG GET *", "CONFIG SET appendonly no", "KEYS *", "SCAN 0", "SHUTDOWN", "ACL LIST",
        "ACL WHOAMI", "CLIENT LIST", "CLIENT KILL TYPE normal", "MONITOR", "SCRIPT FLUSH", "FUNCTION LIST",
        "REPLICAOF localhost 1", "SWAPDB 0 1", "MIGRATE localhost 1 {lab}:layout 0 1", "RANDOMKEY",
        "HGETALL {lab}:tokens:x", "ZADD {lab}:tokens 1 x", "SET {lab}:sessions:x 1", "HGETALL {lab}:webhooks:x",
        "GET {lab}:layout", "HGETALL {lab}:tags:t", "HSET {lab}:experiments:t-1 status keep",
        "GET {other}:layout", "SET {other}:layout 1", "GET nightjar", "PUBLISH nightjar:other:best.changed x",
        "PSUBSCRIBE nightjar:*", "EVAL return(redis.call('GET','{other}:layout')) 0",
        "EVAL return(redis.call('KEYS','*')) 0",
    ],
)  # fmt: skip
def test_what_a_worker_has_no_business_with_is_refused(users: Users, words: str) -> None:
    with pytest.raises(
        ResponseError, match=r"no permissions|No permissions|executing the script can't|can't run"
    ):
        send(users.worker, words)


def test_the_lab_s_own_user_backs_up_and_restores_and_is_refused_nothing(
    users: Users, tmp_path: Path
) -> None:
    users.admin.acl_log_reset()
    where = {"NIGHTJAR_DATA": str(users.lab.data)} | {
        name: url for name, url in users.lab.settings.items() if name == "NIGHTJAR_REDIS_URL"
    }

    nightjar("backup", str(tmp_path / "lab.nightjar"), **where)
    nightjar("restore", str(tmp_path / "lab.nightjar"), "--data", str(tmp_path / "restored"))
    facts = json.loads(nightjar("doctor", "--json", **where).stdout)

    assert {"what": "durability", "state": "ok"}.items() <= next(
        f for f in facts if f["what"] == "durability"
    ).items()
    assert denials(users.admin) == []
