"""The wait queue's order: priority, then fair shares between agents, then first come first served."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from functions.kernel.process.lifecycle import opened
from state.decisions import Run
from state.settings import Settings
from tests.functions.conftest import TagUnderTest
from tests.labs import add_gpu, begun, dump, idea, registered, silence, waiting


async def submit(tag: TagUnderTest, agent: str, nth: int, **more: Any) -> str:
    return await tag.submit(hypothesis=f"{agent}{nth}", agent=agent, **more)


@pytest.fixture
async def tag(tag: TagUnderTest) -> TagUnderTest:
    await tag.told("/api/experiment/setup", tag="mar11")
    return tag


async def order(tag: TagUnderTest) -> list[str]:
    return [e.hypothesis for e in await waiting(tag.lab)]


async def test_priority_goes_first_and_agents_take_turns_in_order(tag: TagUnderTest) -> None:
    for nth in range(3):
        await submit(tag, "ada", nth)
    await submit(tag, "bob", 0)
    await submit(tag, "bob", 1)
    await submit(tag, "eve", 0, priority=1)
    assert await order(tag) == ["eve0", "ada0", "bob0", "ada1", "bob1", "ada2"]


async def test_an_agent_that_comes_late_waits_for_no_rounds_that_are_over(tag: TagUnderTest) -> None:
    for nth in range(4):
        await submit(tag, "ada", nth)
    for nth in range(2):
        await add_gpu(tag.client, f"h:{nth}")
    await dispatched(tag)
    await submit(tag, "bob", 0)
    assert await order(tag) == ["bob0", "ada2", "ada3"]


async def had_its_turn(tag: TagUnderTest, experiment: str) -> None:
    """A worker runs the leased experiment to its end and gives the GPU back."""
    e = await begun(tag.process, experiment)
    await tag.report(e, 1.0)
    await tag.free(e)


async def dispatched(tag: TagUnderTest) -> list[str]:
    return list((await tag.told("/api/pool/dispatch"))["leased"])


async def test_pinned_experiments_are_counted_where_they_stand_in_the_way(tag: TagUnderTest) -> None:
    await add_gpu(tag.client, "g0")
    await add_gpu(tag.client, "g1")
    await add_gpu(tag.client, "gone")
    pins = [{} if gpu is None else {"gpu_id": gpu} for gpu in (None, "g0", "g0", "gone", None, "g1")]
    ids = [await submit(tag, agent, 0, **pin) for agent, pin in zip("abcdef", pins, strict=True)]
    await silence(tag.lab, "gone")

    queues = [(await tag.asked(f"/api/experiment/{i}/wait?timeout=0"))["queue"] for i in ids]

    assert [q["position"] for q in queues] == [1, 2, 3, 2, 4, 3]
    assert {q["workers"] for q in queues} == {2}
    assert (await tag.asked("/api/lab/status"))["queue"] == 6


async def test_pinned_experiments_follow_each_other_and_leave_no_queue(tag: TagUnderTest) -> None:
    await add_gpu(tag.client, "g0")
    first, second = [await submit(tag, "ada", nth, gpu_id="g0") for nth in range(2)]
    assert await dispatched(tag) == [first]
    await silence(tag.lab, "g0")
    await tag.told("/api/pool/sweep")
    await add_gpu(tag.client, "g1")
    assert await dispatched(tag) == []
    await tag.told("/api/pool/deregister", gpu_id="g1")
    stopped = await submit(tag, "ada", 2, gpu_id="g0")
    await tag.told("/api/experiment/stop", experiment_id=stopped)
    await tag.told("/api/pool/heartbeat", gpu_id="g0")

    turns = []
    for _ in range(2):
        turns += await dispatched(tag)
        await had_its_turn(tag, turns[-1])

    assert turns == [first, second]
    queues = {tag.lab.keys.queue(), tag.lab.keys.queue("g0")}
    assert not queues & set(await dump(tag.lab))


async def test_an_agent_gets_the_turns_back_that_it_did_not_take(tag: TagUnderTest) -> None:
    given_up = [await submit(tag, "ada", nth) for nth in range(20)]
    for name in given_up:
        await tag.told("/api/experiment/stop", experiment_id=name)
    for nth in range(15):
        await submit(tag, "bob", nth)
    await submit(tag, "ada", 20)
    assert (await order(tag)).index("ada20") == 1


async def test_each_of_one_agent_s_at_once_takes_a_turn(tag: TagUnderTest, settings: Settings) -> None:
    async with opened("web", settings) as other:
        both = [each.invoker for each in (tag.process, other)] * 12
        asks = (i.call("experiment::submit", idea(agent="ada"), i.system("test")) for i in both)
        await asyncio.gather(*asks)

    found = await waiting(tag.lab)
    assert sorted(e.queue_round or 0 for e in found) == list(range(24))


async def test_a_turn_that_was_taken_is_not_given_back(tag: TagUnderTest) -> None:
    await add_gpu(tag.client, "g0")
    await submit(tag, "zoe", 0)
    await submit(tag, "ada", 0)
    await submit(tag, "bob", 0)
    await submit(tag, "bob", 1)
    assert await dispatched(tag) == ["mar11-1"]
    await silence(tag.lab, "g0")
    await tag.told("/api/pool/sweep")

    await tag.told("/api/experiment/stop", experiment_id="mar11-1")
    await submit(tag, "zoe", 1)

    assert await order(tag) == ["ada0", "bob0", "bob1", "zoe1"]


async def test_the_clock_of_the_queue_forgets_agents(tag: TagUnderTest) -> None:
    await add_gpu(tag.client, "g0")
    for nth in range(5):
        await submit(tag, f"agent{nth}", 0)
    await submit(tag, "ada", 0)
    await submit(tag, "ada", 1)
    await submit(tag, "ada", 2)

    remembered: list[set[str]] = []
    while leased := await dispatched(tag):
        clock = await tag.lab.hash(tag.lab.keys("queue_clock"))
        remembered.append({field for field in clock if field.startswith("agent:")})
        await had_its_turn(tag, leased[0])

    assert [len(agents) for agents in remembered] == [6, 6, 6, 6, 6, 6, 1, 0]


async def test_a_gpu_acquired_while_its_experiment_was_being_queued_is_used(tag: TagUnderTest) -> None:
    await add_gpu(tag.client, "g0")
    name = await registered(tag.client)
    experiments = tag.experiments
    before = await experiments.get(name)
    await tag.told("/api/pool/acquire", experiment_id=name)

    late = await experiments.enqueue(before, Run(0, budget_s=1.0, timeout_s=60.0), ["g0"])
    accepted = await tag.told("/api/gpu/train", experiment_id=name)

    assert late is None
    assert accepted["status"] == "leased"


async def test_a_queued_experiment_that_holds_a_gpu_gets_that_one(tag: TagUnderTest) -> None:
    await add_gpu(tag.client, "g0")
    name = await registered(tag.client)
    lease = await tag.told("/api/pool/acquire", experiment_id=name)
    record = tag.lab.keys.experiment(name)
    held = {"gpu_id": lease["gpu_id"], "fence": str(lease["fence"])}
    await tag.lab.command("HDEL", record, *held)
    await tag.told("/api/gpu/train", experiment_id=name)
    await tag.lab.command("HSET", record, *(word for pair in held.items() for word in pair))
    await add_gpu(tag.client, "g1")

    leased = await dispatched(tag)

    e = await tag.experiments.get(name)
    assert leased == [name]
    assert (e.status, e.gpu_id, e.fence) == ("leased", "g0", lease["fence"])
