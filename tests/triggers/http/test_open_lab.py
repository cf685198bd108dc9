"""A lab is open until its first operator's token; a token that is shown there counts, right or wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest

from functions.kernel.contract import BadTable, Call, Function, Http, Request, Response, function
from functions.kernel.invoke import Invoker
from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.table import check
from state.private import read_key
from state.token_values import Issued
from tests.conftest import http_client
from tests.labs import (
    add_gpu,
    bearer,
    dump,
    idea,
    joined,
    open_tag,
    problem,
    refused,
    running,
    told,
    tried,
)
from triggers.http.identity import COOKIE

UNKNOWN = "nj_aaaaaaaaaa_" + "A" * 43
WRONG: list[Mapping[str, str]] = [
    {"authorization": f"Bearer {UNKNOWN}"},
    {"authorization": "Bearer"},
    {"authorization": "Bearer nj_x"},
    {"authorization": "Basic bWU6eA=="},
    {"x-worker-token": UNKNOWN},
    {"cookie": f"{COOKIE}_3111={'A' * 43}"},
]
JOINING = {"worker_id": "w1", "gpu_type": "H100", "baseline_bpb": 1.0}
TOOLS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


class AskWho(Request):
    """No fields."""


class WhoAsked(Response):
    name: str
    role: str
    has_proof: bool


@function("who::knocks", Http("POST", "/who"), role="anyone", knows_caller=True, writes=True)
async def knocks(request: AskWho, call: Call) -> WhoAsked:
    """Say who asks."""
    return WhoAsked(name=call.caller.name, role=call.caller.role, has_proof=call.proof is not None)


@function("who::reads", Http("GET", "/who"), role="viewer", is_public=True)
async def reads(request: AskWho, call: Call) -> WhoAsked:
    """Say who reads."""
    return WhoAsked(name=call.caller.name, role=call.caller.role, has_proof=call.proof is not None)


OPEN: dict[str, Function[Any, Any]] = {one.name: one for one in (knocks, reads)}
STRANGER = {"name": "anyone", "role": "viewer", "has_proof": False}
LOCAL = {"name": "local", "role": "local", "has_proof": False}
ANN = {"name": "ann", "role": "viewer", "has_proof": True}


@asynccontextmanager
async def knocking(process: Process, **changes: Any) -> AsyncIterator[httpx.AsyncClient]:
    """HTTP to the two functions above, with these settings."""
    there = replace(process, settings=process.settings.model_copy(update=changes), invoker=Invoker(OPEN, []))
    async with http_client(there, by_key=False) as found:
        yield found


@pytest.fixture
async def wes(process: Process) -> Issued:
    """The token of a worker who joined the open lab."""
    return await joined(process, "wes")


@pytest.fixture
async def http(process: Process, wes: Issued) -> AsyncIterator[httpx.AsyncClient]:
    async with http_client(process, by_key=False) as found:
        yield found


def by(token: Issued) -> dict[str, str]:
    return {"x-worker-token": token.text}


async def whoami(http: httpx.AsyncClient, headers: Mapping[str, str]) -> Any:
    return (await http.get("/api/token/whoami", headers=dict(headers))).json()


async def test_a_worker_s_token_leaves_the_lab_open_and_is_its_bearer_s(
    process: Process, http: httpx.AsyncClient, wes: Issued
) -> None:
    assert (await whoami(http, {}))["role"] == "local"
    told = await whoami(http, by(wes))
    assert (told["name"], told["role"]) == ("wes", "worker")
    problem(await http.post("/api/lab/audit", json={}, headers=by(wes)), 403)
    problem(await http.post("/api/lab/audit", json={}), 403)
    evaluated = {"tag": "mar11", "evaluator_command": "python prepare.py"}
    problem(await http.post("/api/experiment/setup", json=evaluated), 403)
    key = {"authorization": f"Bearer {read_key(process.settings)}"}
    assert (await http.post("/api/lab/audit", json={}, headers=key)).json()["violations"] == []


async def test_a_wrong_token_is_refused_at_every_door_even_where_none_is_asked_for(
    process: Process, http: httpx.AsyncClient, wes: Issued
) -> None:
    await process.tokens.revoke(wes.token)

    for operator in ("olga", "otto"):  # before the first operator's token, and after
        for headers in (*WRONG, by(wes)):
            shown = {"x-nightjar-page": "1", **headers}
            for path in ("/api/lab/status", "/api/events?since=0", "/metrics", "/api/session", "/health"):
                problem(await http.get(path, headers=dict(headers)), 401)
            for path, body in (("/api/experiment/setup", {"tag": "t"}), ("/register", JOINING)):
                problem(await http.post(path, json=body, headers=shown), 401)
            assert (await http.post("/mcp", json=TOOLS, headers=shown)).status_code == 401
        await bearer(process, operator, "operator")


async def test_a_lab_that_listens_for_other_machines_asks_everybody_for_a_token(process: Process) -> None:
    anywhere = process.settings.model_copy(update={"host": "0.0.0.0"})

    async with http_client(replace(process, settings=anywhere), by_key=False) as http:
        document = problem(await http.get("/api/token/whoami"), 401)

    assert "token issue" in document["hint"]


async def test_without_a_token_results_are_taken_back_and_branches_closed_that_have_no_owner(
    local: httpx.AsyncClient,
) -> None:
    await open_tag(local, policy={"traces.mode": "multi"})
    chosen = await told(local, "/api/trace/select", tag="mar11")
    mine = (await tried(local, 1.0, selection_id=chosen["selection_id"]))["experiment_id"]

    await told(local, "/api/experiment/retract", experiment_id=mine, reason="a bug")
    await told(local, "/api/trace/close", tag="mar11", trace_id=chosen["trace_id"])


async def test_without_a_token_a_worker_speaks_for_the_gpus_that_came_without_one_alone(
    local: httpx.AsyncClient, operator: httpx.AsyncClient, process: Process, wes: Issued
) -> None:
    await add_gpu(operator, "labs")
    await open_tag(local)
    e = await running(local, process)
    other = await http_gpu(local, "mine")
    async with http_client(process, by_key=False) as worker:
        worker.headers.update(by(wes))
        await http_gpu(worker, "weses")
    before = await dump(process.lab)

    report = {"experiment_id": e.experiment_id, "attempt": e.attempt, "fence": e.fence}
    await refused(local, 403, "/api/experiment/complete", val_bpb=0.1, score="trusted", **report)
    await refused(local, 409, "/api/experiment/complete", val_bpb=0.1, experiment_id=e.experiment_id)
    for gpu_id in ("labs", "weses"):
        await refused(local, 403, "/api/pool/heartbeat", gpu_id=gpu_id)
        await refused(local, 403, "/api/pool/leave", gpu_id=gpu_id)
        await refused(local, 403, "/api/pool/next", gpu_id=gpu_id, timeout=0)
        await refused(local, 403, "/api/pool/deregister", gpu_id=gpu_id)
        await refused(local, 403, "/api/pool/register", **gpu(gpu_id))
    assert await dump(process.lab) == before
    assert other["worker"]["owner"] == "local"
    queued = await told(local, "/api/experiment/submit", **idea())
    await told(operator, "/api/pool/dispatch")
    work = (await told(local, "/api/pool/next", gpu_id="mine", timeout=0))["work"]
    assert work["experiment_id"] == queued["experiment_id"]


def gpu(gpu_id: str) -> dict[str, Any]:
    return {"gpu_id": gpu_id, "gpu_index": 0, "gpu_name": "H100", "vram_mb": 1.0, "transport": "http"}


async def http_gpu(http: httpx.AsyncClient, gpu_id: str) -> dict[str, Any]:
    """A GPU whose worker asks for its runs."""
    return await told(http, "/api/pool/register", **gpu(gpu_id))


# -- functions that are open to anyone


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_who_shows_no_token_is_local_in_an_open_lab_and_else_a_stranger_and_a_bearer_is_who_may_read(
    process: Process, wes: Issued, method: str
) -> None:
    async with knocking(process) as http:

        async def who(**headers: str) -> Any:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return (await http.request(method, "/who", headers=named)).json()

        assert (await who(), await who(x_forwarded_for="10.1.2.3")) == (LOCAL, STRANGER)
        ann = await bearer(process, "ann", "viewer")
        assert (await who(), await who(**ann)) == (STRANGER, ANN)
        worker = await who(x_worker_token=wes.text)

    assert worker == (STRANGER if method == "GET" else ANN | {"name": "wes", "role": "worker"})


async def test_without_public_reads_a_stranger_learns_the_counts_of_the_labs_own_swarm_alone(
    process: Process, wes: Issued
) -> None:
    await bearer(process, "olga", "operator")
    ann = await bearer(process, "ann", "viewer")
    hidden = process.settings.model_copy(update={"swarm_public_reads": False})

    async with opened("web", hidden) as other, http_client(other, by_key=False) as http:
        for query in ("", "?tag=swarm"):
            assert (await http.get(f"/health{query}")).json()["status"] == "ok"
        document = problem(await http.get("/health?tag=secret"), 401)
        assert "public" in document["detail"]
        for headers in (ann, by(wes)):
            assert (await http.get("/health?tag=secret", headers=headers)).json()["status"] == "ok"
    async with http_client(process, by_key=False) as http:
        assert (await http.get("/health?tag=secret")).json()["status"] == "ok"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"knows_caller": True, "roles": ("viewer",)}, "knows_caller is for the role anyone"),
        ({"is_public": True, "roles": ("agent",)}, "only what a viewer reads is public"),
        ({"is_public": True, "roles": ("viewer",), "writes": True}, "only what a viewer reads is public"),
        ({"is_public": True, "roles": ("viewer",), "held_for": "timeout"}, "cannot be held"),
        ({"knows_caller": True, "roles": ("anyone",), "held_for": "timeout"}, "cannot be held"),
    ],
)
def test_a_function_that_cannot_be_open_to_anyone_is_refused(changes: dict[str, Any], reason: str) -> None:
    plain = replace(knocks, knows_caller=False, writes=False)

    with pytest.raises(BadTable, match=reason):
        check({"who::knocks": replace(plain, **changes)})
