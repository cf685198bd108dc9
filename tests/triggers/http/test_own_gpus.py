"""Agents with a token of their own that train themselves, on GPUs that are lent to them only."""

from __future__ import annotations

from collections.abc import AsyncIterator
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
    refused,
    registered,
    silence,
    told,
)

BOX = {"gpu_id": "box:0", "gpu_index": 0, "gpu_name": "H100", "vram_mb": 81559}


@dataclass(frozen=True)
class People:
    """Clients of one lab, each with a token."""

    olga: httpx.AsyncClient
    """Operator."""
    ann: httpx.AsyncClient
    bob: httpx.AsyncClient
    """Agents."""
    wes: httpx.AsyncClient
    """Worker."""


@pytest.fixture
async def people(process: Process) -> AsyncIterator[People]:
    roles: dict[str, Role] = {"olga": "operator", "ann": "agent", "bob": "agent", "wes": "worker"}
    async with AsyncExitStack() as stack:
        clients = {}
        for name, role in roles.items():
            clients[name] = await stack.enter_async_context(http_client(process))
            clients[name].headers.update(await bearer(process, name, role))
        callers = People(**clients)
        await open_tag(callers.olga, policy={"baseline_first": False})
        yield callers
        assert (await told(callers.olga, "/api/lab/audit"))["violations"] == []


async def lent_to(agent: httpx.AsyncClient, **more: Any) -> tuple[str, int]:
    """A new experiment of this agent that holds box:0, and the fence of its lease."""
    name = await registered(agent, **more)
    lease = await told(agent, "/api/pool/acquire", experiment_id=name)
    assert lease["gpu_id"] == "box:0", lease
    return name, lease["fence"]


async def order(agent: httpx.AsyncClient, fence: int) -> str | None:
    """What the agent is told by its heartbeat."""
    action: str | None = (await told(agent, "/api/pool/heartbeat", gpu_id="box:0", fence=fence))["action"]
    return action


async def test_an_agent_registers_a_gpu_trains_on_it_and_gives_it_back(people: People) -> None:
    worker = (await told(people.ann, "/api/pool/register", **BOX))["worker"]
    name, fence = await lent_to(people.ann)
    action = await order(people.ann, fence)
    verdict = await told(people.ann, "/api/experiment/complete", experiment_id=name, val_bpb=1.0)
    released = await told(people.ann, "/api/pool/release", gpu_id="box:0", experiment_id=name)
    forgotten = await told(people.ann, "/api/pool/deregister", gpu_id="box:0")

    assert (worker["owner"], worker["of_agent"]) == ("ann", True)
    assert action is None
    assert verdict["status"] == "keep"
    assert released == {"released": True}
    assert forgotten == {"deregistered": True}


async def test_an_agent_s_gpu_is_lent_to_that_agent_only(people: People) -> None:
    await told(people.ann, "/api/pool/register", **BOX)
    anns, bobs = await registered(people.ann), await registered(people.bob)
    unowned = await registered(people.olga)
    await told(people.olga, "/api/experiment/submit", **idea())

    leased = (await told(people.olga, "/api/pool/dispatch"))["leased"]
    for caller, name in ((people.bob, bobs), (people.olga, unowned), (people.olga, anns)):
        answer = await told(caller, "/api/pool/acquire", experiment_id=name)
        assert (answer["acquired"], answer["reason"]) == (False, "no idle, healthy GPU fits")
    await refused(people.wes, 403, "/api/pool/acquire", experiment_id=anns)

    assert leased == []
    assert (await told(people.ann, "/api/pool/acquire", experiment_id=anns))["gpu_id"] == "box:0"


async def test_an_agent_s_gpu_is_lent_to_that_agent_only_even_where_it_was_just_chosen(
    process: Process, people: People
) -> None:
    await told(people.ann, "/api/pool/register", **BOX)
    pool, bobs = Pool(process.lab), await Experiments(process.lab).get(await registered(people.bob))
    chosen = ["box:0"]  # as it was another's a moment ago

    for agent in (None, "bob"):
        assert await pool.lend(bobs, chosen, lease_s=60, stale_s=60, agent=agent) == "none"


async def test_only_its_agent_speaks_for_an_agent_s_gpu(process: Process, people: People) -> None:
    await told(people.ann, "/api/pool/register", **BOX)
    name, fence = await lent_to(people.ann)
    before = await dump(process.lab)

    for caller in (people.bob, people.wes):
        for path, more in (
            ("register", {k: v for k, v in BOX.items() if k != "gpu_id"}),
            ("heartbeat", {}),
            ("heartbeat", {"fence": fence}),
            ("release", {}),
            ("release", {"experiment_id": name, "fence": fence}),
        ):
            await refused(caller, 403, f"/api/pool/{path}", gpu_id="box:0", **more)
        await refused(caller, 403, "/api/pool/deregister", gpu_id="box:0")
    taken = await refused(people.bob, 403, "/api/pool/register", **BOX)

    assert taken["detail"] == "box:0 was registered by 'ann', not by 'bob'"
    assert "another gpu_id" in taken["hint"]
    assert await dump(process.lab) == before


async def test_an_agent_does_not_take_a_worker_s_gpu_over(process: Process, people: People) -> None:
    keeper = process.invoker.system("keeper")
    await process.invoker.call("pool::register_gpu", BOX, keeper)
    await add_gpu(people.wes, "wes:0")
    before = await dump(process.lab)

    labs = await refused(people.ann, 403, "/api/pool/register", **BOX)
    for gpu_id in ("box:0", "wes:0"):
        await refused(people.ann, 403, "/api/pool/register", **BOX | {"gpu_id": gpu_id})
        await refused(people.ann, 403, "/api/pool/heartbeat", gpu_id=gpu_id)
        await refused(people.ann, 403, "/api/pool/deregister", gpu_id=gpu_id)

    assert labs["detail"] == "box:0 is one of the lab's own workers, not 'ann''s"
    assert await dump(process.lab) == before


async def test_an_agent_s_gpu_is_no_worker_to_wait_for(people: People) -> None:
    await told(people.ann, "/api/pool/register", **BOX)

    submitted = await told(people.ann, "/api/experiment/submit", **idea())
    waited = (await people.ann.get(f"/api/experiment/{submitted['experiment_id']}/wait?timeout=0")).json()
    hints = (await people.olga.get("/api/lab/status")).json()["hints"]

    assert submitted["queue"]["workers"] == waited["queue"]["workers"] == 0
    assert "no worker is there" in submitted["next"]
    assert any("1 experiment waits and no worker is there" in hint for hint in hints)


async def test_the_lab_trains_nothing_on_an_agent_s_gpu_not_even_for_it(people: People) -> None:
    await told(people.ann, "/api/pool/register", **BOX)
    name, _ = await lent_to(people.ann)
    idle = await registered(people.ann)

    held = await refused(people.ann, 409, "/api/gpu/train", experiment_id=name)
    await refused(people.ann, 409, "/api/gpu/train", experiment_id=idle, gpu_id="box:0")
    await refused(people.ann, 409, "/api/experiment/submit", **idea(gpu_id="box:0"))
    await told(people.ann, "/api/pool/release", gpu_id="box:0", experiment_id=name)
    queued = await told(people.ann, "/api/gpu/train", experiment_id=name)

    assert held["detail"] == "box:0 is an agent's own GPU: the lab trains nothing there"
    assert queued["status"] == "queued"


async def test_an_agent_has_so_many_gpus_and_no_more(process: Process, people: People) -> None:
    most = AGENT_GPUS
    boxes = [BOX | {"gpu_id": f"box:{n}"} for n in range(most + 1)]
    for box in boxes[:most]:
        await told(people.ann, "/api/pool/register", **box)

    full = await refused(people.ann, 409, "/api/pool/register", **boxes[most])
    again = await told(people.ann, "/api/pool/register", **boxes[0])
    await told(people.bob, "/api/pool/register", **BOX | {"gpu_id": "bobs:0"})
    await told(people.ann, "/api/pool/deregister", gpu_id="box:0")
    instead = await told(people.ann, "/api/pool/register", **boxes[most])

    assert (full["code"], full["limit"]) == ("gpu_limit", most)
    assert "deregister" in full["hint"]
    assert again["registered"]
    assert instead["registered"]


async def test_a_worker_s_token_has_so_many_gpus_and_no_more(process: Process, people: People) -> None:
    most = WORKER_GPUS
    for n in range(most):
        await add_gpu(people.wes, f"box:{n}")

    full = await refused(people.wes, 409, "/api/pool/register", **BOX | {"gpu_id": "box:more"})
    await add_gpu(people.wes, "box:0")
    await add_gpu(people.olga, "olgas:0")
    await process.invoker.call(
        "pool::register_gpu", BOX | {"gpu_id": "box:1"}, process.invoker.system("keeper")
    )
    await add_gpu(people.wes, "box:instead")
    await told(people.olga, "/api/pool/deregister", gpu_id="box:0")
    await add_gpu(people.wes, "box:more")

    assert (full["code"], full["limit"]) == ("gpu_limit", most)
    assert "operator" in full["hint"]
    await refused(people.wes, 409, "/api/pool/register", **BOX | {"gpu_id": "box:0"})


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

    assert swept["offline"] == ["box:0"]
    assert told_to == "stop"
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


async def test_without_tokens_every_registered_gpu_is_lent_to_every_caller(
    process: Process, client: httpx.AsyncClient
) -> None:
    await open_tag(client, policy={"baseline_first": False})

    await told(client, "/api/pool/register", **BOX)
    queued = (await told(client, "/api/experiment/submit", **idea()))["experiment_id"]

    assert (await told(client, "/api/pool/dispatch"))["leased"] == [queued]
    assert (await begun(process, queued)).gpu_id == "box:0"


async def test_a_name_that_is_given_again_to_a_worker_does_not_bring_the_agent_s_gpus(
    process: Process, people: People
) -> None:
    await told(people.ann, "/api/pool/register", **BOX)
    (anns,) = [token for token in await process.tokens.all() if token.name == "ann"]
    await process.tokens.revoke(anns)  # as if the call had been killed before it forgot the GPUs
    people.ann.headers.update(await bearer(process, "ann", "worker"))

    await refused(people.ann, 403, "/api/pool/register", **BOX)
    await refused(people.ann, 403, "/api/pool/heartbeat", gpu_id="box:0")

    await told(people.olga, "/api/pool/deregister", gpu_id="box:0")
