"""The audit finds nothing in a lab that lives, and every wound that is dealt to one."""

from __future__ import annotations

import httpx
import pytest
from redis import Redis

from functions.kernel.process.lifecycle import Process
from state.noise import class_id
from state.records import Tag
from state.tags import Tags
from tests.labs import add_gpu, bearer, for_a_while, open_tag, registered, told

TAG = "mar11"
NOISE = f"noise:{TAG}:{class_id(None)}"


async def violations(client: httpx.AsyncClient) -> list[str]:
    return list((await told(client, "/api/lab/audit"))["violations"])


@pytest.fixture
async def lived_in(client: httpx.AsyncClient) -> None:
    """A lab with keeps, discards, near misses, crashes, a stop, a lease and a queue."""
    await open_tag(client, TAG)
    categories = ["optimizer" if n % 2 else "attention" for n in range(12)]
    ids = [await registered(client, TAG, category=category) for category in categories]
    for i, value in zip(ids, (1.0, 0.9, 0.901, 0.95, 0.8, 0.8015), strict=False):
        await told(client, "/api/experiment/complete", experiment_id=i, val_bpb=value)
    await told(client, "/api/experiment/crash", experiment_id=ids[6], error="boom")
    await told(client, "/api/experiment/crash", experiment_id=ids[7], error="late", kind="timeout")
    await told(client, "/api/experiment/stop", experiment_id=ids[8])
    for gpu_id in ("h:0", "h:1"):
        await add_gpu(client, gpu_id)
    await told(client, "/api/pool/acquire", experiment_id=ids[9])
    await told(client, "/api/gpu/train", experiment_id=ids[10])
    await told(client, "/api/dimension/define", tag=TAG, profile="mnist")


WOUNDS = {
    "counter": ("HINCRBY", "tags:mar11", "kept", "1"),
    "total": ("HINCRBY", "tags:mar11", "total", "1"),
    "category": ("HINCRBY", "categories:mar11", "optimizer:total", "1"),
    "status index": ("ZREM", "status:mar11:crash", "mar11-7"),
    "finish order": ("ZADD", "finished:mar11", "3", "mar11-7"),
    "best": ("HSET", "best:mar11", "val_bpb", "0.5"),
    "best's experiment": ("HSET", "best:mar11", "experiment_id", "mar11-3"),
    "keeps": ("ZADD", "keeps:mar11", "0.1", "mar11-1"),
    "status index of a category": ("ZREM", "status:mar11:crash:attention", "mar11-7"),
    "noise": ("HINCRBY", NOISE, "df", "1"),
    "run in the noise": ("HSET", NOISE, "runs:other", "[1, 1.0, 0.0, 0, 0.0, 1.0, false]"),
    "near misses": ("ZREM", "near_misses:mar11", "mar11-6"),
    "record": ("HSET", "experiments:mar11-7", "status", "keep"),
    "parent": ("HSET", "experiments:mar11-7", "parent_ids", '["mar11-9"]'),
    "leases": ("ZADD", "leases", "1", "h:1"),
    "flags": ("HSET", "gpu_pool:h:1", "drained", "true"),
    "idle": ("ZADD", "idle_gpus", "1", "h:0"),
    "queue": ("ZADD", "queue", "1", "mar11-12"),
    "queue of the finished": ("ZADD", "queue", "1", "mar11-1"),
    "queue of nobody": ("ZADD", "queue:h:1", "1", "mar11-99"),
    "parked though finished": ("ZADD", "parked:mar11", "1", "mar11-1"),
    "open": ("ZREM", "open", "mar11-12"),
    "open though finished": ("ZADD", "open", "9", "mar11-1"),
    "lease of no GPU": ("ZADD", "leases", "1", "h:9"),
    "idle index of no GPU": ("ZADD", "idle_gpus", "1", "h:9"),
    "parked": ("ZADD", "parked:mar11", "1", "mar11-11"),
    "paused": ("ZADD", "paused", "1", "mar11"),
    "reserved seconds": ("HSET", "tags:mar11", "reserved_gpu_ms", "299999"),
    "reserved runs": ("HINCRBY", "tags:mar11", "reserved_runs", "1"),
    "spent seconds": ("HSET", "tags:mar11", "spent_gpu_ms", "1"),
    "spent runs": ("HINCRBY", "tags:mar11", "spent_runs", "-1"),
    "what is set aside": ("HDEL", "experiments:mar11-11", "reserved_gpu_seconds"),
    "starting": ("ZADD", "starting", "1", "mar11-12"),
    "range": ("HSET", "dimensions:mar11", "values", '[{"name":"LR","dtype":"int","min":5,"max":4}]'),
    "frozen value": ("HSET", "dimensions:mar11", "values", '[{"name":"LR","dtype":"int","frozen":true}]'),
    "closed though no operator has a token": ("SET", "closed", "1"),
}
DEEPER_WOUNDS: dict[str, list[tuple[str, ...]]] = {
    "lease": [
        ("HDEL", "experiments:mar11-10", "gpu_id"),
        ("HSET", "experiments:mar11-10", "status", "running"),
        ("HSET", "gpu_pool:h:0", "holder", "mar11-2"),
    ],
    "finish without event": [("HSET", "experiments:mar11-12", "status", "stopped", "finished_at", "1")],
}


async def test_every_wound_is_found_and_told_as_an_event(
    client: httpx.AsyncClient, process: Process, redis_client: Redis, lived_in: None
) -> None:
    for wound, commands in ({name: [one] for name, one in WOUNDS.items()} | DEEPER_WOUNDS).items():
        dealt = [(verb, f"{process.lab.keys()}:{key}", *words) for verb, key, *words in commands]
        with for_a_while(redis_client, {key for _, key, *_ in dealt}):
            for command in dealt:
                await process.lab.command(*command)

            answer = await told(client, "/api/lab/audit")

            assert not answer["ok"], wound
            assert answer["violations"], wound
            (event,) = await process.stream.last(1)
            assert event.type == "lab.audit_failed"
            assert event.data["count"] == len(answer["violations"])
    healthy = await told(client, "/api/lab/audit")
    assert healthy["violations"] == []
    assert (healthy["ok"], healthy["experiments"], healthy["gpus"]) == (True, 12, 2)


async def test_a_slot_that_a_worker_leaves_which_does_not_serve_it_is_found(
    client: httpx.AsyncClient, process: Process
) -> None:
    await add_gpu(client, "h:0", keeper="h:2:b")
    await process.invoker.system("keeper").invoke("pool::leave", {"gpu_id": "h:0", "keeper": "h:2:b"})
    assert await violations(client) == []

    await process.lab.command("HSET", process.lab.keys.gpu("h:0"), "leaving", "h:1:a")

    assert await violations(client) == ["h:0 takes no runs, because h:1:a leaves it, but h:2:b serves it"]


async def test_an_open_lab_with_operator_tokens_is_found(client: httpx.AsyncClient, process: Process) -> None:
    client.headers.update(await bearer(process, "olga", "operator"))
    assert await violations(client) == []
    await process.lab.command("DEL", process.lab.keys("closed"))
    assert await violations(client) == ["the lab is open, though operators have 2 tokens"]


async def test_a_lab_that_changes_while_it_is_read_is_not_accused(
    client: httpx.AsyncClient, process: Process, lived_in: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, submits = Tags.get, 0

    async def meanwhile(self: Tags, tag: str) -> Tag:
        """Between the experiments and their tag's counters one is queued, and leaves as soon as both are read."""
        nonlocal submits
        submits += 1
        if submits > 3:
            return await read(self, tag)
        key = process.lab.keys.tag(tag)
        await process.lab.command("HINCRBY", key, "reserved_runs", "1")
        found = await read(self, tag)
        await process.lab.command("HINCRBY", key, "reserved_runs", "-1")
        return found

    monkeypatch.setattr(Tags, "get", meanwhile)

    assert await violations(client) == []
    assert submits > 3
