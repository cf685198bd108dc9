"""The wait queue's order: priority, then fair shares between agents, then first come first served."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from functions.process.lifecycle import Process, opened
from functions.rules.pool.lending import next_turn
from state.entries import Rounds, Run, WaitQueue
from state.experiments import Experiments
from state.pool import Pool
from state.settings import Settings
from tests.labs import add_gpu, asked, begun, dump, idea, registered, silence, told, waiting


async def submit(client: httpx.AsyncClient, agent: str, nth: int, **more: Any) -> str:
    body = {
        "tag": "mar11",
        "hypothesis": f"{agent}{nth}",
        "category": "other",
        "commit_sha": f"{agent}{nth}".encode().hex().zfill(8),
        "diff_summary": "d",
        "agent": agent,
    }
    answer = await client.post("/api/experiment/submit", json=body | more)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["experiment_id"])


@pytest.fixture(autouse=True)
async def tag(client: httpx.AsyncClient) -> None:
    await client.post("/api/experiment/setup", json={"tag": "mar11"})


async def order(process: Process) -> list[str]:
    return [e.hypothesis for e in await waiting(process.lab)]


async def test_agents_take_turns_and_each_one_s_own_stay_in_order(
    client: httpx.AsyncClient, process: Process
) -> None:
    for nth in range(3):
        await submit(client, "ada", nth)
    await submit(client, "bob", 0)
    await submit(client, "bob", 1)

    assert await order(process) == ["ada0", "bob0", "ada1", "bob1", "ada2"]


async def test_an_agent_that_comes_late_does_not_have_to_wait_for_rounds_that_are_over(
    client: httpx.AsyncClient, process: Process
) -> None:
    for nth in range(4):
        await submit(client, "ada", nth)
    for nth in range(2):
        gpu = {"gpu_id": f"h:{nth}", "gpu_index": nth, "gpu_name": "x", "vram_mb": 1}
        await client.post("/api/pool/register", json=gpu)
    await client.post("/api/pool/dispatch", json={})
    await submit(client, "bob", 0)

    assert await order(process) == ["bob0", "ada2", "ada3"]


async def test_a_higher_priority_goes_first(client: httpx.AsyncClient, process: Process) -> None:
    await submit(client, "ada", 0)
    await submit(client, "ada", 1, priority=7)
    await submit(client, "ada", 2, priority=1)

    assert await order(process) == ["ada1", "ada2", "ada0"]


async def test_the_place_in_the_queue_is_told_with_the_way_to_start_a_worker(
    client: httpx.AsyncClient,
) -> None:
    await submit(client, "ada", 0)
    second = await submit(client, "ada", 1)

    answer = (await client.get(f"/api/experiment/{second}/wait?timeout=0")).json()

    assert answer["queue"] == {"position": 2, "workers": 0}
    assert "./nightjar worker" in answer["next"]


# -- experiments that wait for one GPU


async def had_its_turn(client: httpx.AsyncClient, process: Process, experiment: str) -> None:
    """A worker runs the leased experiment to its end and gives the GPU back."""
    e = await begun(process, experiment)
    result = {"val_bpb": 1.0, "attempt": e.attempt, "fence": e.fence}
    await told(client, "/api/experiment/complete", experiment_id=experiment, **result)
    assert e.gpu_id is not None
    assert await Pool(process.lab).release(e.gpu_id, experiment, e.fence, proven=True) == "ok"


async def dispatched(client: httpx.AsyncClient) -> list[str]:
    return list((await told(client, "/api/pool/dispatch"))["leased"])


async def test_any_number_of_experiments_pinned_to_a_busy_gpu_holds_nobody_up(
    client: httpx.AsyncClient, process: Process
) -> None:
    await add_gpu(client, "busy")
    busy = await submit(client, "eve", 0, gpu_id="busy")
    await dispatched(client)
    for nth in range(1, 301):
        await submit(client, "eve", nth, gpu_id="busy", priority=7)
    other = await submit(client, "ada", 0)
    await add_gpu(client, "free")

    leased = await dispatched(client)

    assert leased == [other]
    assert (await asked(client, f"/api/experiment/{busy}"))["experiment"]["gpu_id"] == "busy"


async def test_a_pinned_experiment_does_not_jump_the_queue(
    client: httpx.AsyncClient, process: Process
) -> None:
    await add_gpu(client, "g0")
    pinned = await submit(client, "ada", 0, gpu_id="g0")
    urgent = await submit(client, "bob", 0, priority=7)

    first = await dispatched(client)
    await had_its_turn(client, process, urgent)
    second = await dispatched(client)

    assert (first, second) == ([urgent], [pinned])


async def test_a_pinned_experiment_gets_its_gpu_where_the_others_find_another(
    client: httpx.AsyncClient,
) -> None:
    await add_gpu(client, "g0")
    await add_gpu(client, "g1")
    common = await submit(client, "ada", 0)
    pinned = await submit(client, "bob", 0, gpu_id="g0")

    assert sorted(await dispatched(client)) == sorted([common, pinned])

    places = {
        i: (await asked(client, f"/api/experiment/{i}"))["experiment"]["gpu_id"] for i in (common, pinned)
    }
    assert places == {common: "g1", pinned: "g0"}


async def test_pinned_experiments_are_counted_where_they_stand_in_the_way(
    client: httpx.AsyncClient, process: Process
) -> None:
    await add_gpu(client, "g0")
    await add_gpu(client, "g1")
    await add_gpu(client, "gone")
    ids = [
        await submit(client, agent, 0, **pin)
        for agent, pin in [
            ("a", {}),
            ("b", {"gpu_id": "g0"}),
            ("c", {"gpu_id": "g0"}),
            ("d", {"gpu_id": "gone"}),
            ("e", {}),
            ("f", {"gpu_id": "g1"}),
        ]
    ]
    await silence(process.lab, "gone")

    queues = [(await asked(client, f"/api/experiment/{i}/wait?timeout=0"))["queue"] for i in ids]

    assert [q["position"] for q in queues] == [1, 2, 3, 2, 4, 3]
    assert {q["workers"] for q in queues} == {2}
    assert (await asked(client, "/api/lab/status"))["queue"] == 6


async def test_a_pinned_experiment_that_is_stopped_waits_no_more(
    client: httpx.AsyncClient, process: Process
) -> None:
    await add_gpu(client, "g0")
    pinned = await submit(client, "ada", 0, gpu_id="g0")

    await told(client, "/api/experiment/stop", experiment_id=pinned)

    assert await waiting(process.lab, "g0") == []
    assert await dispatched(client) == []


async def test_a_pinned_experiment_whose_worker_died_waits_for_its_gpu_again(
    client: httpx.AsyncClient, process: Process
) -> None:
    await add_gpu(client, "g0")
    pinned = await submit(client, "ada", 0, gpu_id="g0")
    await dispatched(client)
    await silence(process.lab, "g0")
    await told(client, "/api/pool/sweep")
    await add_gpu(client, "g1")

    elsewhere = await dispatched(client)
    await told(client, "/api/pool/heartbeat", gpu_id="g0")
    home = await dispatched(client)

    assert (elsewhere, home) == ([], [pinned])


async def test_pinned_experiments_follow_each_other_and_leave_nothing_in_their_queue(
    client: httpx.AsyncClient, process: Process
) -> None:
    await add_gpu(client, "g0")
    first, second = [await submit(client, "ada", nth, gpu_id="g0") for nth in range(2)]
    assert await dispatched(client) == [first]
    await silence(process.lab, "g0")
    await told(client, "/api/pool/sweep")
    await told(client, "/api/pool/heartbeat", gpu_id="g0")

    turns = []
    for _ in range(2):
        turns += await dispatched(client)
        await had_its_turn(client, process, turns[-1])

    assert turns == [first, second]
    queues = {process.lab.keys.queue(), process.lab.keys.queue("g0")}
    assert not queues & set(await dump(process.lab))


async def test_workers_that_fell_silent_are_not_counted(client: httpx.AsyncClient, process: Process) -> None:
    await add_gpu(client, "g0")
    await add_gpu(client, "g1")
    for gpu_id in ("g0", "g1"):
        await silence(process.lab, gpu_id)
    name = await registered(client)

    accepted = await told(client, "/api/gpu/train", experiment_id=name)
    await told(client, "/api/pool/sweep")
    outcome = await asked(client, f"/api/experiment/{name}/wait?timeout=0")

    assert accepted["queue"]["workers"] == outcome["queue"]["workers"] == 0
    assert "./nightjar worker" in outcome["next"]


# -- turns


async def test_an_agent_gets_the_turns_back_that_it_did_not_take(
    client: httpx.AsyncClient, process: Process
) -> None:
    given_up = [await submit(client, "ada", nth) for nth in range(20)]
    for name in given_up:
        await told(client, "/api/experiment/stop", experiment_id=name)
    for nth in range(15):
        await submit(client, "bob", nth)
    await submit(client, "ada", 20)

    assert (await order(process)).index("ada20") == 1


async def test_what_one_agent_submits_at_once_through_two_processes_takes_a_turn_each(
    process: Process, settings: Settings
) -> None:
    async with opened("web", settings) as other:
        await asyncio.gather(
            *(
                each.invoker.call("experiment::submit", idea(agent="ada"), each.invoker.system("test"))
                for each in [process, other] * 12
            )
        )

    found = await waiting(process.lab)
    assert sorted(e.queue_round or 0 for e in found) == list(range(24))


async def test_a_turn_that_was_taken_is_not_given_back(client: httpx.AsyncClient, process: Process) -> None:
    await add_gpu(client, "g0")
    await submit(client, "zoe", 0)
    await submit(client, "ada", 0)
    await submit(client, "bob", 0)
    await submit(client, "bob", 1)
    assert await dispatched(client) == ["mar11-1"]
    await silence(process.lab, "g0")
    await told(client, "/api/pool/sweep")

    await told(client, "/api/experiment/stop", experiment_id="mar11-1")
    await submit(client, "zoe", 1)

    assert await order(process) == ["ada0", "bob0", "bob1", "zoe1"]


async def test_the_clock_of_the_queue_forgets_agents(client: httpx.AsyncClient, process: Process) -> None:
    await add_gpu(client, "g0")
    for nth in range(5):
        await submit(client, f"agent{nth}", 0)
    await submit(client, "ada", 0)
    await submit(client, "ada", 1)
    await submit(client, "ada", 2)

    remembered: list[set[str]] = []
    while leased := await dispatched(client):
        clock = await process.lab.hash(process.lab.keys("queue_clock"))
        remembered.append({field for field in clock if field.startswith("agent:")})
        await had_its_turn(client, process, leased[0])

    assert [len(agents) for agents in remembered] == [6, 6, 6, 6, 6, 6, 1, 0]


# -- an experiment whose agent holds a GPU


async def test_a_gpu_acquired_while_its_experiment_was_being_queued_is_used(
    client: httpx.AsyncClient, process: Process
) -> None:
    await add_gpu(client, "g0")
    name = await registered(client)
    experiments = Experiments(process.lab)
    before = await experiments.get(name)
    await told(client, "/api/pool/acquire", experiment_id=name)

    queue = WaitQueue(Rounds(None, 0), workers=["g0"], paused=False)
    late = await experiments.enqueue(before, Run(0, budget_s=1.0, timeout_s=60.0), queue, next_turn)
    accepted = await told(client, "/api/gpu/train", experiment_id=name)

    assert late is None
    assert accepted["status"] == "leased"


async def test_a_queued_experiment_that_holds_a_gpu_gets_that_one(
    client: httpx.AsyncClient, process: Process
) -> None:
    await add_gpu(client, "g0")
    name = await registered(client)
    lease = await told(client, "/api/pool/acquire", experiment_id=name)
    record = process.lab.keys.experiment(name)
    held = {"gpu_id": lease["gpu_id"], "fence": str(lease["fence"])}
    await process.lab.command("HDEL", record, *held)
    await told(client, "/api/gpu/train", experiment_id=name)
    await process.lab.command("HSET", record, *(word for pair in held.items() for word in pair))
    await add_gpu(client, "g1")

    leased = await dispatched(client)

    e = await Experiments(process.lab).get(name)
    assert leased == [name]
    assert (e.status, e.gpu_id, e.fence) == ("leased", "g0", lease["fence"])
    assert (await told(client, "/api/lab/audit"))["violations"] == []
