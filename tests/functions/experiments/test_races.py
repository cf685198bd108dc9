"""Many at once, and the same again: every move happens once, whoever repeats it and however they meet."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from state.experiments import Experiments
from tests.labs import (
    add_gpu,
    asked,
    crashed,
    curl,
    dump,
    idea,
    open_tag,
    problem,
    registered,
    told,
)

ONE, TWO = "mar11-1", "mar11-2"


@pytest.fixture
async def lab(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """Two tags, two idle GPUs, two registered experiments and one that crashed."""
    for tag in ("mar11", "apr1"):
        await open_tag(client, tag)
    for gpu_id in ("g0", "g1"):
        await add_gpu(client, gpu_id)
    for _ in range(2):
        await registered(client)
    await crashed(client)
    return client


NATURAL: dict[str, dict[str, Any]] = {
    "/api/experiment/complete": {"experiment_id": ONE, "val_bpb": 0.9},
    "/api/experiment/crash": {"experiment_id": ONE, "error": "boom"},
    "/api/experiment/stop": {"experiment_id": ONE},
    "/api/gpu/train": {"experiment_id": ONE},
    "/api/pool/acquire": {"experiment_id": ONE},
    "/api/pool/release": {"gpu_id": "g0", "experiment_id": TWO, "fence": 1},
    "/api/pool/heartbeat": {"gpu_id": "g0", "fence": 1},
    "/api/pool/register": {"gpu_id": "new", "gpu_index": 0, "gpu_name": "H100", "vram_mb": 1.0},
    "/api/pool/drain": {"gpu_id": "g0"},
}
TIMES = {"replayed", "worker"}


@pytest.mark.parametrize("path", NATURAL)
async def test_what_has_a_natural_key_has_one_effect_however_often_it_is_sent(
    lab: httpx.AsyncClient, process: Process, path: str
) -> None:
    body = NATURAL[path]
    assert (await told(lab, "/api/pool/acquire", experiment_id=TWO))["gpu_id"] == "g0"

    answers = await asyncio.gather(*(told(lab, path, **body) for _ in range(10)))
    once = await quiet(process)
    again = await told(lab, path, **body)

    said = [{k: v for k, v in a.items() if k not in TIMES} for a in [*answers, again]]
    assert all(a == said[0] for a in said)
    assert await quiet(process) == once


async def quiet(process: Process) -> dict[str, Any]:
    """The lab's state without the times of last heartbeats."""
    state = await dump(process.lab, without=frozenset({"processes", "process_facts", "open", "leases"}))
    moving = {"heartbeat_at", "lease_expires_at"}
    return {
        key: {f: v for f, v in value.items() if f not in moving} if isinstance(value, dict) else value
        for key, value in state.items()
    }


STRATEGY, POLICY, REPORT = {"tag": "mar11", "reason": "r"}, {"tag": "mar11"}, {"experiment_id": ONE}
KEYED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "/api/experiment/setup": ({"tag": "may1"}, {"tag": "may2"}),
    "/api/experiment/register": (idea(), idea()),
    "/api/experiment/submit": (idea(), idea()),
    "/api/experiment/stop": ({"experiment_id": ONE}, {"experiment_id": TWO}),
    "/api/experiment/complete": (REPORT | {"val_bpb": 0.9}, REPORT | {"val_bpb": 0.8}),
    "/api/experiment/resume": ({"tag": "mar11"}, {"tag": "apr1"}),
    "/api/search/set-strategy": (STRATEGY | {"mode": "exploit"}, STRATEGY | {"mode": "combine"}),
    "/api/search/set-policy": (
        POLICY | {"policy": {"crash_limit": 4}},
        POLICY | {"policy": {"crash_limit": 5}},
    ),
    "/api/search/adapt": ({"tag": "mar11"}, {"tag": "apr1"}),
    "/api/search/suggest": ({"tag": "mar11"}, {"tag": "apr1"}),
    "/api/pool/deregister": ({"gpu_id": "g0"}, {"gpu_id": "g1"}),
    "/api/gpu/train": ({"experiment_id": ONE}, {"experiment_id": TWO}),
}
"""A body of each, and another one."""
DOORS = [*((path, False) for path in KEYED), ("/api/experiment/register", True), ("/api/gpu/train", True)]
"""A path, and whether the key stands in the body."""


def key_in(body: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Headers and fields of a request with an idempotency key."""
    return ({}, {"request_id": "k"}) if body else ({"idempotency_key": "k"}, {})


async def insisted(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], **headers: str
) -> httpx.Response:
    """Repeat while the first is still being answered, as its `retry_after` asks."""
    while True:
        response = await curl(client, path, body, **headers)
        if response.status_code != 409 or "retry_after" not in response.json():
            return response
        assert response.headers["retry-after"]
        await asyncio.sleep(0.005)


@pytest.mark.parametrize(("path", "in_body"), DOORS)
async def test_what_carries_an_idempotency_key_has_one_effect_however_often_it_is_sent(
    lab: httpx.AsyncClient, process: Process, path: str, in_body: bool
) -> None:
    body, other = KEYED[path]
    headers, named = key_in(in_body)

    answers = await asyncio.gather(*(insisted(lab, path, body | named, **headers) for _ in range(10)))
    once = await quiet(process)
    again = await curl(lab, path, body | named, **headers)
    wrong = await curl(lab, path, other | named, **headers)

    assert {a.status_code for a in answers} <= {200, 202}
    assert len({a.text for a in [*answers, again]}) == 1
    assert again.headers["idempotent-replayed"] == "true"
    assert "another body" in problem(wrong, 422)["detail"]
    assert await quiet(process) == once


async def test_a_refused_request_and_an_unexpected_fault_leave_their_key_free(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = idea()

    async def register() -> int:
        return (await curl(client, "/api/experiment/register", body, idempotency_key="k")).status_code

    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    early = await register()
    await open_tag(client)
    with monkeypatch.context() as patch:
        patch.setattr(Experiments, "register", broken)
        failed = await register()

    assert [early, failed, await register()] == [404, 500, 200]


@pytest.mark.parametrize(
    ("first", "second", "in_body"), [("register", "submit", True), ("submit", "register", False)]
)
async def test_a_key_of_one_function_is_nothing_to_another(
    client: httpx.AsyncClient, first: str, second: str, in_body: bool
) -> None:
    await open_tag(client)
    headers, named = key_in(in_body)
    one = await curl(client, f"/api/experiment/{first}", idea() | named, **headers)
    two = await curl(client, f"/api/experiment/{second}", idea() | named, **headers)
    assert [r.json()["experiment_id"] for r in (one, two)] == ["mar11-1", "mar11-2"]


@pytest.mark.parametrize(("path", "in_body"), [("register", False), ("submit", True)])
async def test_a_registration_is_told_from_another_body_even_where_its_answer_was_lost(
    client: httpx.AsyncClient, process: Process, path: str, in_body: bool
) -> None:
    await open_tag(client)
    headers, named = key_in(in_body)
    body = idea() | named
    first = await curl(client, f"/api/experiment/{path}", body, **headers)
    await forget_answers(process)

    again = await curl(client, f"/api/experiment/{path}", body, **headers)
    await forget_answers(process)
    other = await curl(client, f"/api/experiment/{path}", idea() | named, **headers)

    assert again.json()["experiment_id"] == first.json()["experiment_id"] == "mar11-1"
    assert again.json()["duplicate_of"] is None
    assert "another body" in problem(other, 422)["detail"]
    assert (await told(client, "/api/experiment/history", tag="mar11"))["total"] == 1


async def forget_answers(process: Process) -> None:
    """As if the web process had died before it could keep its answers."""
    for key in await dump(process.lab):
        if ":answers:" in key:
            await process.lab.command("DEL", key)


async def test_a_lease_is_never_answered_from_memory(client: httpx.AsyncClient) -> None:
    await open_tag(client)
    await add_gpu(client, "g0")
    one, two = await registered(client), await registered(client)
    acquire = {"experiment_id": one}
    key = {"idempotency_key": "k"}

    first = await curl(client, "/api/pool/acquire", acquire, **key)
    await curl(client, "/api/pool/release", {"gpu_id": "g0"}, **key)
    await told(client, "/api/pool/acquire", experiment_id=two)
    again = await curl(client, "/api/pool/acquire", acquire, **key)
    released = await curl(client, "/api/pool/release", {"gpu_id": "g0"}, **key)
    pool = await asked(client, "/api/pool/list")

    assert (first.json()["acquired"], again.json()["acquired"]) == (True, False)
    assert released.json() == {"released": True}
    assert pool["idle"] == 1


async def test_a_key_of_a_wrong_length_is_refused(client: httpx.AsyncClient) -> None:
    for key in ("", "x" * 256):
        problem(await curl(client, "/api/experiment/register", idea(), idempotency_key=key), 422)
