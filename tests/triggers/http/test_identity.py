"""Who is let in, to what, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process, opened
from state.private import read_key
from state.records import Role
from state.settings import Settings
from state.tokens import Tokens
from tests.conftest import http_client, served_client
from tests.labs import (
    add_gpu,
    bearer,
    begun,
    curl,
    dump,
    idea,
    open_tag,
    problem,
    refused,
    registered,
    told,
    tried,
)


@pytest.fixture
async def http(process: Process) -> AsyncIterator[httpx.AsyncClient]:
    """HTTP by the operator's key, until a test lets it be somebody else."""
    async with http_client(process) as found:
        yield found


async def as_(process: Process, http: httpx.AsyncClient, name: str, role: Role, **more: Any) -> None:
    """Let this client be somebody."""
    http.headers.update(await bearer(process, name, role, **more))


async def test_a_program_without_a_token_is_local_and_the_key_is_the_operator_s(
    local: httpx.AsyncClient, operator: httpx.AsyncClient
) -> None:
    answers = [(await http.get("/api/token/whoami")).json() for http in (local, operator)]

    assert answers == [
        {"name": "local", "role": "local", "tags": None, "token_id": None},
        {"name": "operator", "role": "operator", "tags": None, "token_id": None},
    ]


async def test_the_key_opens_a_closed_lab_and_no_other_lab(process: Process, settings: Settings) -> None:
    await bearer(process, "me", "operator")
    elsewhere = settings.model_copy(update={"lab": f"{settings.lab}b"})

    async with http_client(process) as http:
        assert (await http.get("/api/token/whoami")).json()["name"] == "operator"
    async with opened("web", elsewhere) as other, http_client(other, by_key=False) as http:
        shown = {"authorization": f"Bearer {read_key(settings)}"}
        problem(await http.get("/api/token/whoami", headers=shown), 401)


async def test_the_key_stands_in_no_redis_key(process: Process, operator: httpx.AsyncClient) -> None:
    key = read_key(process.settings) or ""
    await open_tag(operator)
    for path in ("/api/event/ticket", "/api/token/sign-in", "/api/token/list", "/api/lab/status"):
        answer = await (operator.get(path) if path.endswith("status") else operator.post(path, json={}))
        assert key[-43:] not in answer.text
    async with http_client(process, by_key=False) as browser:
        await browser.post("/api/session", json={"token": key})

    assert key[-43:] not in str(await dump(process.lab, without=frozenset()))


@pytest.mark.parametrize(
    "name", ["forwarded", "via", "x-forwarded-for", "x-forwarded-proto", "x-real-ip", "x-client-ip"]
)
async def test_without_tokens_nobody_comes_through_a_proxy(local: httpx.AsyncClient, name: str) -> None:
    document = problem(await local.get("/api/lab/status", headers={name: "10.1.2.3"}), 401)

    assert "token issue" in document["hint"]


async def test_with_the_first_token_nobody_is_let_in_without_one(
    process: Process, local: httpx.AsyncClient
) -> None:
    http, mine = local, await bearer(process, "me", "operator")

    response = await http.get("/api/lab/status")

    problem(response, 401)
    assert response.headers["www-authenticate"] == "Bearer"
    for path in ("/metrics", "/api/events", "/api/report/tags"):
        problem(await http.get(path), 401)
    for headers in (mine, {"x-worker-token": mine["authorization"].removeprefix("Bearer ")}):
        assert (await http.get("/api/token/whoami", headers=headers)).json()["name"] == "me"


async def test_a_body_of_a_caller_who_may_not_is_never_read(
    process: Process, http: httpx.AsyncClient
) -> None:
    await as_(process, http, "v", "viewer")

    document = problem(await http.post("/api/experiment/register", content=b"no json"), 403)

    assert "agent" in document["detail"]


async def test_an_agent_works_on_its_tags_and_reads_all(process: Process, http: httpx.AsyncClient) -> None:
    for tag in ("mine", "theirs"):
        await open_tag(http, tag)
    theirs = await registered(http, "theirs")
    await as_(process, http, "a", "agent", tags=["mine"])
    before = await dump(process.lab)

    for path, body in (
        ("/api/experiment/setup", {"tag": "new"}),
        ("/api/experiment/register", idea("theirs")),
        ("/api/experiment/submit", idea("theirs")),
        ("/api/experiment/complete", {"experiment_id": theirs, "val_bpb": 1.0}),
        ("/api/experiment/crash", {"experiment_id": theirs, "error": "x"}),
        ("/api/experiment/stop", {"experiment_id": theirs}),
        ("/api/gpu/train", {"experiment_id": theirs}),
        ("/api/pool/acquire", {"experiment_id": theirs}),
        ("/api/search/suggest", {"tag": "theirs"}),
        ("/api/search/adapt", {"tag": "theirs"}),
        ("/api/report/brief", {"tag": "theirs"}),
    ):
        document = await refused(http, 403, path, **body)
        assert "works on mine" in document["detail"]
    problem(await http.get(f"/api/experiment/{theirs}/wait?timeout=0"), 403)

    assert await dump(process.lab) == before
    assert (await http.get(f"/api/experiment/{theirs}")).status_code == 200
    await told(http, "/api/report/summary", tag="theirs")
    await registered(http, "mine")


@pytest.mark.parametrize(
    ("policy", "largest", "allowed"),
    [
        ({"budgets.base_s": 86400}, 660, {"budgets.base_s": 60, "budgets.max_timeout_s": 660}),
        ({"budgets.max_timeout_s": 7 * 86400}, 660, {"budgets.max_timeout_s": 660}),
        ({"budgets.overrun": 1.5}, 1.25, {"budgets.overrun": 1.1}),
        (
            {"stopping.rule": "stochastic", "budgets.extend_s": 121},
            120,
            {"stopping.rule": "stochastic", "budgets.extend_s": 120},
        ),
    ],
    ids=["budget", "time limit", "overrun", "extension"],
)
async def test_an_agent_opens_no_tag_whose_runs_may_take_longer_than_any_other_s(
    process: Process, http: httpx.AsyncClient, policy: dict[str, Any], largest: float, allowed: dict[str, Any]
) -> None:
    ann, olga = await bearer(process, "ann", "agent"), await bearer(process, "olga", "operator")
    http.headers.update(ann)

    document = await refused(http, 403, "/api/experiment/setup", tag="long", policy=policy)

    assert document["largest"] == largest
    assert [*policy][-1] in document["hint"]
    await open_tag(http, "short", policy=allowed)
    http.headers.update(olga)
    await open_tag(http, "long", policy=policy)


async def test_an_agent_does_not_end_what_another_began(process: Process, http: httpx.AsyncClient) -> None:
    await open_tag(http)
    nobodys = await registered(http)
    ann, bob = await bearer(process, "ann", "agent"), await bearer(process, "bob", "agent")
    http.headers.update(ann)
    anns = await registered(http)
    http.headers.update(bob)
    before = await dump(process.lab)

    for path, body in (
        ("/api/experiment/complete", {"val_bpb": 1.0}),
        ("/api/experiment/crash", {"error": "x"}),
        ("/api/experiment/stop", {}),
        ("/api/gpu/train", {}),
        ("/api/pool/acquire", {}),
    ):
        document = await refused(http, 403, path, experiment_id=anns, **body)
        assert "'ann'" in document["detail"]
    problem(await http.get(f"/api/experiment/{anns}/wait?timeout=0"), 403)
    assert await dump(process.lab) == before

    await told(http, "/api/experiment/complete", experiment_id=nobodys, val_bpb=1.0)
    http.headers.update(ann)
    await told(http, "/api/experiment/complete", experiment_id=anns, val_bpb=1.0)


async def test_an_agent_closes_and_reopens_its_own_traces_only(
    process: Process, http: httpx.AsyncClient
) -> None:
    policy = {"traces.mode": "multi", "traces.target_traces": 9, "traces.max_parallel": 9}
    await open_tag(http, policy=policy)
    ann, bob = await bearer(process, "ann", "agent"), await bearer(process, "bob", "agent")
    operator = await bearer(process, "olga", "operator")
    begun = dict[str, dict[str, str]]()
    for who in (operator, ann):
        http.headers.update(who)
        chosen = await told(http, "/api/trace/select", tag="mar11", intent="new_root")
        name = await registered(http, selection_id=chosen["selection_id"])
        await told(http, "/api/experiment/complete", experiment_id=name, val_bpb=1.0)
        begun[chosen["trace_id"]] = who
    await process.lab.command("HDEL", process.lab.keys.trace("mar11-t1"), "owner")  # an earlier version's
    http.headers.update(bob)
    before = await dump(process.lab)

    for trace_id in begun:
        for verb in ("close", "reopen"):
            document = await refused(http, 403, f"/api/trace/{verb}", tag="mar11", trace_id=trace_id)
            assert trace_id in document["detail"]

    assert await dump(process.lab) == before
    for trace_id, who in begun.items():
        for verb in ("close", "reopen"):
            http.headers.update(who)
            await told(http, f"/api/trace/{verb}", tag="mar11", trace_id=trace_id)
    http.headers.update(operator)
    await told(http, "/api/trace/close", tag="mar11", trace_id="mar11-t2")


async def test_an_agent_takes_back_its_own_results_only(process: Process, http: httpx.AsyncClient) -> None:
    await open_tag(http)
    nobodys = (await tried(http, 1.2))["experiment_id"]
    ann, bob = await bearer(process, "ann", "agent"), await bearer(process, "bob", "agent")
    operator = await bearer(process, "olga", "operator")
    http.headers.update(ann)
    first, second = [(await tried(http, value))["experiment_id"] for value in (1.1, 1.0)]
    retraction: dict[str, Any] = {"reason": "wrong data"}

    http.headers.update(bob)
    await refused(http, 403, "/api/experiment/retract", experiment_id=first, **retraction)
    await refused(http, 403, "/api/experiment/retract", experiment_id=nobodys, **retraction)

    http.headers.update(ann)
    await told(http, "/api/experiment/retract", experiment_id=first, **retraction)
    http.headers.update(operator)
    for name in (second, nobodys):
        await told(http, "/api/experiment/retract", experiment_id=name, **retraction)
    assert (await told(http, "/api/lab/audit"))["violations"] == []


async def test_an_agent_gives_back_only_the_gpu_that_it_holds(
    process: Process, http: httpx.AsyncClient
) -> None:
    await add_gpu(http, "g")
    await open_tag(http)
    ann, bob = await bearer(process, "ann", "agent"), await bearer(process, "bob", "agent")
    http.headers.update(ann)
    await told(http, "/api/pool/acquire", experiment_id=await registered(http))

    http.headers.update(bob)
    await refused(http, 403, "/api/pool/release", gpu_id="g")
    http.headers.update(ann)
    await told(http, "/api/pool/release", gpu_id="g")


async def test_a_worker_speaks_for_its_own_gpus_alone(process: Process, http: httpx.AsyncClient) -> None:
    await add_gpu(http, "labs")
    await open_tag(http)
    waiting = await registered(http)
    alice, bert = await bearer(process, "alice", "worker"), await bearer(process, "bert", "worker")
    http.headers.update(alice)
    await add_gpu(http, "alices")
    http.headers.update(bert)
    before = await dump(process.lab)

    for gpu in ("alices", "labs"):
        body = {"gpu_id": gpu, "gpu_index": 0, "gpu_name": "H100", "vram_mb": 1.0}
        await refused(http, 403, "/api/pool/register", **body)
        await refused(http, 403, "/api/pool/heartbeat", gpu_id=gpu)
        await refused(http, 403, "/api/pool/release", gpu_id=gpu)
        await refused(http, 403, "/api/pool/give-back", gpu_id=gpu, fence=1, reason="x")
    lent = await told(http, "/api/pool/acquire", experiment_id=waiting)

    assert not lent["acquired"]
    assert await dump(process.lab) == before
    http.headers.update(alice)
    await told(http, "/api/pool/heartbeat", gpu_id="alices")
    lent = await told(http, "/api/pool/acquire", experiment_id=waiting)
    assert lent["gpu_id"] == "alices"
    http.headers.update(bert)
    await refused(http, 403, "/api/pool/acquire", experiment_id=waiting)


async def test_a_worker_takes_up_nothing_that_an_agent_trains_itself(
    process: Process, http: httpx.AsyncClient
) -> None:
    await open_tag(http)
    alice, ann = await bearer(process, "alice", "worker"), await bearer(process, "ann", "agent")
    http.headers.update(alice)
    await add_gpu(http, "alices")
    http.headers.update(ann)
    anns = await registered(http)
    http.headers.update(alice)
    before = await dump(process.lab)

    refusal = await refused(http, 403, "/api/pool/acquire", experiment_id=anns)
    await refused(http, 403, "/api/experiment/complete", experiment_id=anns, val_bpb=1.0, attempt=0, fence=0)

    assert "'ann'" in refusal["detail"]
    assert await dump(process.lab) == before


async def test_a_worker_fills_no_memory_with_what_it_says_of_its_gpu(
    process: Process, http: httpx.AsyncClient
) -> None:
    await as_(process, http, "alice", "worker")
    await add_gpu(http, "alices")
    gpu = {"gpu_id": "alices", "gpu_index": 0, "gpu_name": "H100", "vram_mb": 1.0}
    before = await dump(process.lab)

    for long in ({"a": "x" * 10_000}, {"x" * 10_000: "1"}):
        await refused(http, 422, "/api/pool/register", **gpu, labels=long)
        await refused(http, 422, "/api/pool/heartbeat", gpu_id="alices", health=long)

    assert await dump(process.lab) == before


async def test_the_lab_s_own_queue_sends_nothing_to_a_gpu_of_somebody_else(
    process: Process, http: httpx.AsyncClient
) -> None:
    await open_tag(http)
    mine = await bearer(process, "me", "operator")
    http.headers.update(await bearer(process, "alice", "worker"))
    await add_gpu(http, "alices")
    http.headers.update(mine)
    queued = await told(http, "/api/experiment/submit", **idea())
    assert (await told(http, "/api/pool/dispatch"))["leased"] == []

    http.headers.pop("authorization")
    await process.invoker.call(
        "pool::register_gpu",
        {"gpu_id": "labs", "gpu_index": 0, "gpu_name": "H100", "vram_mb": 1.0},
        process.invoker.system("keeper"),
    )

    http.headers.update(mine)
    assert (await told(http, "/api/pool/dispatch"))["leased"] == [queued["experiment_id"]]


async def test_a_worker_finishes_only_what_its_own_gpu_runs(
    process: Process, http: httpx.AsyncClient
) -> None:
    await open_tag(http)
    alice, bert = await bearer(process, "alice", "worker"), await bearer(process, "bert", "worker")
    ann = await bearer(process, "ann", "agent")
    http.headers.update(alice)
    await add_gpu(http, "alices")
    http.headers.update(ann)
    tried = await registered(http)
    lent = await told(http, "/api/pool/acquire", experiment_id=tried)
    result = {"experiment_id": tried, "val_bpb": 1.0, "attempt": 0, "fence": lent["fence"]}

    http.headers.update(bert)
    await refused(http, 403, "/api/experiment/complete", **result)
    await refused(http, 403, "/api/experiment/crash", experiment_id=tried, error="x", attempt=0, fence=1)
    http.headers.update(alice)
    for half in ({}, {"attempt": 0}, {"fence": lent["fence"]}):
        await refused(http, 403, "/api/experiment/complete", experiment_id=tried, val_bpb=1.0, **half)
    stale = result | {"fence": lent["fence"] + 7}
    await refused(http, 409, "/api/experiment/complete", **stale)
    assert (await told(http, "/api/experiment/complete", **result))["status"] == "keep"


async def test_the_same_idempotency_key_of_another_caller_is_another_key(
    process: Process, http: httpx.AsyncClient
) -> None:
    await open_tag(http)
    body, key = idea(), {"idempotency-key": "k"}
    answers = []
    for name in ("ann", "bob"):
        headers = await bearer(process, name, "agent") | key
        answers += [await http.post("/api/experiment/register", json=body, headers=headers) for _ in "12"]

    ids = [a.json()["experiment_id"] for a in answers]

    assert ids == ["mar11-1", "mar11-1", "mar11-2", "mar11-2"]
    assert [a.headers.get("idempotent-replayed") for a in answers] == [None, "true", None, "true"]


async def test_who_asks_too_often_is_told_when_to_come_back(
    process: Process, http: httpx.AsyncClient
) -> None:
    slow = process.settings.model_copy(update={"rate_per_s": 0.01})
    async with http_client(Process(**{**vars(process), "settings": slow})) as limited:
        mine = await bearer(process, "me", "viewer")
        answers = [await limited.get("/api/report/tags", headers=mine) for _ in range(3)]

    assert [a.status_code for a in answers] == [200, 429, 429]
    assert 90 <= int(answers[-1].headers["retry-after"]) <= 100
    problem(answers[-1], 429)


async def test_an_enroll_token_opens_nothing_but_its_door(process: Process, http: httpx.AsyncClient) -> None:
    await bearer(process, "me", "operator")
    issued = await process.tokens.issue(name="swarm", role="worker", kind="enroll", uses=1, issued_by="me")

    problem(await http.get("/api/lab/status", headers={"authorization": f"Bearer {issued.text}"}), 403)
    joined = await told(http, "/api/token/enroll", enroll_token=issued.text, name="w1")
    again = await refused(http, 401, "/api/token/enroll", enroll_token=issued.text, name="w2")

    http.headers["authorization"] = f"Bearer {joined['token']}"
    assert (await http.get("/api/token/whoami")).json()["role"] == "worker"
    await add_gpu(http, "w1:gpu0")
    await refused(http, 403, "/api/report/summary", tag="t")
    assert "used up" in again["detail"]


async def test_an_enroll_token_is_used_no_more_often_than_any_other(process: Process) -> None:
    slow = process.settings.model_copy(update={"rate_per_s": 0.01})
    async with opened("web", slow) as limited, http_client(limited) as http:
        await bearer(limited, "me", "operator")
        swarm = await limited.tokens.issue(
            name="swarm", role="worker", kind="enroll", lasts_s=60, issued_by="me"
        )
        asked = [{"enroll_token": swarm.text, "name": f"w{n}"} for n in range(3)]
        answers = [await http.post("/api/token/enroll", json=body) for body in asked]

    assert [a.status_code for a in answers] == [200, 429, 429]


async def test_a_stranger_s_body_is_short(http: httpx.AsyncClient) -> None:
    body = {"enroll_token": "x", "name": "y" * 5000}

    problem(await http.post("/api/token/enroll", json=body), 413)


async def test_a_wait_ends_with_its_token(process: Process, http: httpx.AsyncClient) -> None:
    await open_tag(http)
    await as_(process, http, "ann", "agent")
    waited_for = await registered(http)
    asking = [
        asyncio.create_task(http.get(f"/api/experiment/{waited_for}/wait?timeout=50")),
        asyncio.create_task(curl(http, "/api/pool/acquire", {"experiment_id": waited_for, "wait": 50})),
    ]
    await asyncio.sleep(0.2)

    await process.tokens.revoke((await process.tokens.all())[-1])

    for answer in await asyncio.wait_for(asyncio.gather(*asking), 30):
        assert "revoked" in problem(answer, 401)["detail"]


async def test_rotating_one_s_own_token_needs_no_operator(process: Process, http: httpx.AsyncClient) -> None:
    await as_(process, http, "w", "worker")
    (root, _) = await process.tokens.all()

    await refused(http, 403, "/api/token/rotate", id=root.id)
    rotated = await told(http, "/api/token/rotate", overlap_s=0)

    problem(await http.get("/api/token/whoami"), 401)
    http.headers["authorization"] = f"Bearer {rotated['token']}"
    assert (await http.get("/api/token/whoami")).json()["name"] == "w"


async def test_a_secret_that_was_rotated_out_does_not_rotate_its_token(
    process: Process, http: httpx.AsyncClient
) -> None:
    await as_(process, http, "ann", "agent")
    present = await told(http, "/api/token/rotate", overlap_s=300)
    newer = {"authorization": f"Bearer {present['token']}"}
    assert (await http.get("/api/token/whoami", headers=newer)).status_code == 200
    _, old = await process.tokens.recognise(http.headers["authorization"].removeprefix("Bearer "))
    await Tokens(process.lab).take(old, 1.0)  # at another web process, after the newer one
    before = await dump(process.lab)

    refusal = await refused(http, 403, "/api/token/rotate", overlap_s=0)
    await refused(http, 403, "/api/token/rotate", id=present["id"], overlap_s=86400)

    assert "rotated out" in refusal["detail"]
    assert await dump(process.lab) == before
    assert (await http.get("/api/token/whoami", headers=newer)).status_code == 200


async def test_an_agent_does_not_say_how_a_worker_s_attempt_ended(
    process: Process, http: httpx.AsyncClient
) -> None:
    await add_gpu(http)
    await open_tag(http)
    operators, anns = await bearer(process, "me", "operator"), await bearer(process, "ann", "agent")
    http.headers.update(anns)
    submitted = await told(http, "/api/experiment/submit", **idea())
    http.headers.update(operators)
    await told(http, "/api/pool/dispatch")
    e = await begun(process, submitted["experiment_id"])
    http.headers.update(anns)
    before = await dump(process.lab)

    who = {"experiment_id": e.experiment_id, "attempt": e.attempt, "fence": e.fence}
    await refused(http, 403, "/api/experiment/complete", val_bpb=0.0001, **who)
    await refused(http, 403, "/api/experiment/crash", error="x", **who)
    late = {"experiment_id": e.experiment_id, "attempt": e.attempt}
    await refused(http, 403, "/api/experiment/complete", val_bpb=0.0001, **late)
    await refused(http, 409, "/api/experiment/complete", val_bpb=0.0001, experiment_id=e.experiment_id)

    assert await dump(process.lab) == before


async def test_the_lab_s_own_keeper_takes_a_gpu_over_that_a_stranger_has_named_before(
    process: Process, http: httpx.AsyncClient
) -> None:
    body = {"gpu_id": "labs", "gpu_index": 0, "gpu_name": "H100", "vram_mb": 1.0}
    await as_(process, http, "mallory", "worker")
    await told(http, "/api/pool/register", **body)

    await process.invoker.call("pool::register_gpu", body, process.invoker.system("keeper"))

    for path in ("/api/pool/register", "/api/pool/heartbeat"):
        await refused(http, 403, path, **(body if path.endswith("register") else {"gpu_id": "labs"}))
    http.headers.update(await bearer(process, "me", "operator"))
    await open_tag(http)
    queued = await told(http, "/api/experiment/submit", **idea())
    assert (await told(http, "/api/pool/dispatch"))["leased"] == [queued["experiment_id"]]


async def test_event_streams_end_with_what_opened_them(process: Process) -> None:
    ended: dict[str, float] = {}
    clock = asyncio.get_running_loop().time
    async with served_client(process, by_key=False) as http:

        async def read(name: str, **request: Any) -> None:
            async with http.stream("GET", "/api/events", **request) as stream:
                assert stream.status_code == 200, await stream.aread()
                reading.add(name)
                async for _ in stream.aiter_raw():
                    pass
            ended[name] = clock()

        reading: set[str] = set()
        local = asyncio.create_task(read("local"))
        await until(lambda: "local" in reading)
        ann, bob = await bearer(process, "ann", "viewer"), await bearer(process, "bob", "viewer")
        await asyncio.wait_for(local, 30)  # with the first token nobody stays without one

        _, proof = await process.tokens.recognise(ann["authorization"].removeprefix("Bearer "))
        ticket = (await http.post("/api/event/ticket", headers=ann)).json()["ticket"]
        session = await process.tokens.open_session(proof)
        streams = [
            asyncio.create_task(read("token", headers=ann)),
            asyncio.create_task(read("ticket", params={"ticket": ticket})),
            asyncio.create_task(
                read("session", headers={"cookie": f"nightjar_session_{http.base_url.port}={session.name}"})
            ),
            asyncio.create_task(read("other", headers=bob)),
        ]
        await until(lambda: len(reading) == 5)
        problem(await http.get("/api/events", params={"ticket": ticket}), 401)
        await process.tokens.revoke(await process.tokens.get(proof.token_id))

        await asyncio.wait_for(asyncio.gather(*streams[:3]), 30)
        assert not streams[3].done()
        streams[3].cancel()
        await asyncio.wait(streams)

    assert set(ended) == {"local", "token", "ticket", "session"}


async def test_one_token_does_not_take_every_place_of_the_event_streams(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triggers.sse.STREAMS_EACH", 1)
    async with served_client(process) as http:
        ann, bob = await bearer(process, "ann", "viewer"), await bearer(process, "bob", "viewer")
        async with http.stream("GET", "/api/events", headers=ann) as first:
            second = await http.get("/api/events", headers=ann)
            async with http.stream("GET", "/api/events", headers=bob) as others:
                codes = first.status_code, second.status_code, others.status_code

    assert codes == (200, 429, 200)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.01)
