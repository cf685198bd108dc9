"""Agents and workers end, report on and lend only what is theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from functions.pool.gpus import AGENT_GPUS, WORKER_GPUS
from state.experiments import Experiments
from state.pool import Pool
from state.records import Role
from tests.conftest import http_client
from tests.labs import (
    add_gpu,
    bearer,
    begun,
    dump,
    idea,
    open_tag,
    problem,
    refused,
    registered,
    silence,
    told,
    tried,
)

GPU = {"gpu_index": 0, "gpu_name": "H100", "vram_mb": 81559}
BOX = {"gpu_id": "box:0", **GPU}
ROLES: Mapping[str, Role] = {"ann": "agent", "bob": "agent", "wes": "worker", "kim": "worker"}


@dataclass(frozen=True)
class People:
    """Clients of one lab, all but its operator with a token."""

    olga: httpx.AsyncClient
    ann: httpx.AsyncClient
    bob: httpx.AsyncClient
    wes: httpx.AsyncClient
    kim: httpx.AsyncClient


@pytest.fixture
async def people(process: Process, operator: httpx.AsyncClient) -> AsyncIterator[People]:
    async with AsyncExitStack() as stack:
        clients = {}
        for name, role in ROLES.items():
            clients[name] = await stack.enter_async_context(http_client(process))
            clients[name].headers.update(await bearer(process, name, role))
        callers = People(operator, **clients)
        traces = {"traces.mode": "multi", "traces.target_traces": 9, "traces.max_parallel": 9}
        await open_tag(callers.olga, policy={"baseline_first": False, **traces})
        yield callers
        assert (await told(callers.olga, "/api/lab/audit"))["violations"] == []


async def lab_s_own(process: Process, gpu_id: str) -> None:
    """Register a GPU as the lab's keeper does."""
    keeper = process.invoker.system("keeper")
    await process.invoker.call("pool::register_gpu", {"gpu_id": gpu_id, **GPU}, keeper)


async def lent_to(agent: httpx.AsyncClient) -> tuple[str, int]:
    """A new experiment of this agent that holds box:0, and the fence of its lease."""
    name = await registered(agent)
    lease = await told(agent, "/api/pool/acquire", experiment_id=name)
    assert lease["gpu_id"] == "box:0", lease
    return name, lease["fence"]


async def order(agent: httpx.AsyncClient, fence: int) -> str | None:
    """What the agent is told by its heartbeat."""
    action: str | None = (await told(agent, "/api/pool/heartbeat", gpu_id="box:0", fence=fence))["action"]
    return action


# -- experiments and traces


async def test_an_agent_works_on_its_tags_and_reads_all(process: Process, people: People) -> None:
    theirs = await registered(people.ann)
    await open_tag(people.olga, "mine")
    http = people.bob
    http.headers.update(await bearer(process, "bo", "agent", tags=["mine"]))
    before = await dump(process.lab)

    for path, body in (
        ("/api/experiment/setup", {"tag": "new"}),
        ("/api/experiment/register", idea()),
        ("/api/experiment/submit", idea()),
        ("/api/experiment/complete", {"experiment_id": theirs, "val_bpb": 1.0}),
        ("/api/experiment/crash", {"experiment_id": theirs, "error": "x"}),
        ("/api/experiment/stop", {"experiment_id": theirs}),
        ("/api/gpu/train", {"experiment_id": theirs}),
        ("/api/pool/acquire", {"experiment_id": theirs}),
        ("/api/search/suggest", {"tag": "mar11"}),
        ("/api/search/adapt", {"tag": "mar11"}),
        ("/api/report/brief", {"tag": "mar11"}),
    ):
        document = await refused(http, 403, path, **body)
        assert "works on mine" in document["detail"]
    problem(await http.get(f"/api/experiment/{theirs}/wait?timeout=0"), 403)

    assert await dump(process.lab) == before
    assert (await http.get(f"/api/experiment/{theirs}")).status_code == 200
    await told(http, "/api/report/summary", tag="mar11")
    await registered(http, "mine")


async def test_an_agent_does_not_end_what_another_began(process: Process, people: People) -> None:
    await add_gpu(people.wes, "weses:0")
    nobodys, anns = await registered(people.olga), await registered(people.ann)
    before = await dump(process.lab)

    for caller, path, body in (
        (people.bob, "/api/experiment/complete", {"val_bpb": 1.0}),
        (people.bob, "/api/experiment/crash", {"error": "x"}),
        (people.bob, "/api/experiment/stop", {}),
        (people.bob, "/api/gpu/train", {}),
        (people.bob, "/api/pool/acquire", {}),
        (people.wes, "/api/pool/acquire", {}),
        (people.wes, "/api/experiment/complete", {"val_bpb": 1.0, "attempt": 0, "fence": 0}),
    ):
        document = await refused(caller, 403, path, experiment_id=anns, **body)
        assert "'ann'" in document["detail"] or "attempt" in body
    problem(await people.bob.get(f"/api/experiment/{anns}/wait?timeout=0"), 403)
    assert await dump(process.lab) == before

    for caller, name in ((people.bob, nobodys), (people.ann, anns)):
        await told(caller, "/api/experiment/complete", experiment_id=name, val_bpb=1.0)
    second = (await tried(people.ann, 0.9))["experiment_id"]
    for name in (nobodys, anns):
        await refused(people.bob, 403, "/api/experiment/retract", experiment_id=name, reason="wrong data")
    for caller, name in ((people.ann, anns), (people.olga, second), (people.olga, nobodys)):
        await told(caller, "/api/experiment/retract", experiment_id=name, reason="wrong data")


async def test_an_agent_closes_and_reopens_its_own_traces_only(process: Process, people: People) -> None:
    begun_by = dict[str, httpx.AsyncClient]()
    for who in (people.olga, people.ann):
        chosen = await told(who, "/api/trace/select", tag="mar11", intent="new_root")
        await tried(who, 1.0, selection_id=chosen["selection_id"])
        begun_by[chosen["trace_id"]] = who
    before = await dump(process.lab)

    for trace_id in begun_by:
        for verb in ("close", "reopen"):
            document = await refused(people.bob, 403, f"/api/trace/{verb}", tag="mar11", trace_id=trace_id)
            assert trace_id in document["detail"]

    assert await dump(process.lab) == before
    for trace_id, who in begun_by.items():
        for verb in ("close", "reopen"):
            await told(who, f"/api/trace/{verb}", tag="mar11", trace_id=trace_id)
    await told(people.olga, "/api/trace/close", tag="mar11", trace_id="mar11-t2")


async def test_an_agent_does_not_say_how_a_worker_s_attempt_ended(process: Process, people: People) -> None:
    await lab_s_own(process, "labs:0")
    submitted = await told(people.ann, "/api/experiment/submit", **idea())
    await told(people.olga, "/api/pool/dispatch")
    e = await begun(process, submitted["experiment_id"])
    before = await dump(process.lab)

    late = {"experiment_id": e.experiment_id, "attempt": e.attempt}
    who = late | {"fence": e.fence}
    await refused(people.ann, 403, "/api/experiment/complete", val_bpb=0.0001, **who)
    await refused(people.ann, 403, "/api/experiment/crash", error="x", **who)
    await refused(people.ann, 403, "/api/experiment/complete", val_bpb=0.0001, **late)
    await refused(people.ann, 409, "/api/experiment/complete", val_bpb=0.0001, experiment_id=e.experiment_id)

    assert await dump(process.lab) == before


async def test_a_worker_finishes_only_what_its_own_gpu_runs(people: People) -> None:
    await add_gpu(people.wes, "weses:0")
    name = await registered(people.ann)
    lent = await told(people.ann, "/api/pool/acquire", experiment_id=name)
    whole = {"attempt": 0, "fence": lent["fence"]}

    await refused(people.kim, 403, "/api/experiment/crash", experiment_id=name, error="x", **whole)
    for caller, status, proof in (
        (people.kim, 403, whole),
        (people.wes, 403, {}),
        (people.wes, 403, {"attempt": 0}),
        (people.wes, 403, {"fence": lent["fence"]}),
        (people.wes, 409, whole | {"fence": lent["fence"] + 7}),
    ):
        await refused(caller, status, "/api/experiment/complete", experiment_id=name, val_bpb=1.0, **proof)
    verdict = await told(people.wes, "/api/experiment/complete", experiment_id=name, val_bpb=1.0, **whole)
    assert verdict["status"] == "keep"


# -- GPUs


async def test_only_its_owner_speaks_for_a_gpu(process: Process, people: People) -> None:
    await told(people.ann, "/api/pool/register", **BOX)
    name, fence = await lent_to(people.ann)
    await add_gpu(people.wes, "weses:0")
    await lab_s_own(process, "labs:0")
    before = await dump(process.lab)

    verbs: Mapping[str, Mapping[str, Any]] = {
        "register": GPU,
        "heartbeat": {},
        "deregister": {},
        "release": {"experiment_id": name, "fence": fence},
        "give-back": {"fence": fence, "reason": "x"},
    }
    for caller, gpu_id, asked in (
        (people.bob, "box:0", verbs),
        (people.wes, "box:0", verbs),
        (people.kim, "weses:0", verbs),
        (people.wes, "labs:0", verbs),
        (people.ann, "weses:0", [*verbs][:3]),
        (people.ann, "labs:0", [*verbs][:3]),
    ):
        for verb in asked:
            await refused(caller, 403, f"/api/pool/{verb}", gpu_id=gpu_id, **verbs[verb])
    await refused(people.bob, 403, "/api/pool/release", gpu_id="box:0")
    await refused(people.bob, 403, "/api/pool/heartbeat", gpu_id="box:0", fence=fence)
    taken = await refused(people.bob, 403, "/api/pool/register", **BOX)
    labs = await refused(people.ann, 403, "/api/pool/register", gpu_id="labs:0", **GPU)

    assert taken["detail"] == "box:0 was registered by 'ann', not by 'bob'"
    assert "another gpu_id" in taken["hint"]
    assert labs["detail"] == "labs:0 is one of the lab's own workers, not 'ann''s"
    assert await dump(process.lab) == before
    await told(people.wes, "/api/pool/heartbeat", gpu_id="weses:0")
    of_a_worker = await told(people.ann, "/api/pool/acquire", experiment_id=await registered(people.ann))
    await refused(people.bob, 403, "/api/pool/release", gpu_id=of_a_worker["gpu_id"])
    await told(people.ann, "/api/pool/release", gpu_id=of_a_worker["gpu_id"])


async def test_an_agent_registers_a_gpu_trains_on_it_and_gives_it_back(people: People) -> None:
    worker = (await told(people.ann, "/api/pool/register", **BOX))["worker"]
    name, fence = await lent_to(people.ann)
    action = await order(people.ann, fence)
    verdict = await told(people.ann, "/api/experiment/complete", experiment_id=name, val_bpb=1.0)
    released = await told(people.ann, "/api/pool/release", gpu_id="box:0", experiment_id=name)
    forgotten = await told(people.ann, "/api/pool/deregister", gpu_id="box:0")

    assert (worker["owner"], worker["of_agent"]) == ("ann", True)
    assert (action, verdict["status"]) == (None, "keep")
    assert (released, forgotten) == ({"released": True}, {"deregistered": True})


async def test_an_agent_s_gpu_is_lent_to_that_agent_only(process: Process, people: People) -> None:
    await told(people.ann, "/api/pool/register", **BOX)
    anns, bobs, unowned = [await registered(who) for who in (people.ann, people.bob, people.olga)]
    await told(people.olga, "/api/experiment/submit", **idea())

    leased = (await told(people.olga, "/api/pool/dispatch"))["leased"]
    for caller, name in ((people.bob, bobs), (people.olga, unowned), (people.olga, anns)):
        answer = await told(caller, "/api/pool/acquire", experiment_id=name)
        assert (answer["acquired"], answer["reason"]) == (False, "no idle, healthy GPU fits")
    chosen = ["box:0"]  # as it was another's a moment ago
    for agent in (None, "bob"):
        e = await Experiments(process.lab).get(bobs)
        assert await Pool(process.lab).lend(e, chosen, lease_s=60, stale_s=60, agent=agent) == "none"

    assert leased == []
    assert (await told(people.ann, "/api/pool/acquire", experiment_id=anns))["gpu_id"] == "box:0"


async def test_a_worker_has_runs_lent_to_its_own_gpus_alone(people: People) -> None:
    await add_gpu(people.wes, "weses:0")
    waits = await registered(people.olga)

    lent = [await told(who, "/api/pool/acquire", experiment_id=waits) for who in (people.kim, people.wes)]

    assert [answer["gpu_id"] for answer in lent] == [None, "weses:0"]
    await refused(people.kim, 403, "/api/pool/acquire", experiment_id=waits)


async def test_the_lab_s_own_keeper_takes_a_gpu_over_that_a_stranger_has_named_before(
    process: Process, people: People
) -> None:
    await told(people.kim, "/api/pool/register", **BOX)
    queued = (await told(people.olga, "/api/experiment/submit", **idea()))["experiment_id"]
    of_a_stranger = (await told(people.olga, "/api/pool/dispatch"))["leased"]

    await lab_s_own(process, "box:0")

    await refused(people.kim, 403, "/api/pool/register", **BOX)
    await refused(people.kim, 403, "/api/pool/heartbeat", gpu_id="box:0")
    assert of_a_stranger == []
    assert (await told(people.olga, "/api/pool/dispatch"))["leased"] == [queued]


async def test_an_agent_s_gpu_is_no_worker_of_the_lab(people: People) -> None:
    await told(people.ann, "/api/pool/register", **BOX)
    submitted = await told(people.ann, "/api/experiment/submit", **idea())
    waited = (await people.ann.get(f"/api/experiment/{submitted['experiment_id']}/wait?timeout=0")).json()
    hints = (await people.olga.get("/api/lab/status")).json()["hints"]
    name, _ = await lent_to(people.ann)
    idle = await registered(people.ann)

    held = await refused(people.ann, 409, "/api/gpu/train", experiment_id=name)
    await refused(people.ann, 409, "/api/gpu/train", experiment_id=idle, gpu_id="box:0")
    await refused(people.ann, 409, "/api/experiment/submit", **idea(gpu_id="box:0"))
    await told(people.ann, "/api/pool/release", gpu_id="box:0", experiment_id=name)
    queued = await told(people.ann, "/api/gpu/train", experiment_id=name)

    assert submitted["queue"]["workers"] == waited["queue"]["workers"] == 0
    assert "no worker is there" in submitted["next"]
    assert any("1 experiment waits and no worker is there" in hint for hint in hints)
    assert held["detail"] == "box:0 is an agent's own GPU: the lab trains nothing there"
    assert queued["status"] == "queued"


async def test_a_token_has_so_many_gpus_and_no_more(process: Process, people: People) -> None:
    for owner, most, remedy in (
        (people.ann, AGENT_GPUS, "deregister"),
        (people.wes, WORKER_GPUS, "operator"),
    ):
        name = f"{remedy}:"
        for nth in range(most):
            await told(owner, "/api/pool/register", gpu_id=f"{name}{nth}", **GPU)

        full = await refused(owner, 409, "/api/pool/register", gpu_id=f"{name}more", **GPU)
        await told(owner, "/api/pool/register", gpu_id=f"{name}0", **GPU)
        await told(people.bob, "/api/pool/register", gpu_id=f"bobs:{name}0", **GPU)
        await told(people.olga, "/api/pool/deregister", gpu_id=f"{name}0")
        await told(owner, "/api/pool/register", gpu_id=f"{name}more", **GPU)

        assert (full["code"], full["limit"]) == ("gpu_limit", most)
        assert remedy in full["hint"]
    await lab_s_own(process, "operator:1")
    await told(people.wes, "/api/pool/register", gpu_id="operator:instead", **GPU)


@pytest.mark.parametrize("long", [{"a": "x" * 10_000}, {"x" * 10_000: "1"}], ids=["text", "name"])
async def test_a_worker_fills_no_memory_with_what_it_says_of_its_gpu(
    process: Process, people: People, long: dict[str, str]
) -> None:
    await told(people.wes, "/api/pool/register", **BOX)
    before = await dump(process.lab)

    await refused(people.wes, 422, "/api/pool/register", **BOX, labels=long)
    await refused(people.wes, 422, "/api/pool/heartbeat", gpu_id="box:0", health=long)

    assert await dump(process.lab) == before


# -- told to stop


async def test_an_agent_that_was_silent_is_told_to_stop_and_may_begin_anew(
    process: Process, people: People
) -> None:
    await told(people.ann, "/api/pool/register", **BOX)
    name, fence = await lent_to(people.ann)

    await silence(process.lab, "box:0")
    swept = await told(people.olga, "/api/pool/sweep")
    told_to = await order(people.ann, fence)
    again = await told(people.ann, "/api/pool/acquire", experiment_id=name)

    assert (swept["offline"], told_to) == (["box:0"], "stop")
    assert (again["gpu_id"], await order(people.ann, again["fence"])) == ("box:0", None)


async def test_a_pause_that_stops_runs_stops_those_that_agents_train_themselves(people: People) -> None:
    await told(people.ann, "/api/pool/register", **BOX)
    name, fence = await lent_to(people.ann)
    waits = await registered(people.ann)

    await told(people.olga, "/api/tag/pause", tag="mar11")
    goes_on = await order(people.ann, fence)
    paused = await told(people.olga, "/api/tag/pause", tag="mar11", stop_running=True)
    stops = await order(people.ann, fence)
    await told(people.ann, "/api/pool/release", gpu_id="box:0", experiment_id=name)
    held_back = await told(people.ann, "/api/pool/acquire", experiment_id=waits)
    await told(people.olga, "/api/tag/unpause", tag="mar11")
    again = await told(people.ann, "/api/pool/acquire", experiment_id=name)

    assert (goes_on, stops) == (None, "stop")
    assert paused["stopping"] == [name]
    assert "paused" in held_back["reason"]
    assert await order(people.ann, again["fence"]) is None


async def test_a_name_that_is_given_again_to_a_worker_does_not_bring_the_agent_s_gpus(
    process: Process, people: People
) -> None:
    await told(people.ann, "/api/pool/register", **BOX)
    (anns,) = [token for token in await process.tokens.all() if token.name == "ann"]
    await process.tokens.revoke(anns)  # as if the call had been killed before it forgot the GPUs
    people.ann.headers.update(await bearer(process, "ann", "worker"))

    await refused(people.ann, 403, "/api/pool/register", **BOX)
    await refused(people.ann, 403, "/api/pool/heartbeat", gpu_id="box:0")
