"""What tests of a lab share: calls as curl makes them, experiments tried, all of a lab's state to compare."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import httpx
import pytest
from redis import Redis

from functions.kernel.process.lifecycle import Process
from state.change import Change
from state.client import Lab
from state.client_settings import host_name
from state.experiments import Experiments
from state.records import Experiment, Role
from state.rq_jobs import gpu_queue
from state.token_values import Issued
from state.tokens import Tokens
from state.train_queue import broker

FORM = {"content-type": "application/x-www-form-urlencoded"}
"""What `curl -d` sends with its JSON."""
PRESENCE = frozenset(
    {
        "processes",
        "process_facts",
        "open",
        "bindings",
        "token_use",
        "tallies",
        "rates",
        "tries",
        "signing_keys",
        "stored",
    }
)
"""Last-seen stamps, allowances and keys of processes are presence, not state."""
_commits = itertools.count(0xABC0000)


BY_ITSELF = (":processes", ":process_facts", ":tallies", ":token_use")
"""Keys that a process changes now and then, whatever it is asked."""


def before_next_commit(monkeypatch: pytest.MonkeyPatch, meddle: Callable[[], Awaitable[object]]) -> None:
    """Have somebody else do this when the next change has read and decided, and is about to be committed."""
    commit = Change.commit

    async def late(change: Change) -> bool:
        if any(key.endswith(BY_ITSELF) for key in change._keys):
            return await commit(change)
        monkeypatch.setattr(Change, "commit", commit)
        await meddle()
        return await commit(change)

    monkeypatch.setattr(Change, "commit", late)


async def curl(
    http: httpx.AsyncClient, path: str, body: Mapping[str, Any] | str | bytes, **headers: str
) -> httpx.Response:
    """POST as `curl -d '{...}'` does."""
    content = json.dumps(body, ensure_ascii=False).encode() if isinstance(body, Mapping) else body
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await http.post(path, content=content, headers={**FORM, **named})


async def told(http: httpx.AsyncClient, path: str, **fields: Any) -> dict[str, Any]:
    """The answer of a call that has to succeed."""
    response = await curl(http, path, fields)
    assert response.status_code in (200, 202), response.text
    answer: dict[str, Any] = response.json()
    return answer


async def asked(http: httpx.AsyncClient, path: str) -> dict[str, Any]:
    """The answer of a GET that has to succeed."""
    response = await http.get(path)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def refused(http: httpx.AsyncClient, status: int, path: str, **fields: Any) -> dict[str, Any]:
    """The problem document of a call that has to fail with this status."""
    return problem(await curl(http, path, fields), status)


def problem(response: httpx.Response, status: int | None = None) -> dict[str, Any]:
    """A refusal as everybody should get it: a problem document that says what to do."""
    assert response.headers["content-type"].startswith("application/problem+json"), response.text
    document: dict[str, Any] = response.json()
    assert document["status"] == response.status_code < 500, document
    assert status is None or response.status_code == status, document
    assert {"type", "title", "detail"} <= set(document), document
    assert document["hint"], document
    return document


async def open_tag(http: httpx.AsyncClient, tag: str = "mar11", **more: Any) -> dict[str, Any]:
    return await told(http, "/api/experiment/setup", tag=tag, **more)


def idea(tag: str = "mar11", **changes: Any) -> dict[str, Any]:
    """A body of experiment::register, with a commit of its own."""
    return {
        "tag": tag,
        "hypothesis": "a wider MLP learns faster",
        "category": "architecture",
        "commit_sha": f"{next(_commits):07x}",
        "diff_summary": "MLP ratio 4 -> 5",
    } | changes


async def registered(http: httpx.AsyncClient, tag: str = "mar11", **changes: Any) -> str:
    """The id of a new experiment."""
    answer = await told(http, "/api/experiment/register", **idea(tag, **changes))
    return str(answer["experiment_id"])


async def tried(
    http: httpx.AsyncClient,
    value: float,
    tag: str = "mar11",
    *,
    result: Mapping[str, Any] = {},
    **changes: Any,
) -> dict[str, Any]:
    """The verdict on a new experiment with this value."""
    name = await registered(http, tag, **changes)
    return await told(http, "/api/experiment/complete", experiment_id=name, val_bpb=value, **result)


async def crashed(http: httpx.AsyncClient, tag: str = "mar11", **more: Any) -> dict[str, Any]:
    """The answer to a new experiment's crash."""
    name = await registered(http, tag)
    return await told(http, "/api/experiment/crash", **{"experiment_id": name, "error": "boom"} | more)


async def bearer(process: Process, name: str, role: Role, **more: Any) -> dict[str, str]:
    """The header of a new token; the first of a lab is an operator's."""
    if not await process.tokens.are_configured():
        await process.tokens.issue(name="root", role="operator", issued_by="local")
    issued = await process.tokens.issue(name=name, role=role, issued_by="root", **more)
    return {"authorization": f"Bearer {issued.text}"}


async def joined(process: Process, name: str) -> Issued:
    """A worker's token in an open lab, as if its bearer had joined: what operators issue closes the lab."""
    tokens, keys = Tokens(process.lab), process.lab.keys
    root = await tokens.issue(name="passing", role="operator", issued_by="local")
    worker = await tokens.issue(name=name, role="worker", issued_by="passing")
    await process.lab.command("DEL", keys("closed"), keys("tokens", root.token.id))
    await process.lab.command("ZREM", keys("tokens"), root.token.id)
    await process.lab.command("HDEL", keys("token_names"), "passing")
    return worker


async def add_gpu(http: httpx.AsyncClient, gpu_id: str = "host:gpu0", **more: Any) -> dict[str, Any]:
    body = {"gpu_id": gpu_id, "gpu_index": 0, "gpu_name": "H100", "vram_mb": 80000.0} | more
    return await told(http, "/api/pool/register", **body)


async def silence(lab: Lab, gpu_id: str, seconds: float = 61) -> None:
    """As if nothing had been heard of a GPU for so long."""
    await lab.command("HSET", lab.keys.gpu(gpu_id), "heartbeat_at", repr(await lab.now() - seconds))


def handed_over(lab: Lab, gpu_id: str = "host:gpu0") -> list[dict[str, Any]]:
    """What waits in a GPU's queue for its worker."""
    with closing(broker(lab.url)) as connection:
        return [job.kwargs["payload"] for job in gpu_queue(lab.name, gpu_id, connection).jobs]


async def expire(lab: Lab, gpu_id: str) -> None:
    """As if the lease on a GPU had run out a moment ago."""
    ended = f"{await lab.now() - 0.001:.6f}"
    await lab.command("HSET", lab.keys.gpu(gpu_id), "lease_expires_at", ended)
    await lab.command("ZADD", lab.keys("leases"), ended, gpu_id)


async def running(
    http: httpx.AsyncClient, process: Process, tag: str = "mar11", **changes: Any
) -> Experiment:
    """An experiment that a worker trains."""
    submitted = await told(http, "/api/experiment/submit", **idea(tag, **changes))
    await process.invoker.call("pool::dispatch", {}, process.invoker.system("test"))
    return await begun(process, submitted["experiment_id"])


async def begun(process: Process, experiment_id: str) -> Experiment:
    """The leased experiment, as its worker has just begun it."""
    experiments = Experiments(process.lab)
    e = await experiments.get(experiment_id)
    started = await experiments.start(e, attempt=e.attempt, fence=e.fence, runner="host:1:1", lease_s=60)
    assert started, e
    return await experiments.get(experiment_id)


async def waiting(lab: Lab, gpu_id: str | None = None) -> list[Experiment]:
    """The experiments of the common queue, or of this GPU's, in order."""
    return await Experiments(lab).many(await lab.command("ZRANGE", lab.keys.queue(gpu_id), 0, -1))


async def dump(lab: Lab, *, without: frozenset[str] = PRESENCE) -> dict[str, Any]:
    """Everything that stands in the lab, presence aside."""
    cursor, names = "0", set[str]()
    while True:
        cursor, found = await lab.command("SCAN", cursor, "MATCH", f"{{{lab.name}}}:*", "COUNT", 10_000)
        names.update(found)
        if str(cursor) == "0":
            break
    kept = sorted(n for n in names if n.partition(":")[2].partition(":")[0] not in without)
    kinds = await lab.pipeline([("TYPE", name) for name in kept])
    values = await lab.pipeline([_reading(kind, name) for name, kind in zip(kept, kinds, strict=True)])
    return dict(zip(kept, values, strict=True))


def _reading(kind: str, name: str) -> tuple[str | int, ...]:
    match kind:
        case "string":
            return ("STRLEN" if ":diffs:" in name else "GET", name)  # patches are compressed: no text
        case "hash":
            return ("HGETALL", name)
        case "zset":
            return ("ZRANGE", name, 0, -1, "WITHSCORES")
        case "list":
            return ("LRANGE", name, 0, -1)
        case _:
            return ("XRANGE", name, "-", "+")


@contextmanager
def for_a_while(redis: Redis, keys: set[str]) -> Iterator[None]:
    """These keys hold afterwards what they held before."""
    before = {key: redis.dump(key) for key in keys}
    try:
        yield
    finally:
        for key, value in before.items():
            redis.delete(key)
            if value is not None:
                redis.restore(key, 0, value)


async def events_of(process: Process, kind: str) -> list[dict[str, Any]]:
    """Data of all events of a type, oldest first."""
    return [
        dict(e.data) | {"subject": e.subject} for e in await process.stream.last(100_000) if e.type == kind
    ]


def gone(kind: str) -> str:
    """The name of a process of this host that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    return f"{kind}@{host_name()}:{ended.pid}"


async def claimed(
    process: Process,
    function: str,
    until: float,
    *,
    before: float | None = None,
    fire: float | None = None,
    missed: int = 0,
    overlap: str = "skip",
    holds_until: float | None = None,
) -> str:
    """What became of a clock's decision about the firings of a function up to `until`."""
    holds = holds_until or await process.lab.now() + 60
    return await process.schedules.claim(
        function, "every", before, until, fire=fire, missed=missed, overlap=overlap, holds_until=holds
    )


async def eventually(what: Callable[[], object], within_s: float = 60.0) -> None:
    """Wait until this is so, much longer than it should take."""
    async with asyncio.timeout(within_s):
        while not what():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.01)


async def settled(process: Process, *bindings: str) -> None:
    """Wait until these bindings have been given all events, and have finished them."""
    done = {"undelivered": 0, "unacknowledged": 0, "oldest_s": None}
    async with asyncio.timeout(60):
        while True:
            found = (await process.stream.lags())["bindings"]
            if all(found.get(name) == done for name in bindings):
                return
            await asyncio.sleep(0.01)
