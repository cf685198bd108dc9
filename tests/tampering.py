"""What can be made of a job by rewriting it in Redis. None of it may ever run."""

from __future__ import annotations

import json
import pickle
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import redis

from state.rq_jobs import TrainJob

CANARY = "canary-5f1c"
"""Stands in everything that is put into a job: no log may have it."""
NO_JOBS = (b"\xff\xfe\x00", b"no id: ../../x", b"", b"x" * 100_000, b"never-made")
"""Entries of a queue that are no jobs."""

Rewrite = Callable[[dict[str, Any], Path], Mapping[str, bytes | str]]
"""Makes the rewritten fields of a job from its payload and the path of a file that would show that they were run."""


class Bomb:
    """Makes a file where it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def calling(
    name: str, instance: Any = None, args: list[Any] | None = None, **kwargs: Any
) -> dict[str, bytes]:
    return {"data": zlib.compress(json.dumps([name, instance, args or [], kwargs]).encode())}


def named(callback: str) -> Rewrite:
    return lambda payload, marker: {f"{callback}_callback_name": "this.s"}


REWRITES: dict[str, Rewrite] = {
    "another function of the table": lambda payload, marker: calling(
        TrainJob.ENTRY,
        function="experiment::stop",
        payload={"experiment_id": payload["experiment_id"], "reason": CANARY},
    ),
    "a function that is never queued": lambda payload, marker: calling(
        TrainJob.ENTRY, function="pool::deregister", payload={"gpu_id": CANARY}
    ),
    "a dotted path": lambda payload, marker: calling("os.system", args=[f"touch {marker}; echo {CANARY}"]),
    "a module that acts when it is imported": lambda payload, marker: calling("this.s", args=[CANARY]),
    "a method on an instance": lambda payload, marker: calling("touch", instance=f"pathlib.Path({str(marker)!r})"),
    "a success callback": named("success"),
    "a failure callback": named("failure"),
    "a stopped callback": named("stopped"),
    "a webhook": lambda payload, marker: {
        "webhooks": json.dumps([{"url": f"http://127.0.0.1:1/{CANARY}", "job_status": "finished"}])
    },
    "retries for ever": lambda payload, marker: {"retries_left": "1000000000"},
    "pickled data": lambda payload, marker: {
        "data": zlib.compress(pickle.dumps((Bomb(marker), CANARY))),
    },
    "garbage": lambda payload, marker: {"data": b"\x00\xff\xfe" + CANARY.encode()},
    "garbage in a number": lambda payload, marker: {"timeout": CANARY, "created_at": b"\xff"},
    "deep nesting": lambda payload, marker: {"data": zlib.compress(b"[" * 15_000)},
    "further arguments": lambda payload, marker: calling(
        TrainJob.ENTRY, function="gpu::train", payload=payload, environment={CANARY: "1"}
    ),
    "a further field": lambda payload, marker: calling(
        TrainJob.ENTRY, function="gpu::train", payload=payload | {"config_delta": {"VALUE": CANARY}}
    ),
    "another attempt": lambda payload, marker: calling(
        TrainJob.ENTRY, function="gpu::train", payload=payload | {"experiment_id": f"{CANARY}-1"}
    ),
    "another number of its attempt": lambda payload, marker: calling(
        TrainJob.ENTRY, function="gpu::train", payload=payload | {"attempt": 2}
    ),
    "a fence of text": lambda payload, marker: calling(
        TrainJob.ENTRY, function="gpu::train", payload=payload | {"fence": "4"}
    ),
    "an argument": lambda payload, marker: calling(
        TrainJob.ENTRY, args=[CANARY], function="gpu::train", payload=payload
    ),
    "null": lambda payload, marker: {"data": zlib.compress(b"null")},
    "no text": lambda payload, marker: {"data": zlib.compress(b"")},
    "a group of jobs": lambda payload, marker: {"group_id": b"os.getcwd"},
    "too much": lambda payload, marker: calling(
        TrainJob.ENTRY, function="gpu::train", payload=payload, more=CANARY + "x" * 10_000_000
    ) | {"origin": "x" * 1_000_000},
    "much that was packed small": lambda payload, marker: {"data": zlib.compress(b" " * 50_000_000)},
    "a time limit that ends every run": lambda payload, marker: {"timeout": "1"},
}  # fmt: skip


def rewrite(rq: redis.Redis, key: str, what: str, marker: Path) -> None:
    """Rewrite a job as one of REWRITES does."""
    for name, value in REWRITES[what](read_payload(rq, key), marker).items():
        rq.hset(key, name, value)


def read_payload(rq: redis.Redis, key: str) -> dict[str, Any]:
    """What a job hands to its worker."""
    data: Any = rq.hget(key, "data")
    payload: dict[str, Any] = json.loads(zlib.decompress(data))[3]["payload"]
    return payload
