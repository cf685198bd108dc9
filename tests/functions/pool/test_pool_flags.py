"""Why a GPU is not lent: each reason stands for itself, and only what was set for it lifts it."""

from __future__ import annotations

from typing import Any

import pytest

from state.pool import Pool
from state.records import Gpu
from tests.functions.conftest import TagUnderTest
from tests.labs import add_gpu, expire, open_tag, registered, silence

GPU = "host:gpu0"
HOT: dict[str, Any] = {"temperature_c": 99.0}
FINE: dict[str, Any] = {"temperature_c": 50.0}


@pytest.fixture
async def tag(tag: TagUnderTest) -> TagUnderTest:
    """A tag in a lab with one GPU."""
    await open_tag(tag.client)
    await add_gpu(tag.client, GPU)
    return tag


async def the_gpu(tag: TagUnderTest) -> Gpu:
    return await Pool(tag.lab).get(GPU)


async def status(tag: TagUnderTest) -> str:
    return str((await the_gpu(tag)).status)


async def judged(tag: TagUnderTest) -> Any:
    """The clock judges the newest sample."""
    clock = tag.process.invoker.system("clock", "cron")
    return await tag.process.invoker.call("gpu::health", {"gpu_id": GPU}, clock)


async def sample(tag: TagUnderTest, health: dict[str, Any], times: int = 1) -> None:
    for _ in range(times):
        await tag.told("/api/pool/heartbeat", gpu_id=GPU, health=health)
        await judged(tag)


async def leased(tag: TagUnderTest) -> str:
    name = await tag.submit()
    assert (await tag.told("/api/pool/dispatch"))["leased"] == [name]
    return name


async def proven_empty(tag: TagUnderTest) -> None:
    """The keeper has looked."""
    fence = (await the_gpu(tag)).fence
    await tag.told("/api/pool/give-back", gpu_id=GPU, fence=fence, reason="proven empty")


async def test_a_drain_outlives_a_broken_lease_and_the_proof(tag: TagUnderTest) -> None:
    await tag.begun(await tag.submit())
    await tag.told("/api/pool/drain", gpu_id=GPU)
    await expire(tag.lab, GPU)
    await tag.told("/api/pool/sweep")
    assert (await tag.told("/api/pool/heartbeat", gpu_id=GPU))["action"] == "prove"
    await proven_empty(tag)
    assert await status(tag) == "draining"
    assert (await tag.told("/api/pool/drain", gpu_id=GPU, undo=True))["status"] == "idle"


async def test_a_gpu_that_falls_sick_while_lent_ends_its_run_and_gets_no_other(tag: TagUnderTest) -> None:
    e = await tag.begun(await tag.submit())
    await sample(tag, HOT)
    assert await status(tag) == "training"

    await tag.report(e, 1.0)
    await tag.free(e)

    assert await status(tag) == "unhealthy"
    await sample(tag, FINE, times=2)
    assert await status(tag) == "unhealthy"
    await sample(tag, FINE)
    assert await status(tag) == "idle"


async def test_a_sick_gpu_that_was_silent_comes_back_sick(tag: TagUnderTest) -> None:
    await sample(tag, HOT)
    await silence(tag.lab, GPU)
    await tag.told("/api/pool/sweep")
    assert await status(tag) == "offline"
    await tag.told("/api/pool/heartbeat", gpu_id=GPU)
    assert await status(tag) == "unhealthy"


async def test_a_gpu_whose_worker_was_away_is_lent_again_as_soon_as_it_is_back(tag: TagUnderTest) -> None:
    await sample(tag, FINE)
    await silence(tag.lab, GPU)
    await tag.lab.command("HSET", tag.lab.keys.gpu(GPU), "sampled_at", "1.0")
    await tag.told("/api/pool/sweep")
    assert "no sample" in str(await judged(tag))
    assert await status(tag) == "offline"

    await add_gpu(tag.client, GPU)
    await judged(tag)

    assert await status(tag) == "idle"


async def test_a_run_that_a_worker_has_is_not_released_by_anybody_else(tag: TagUnderTest) -> None:
    name = await leased(tag)
    assert name in (await tag.refused(409, "/api/pool/release", gpu_id=GPU))["detail"]
    e = await tag.begun(name)
    await tag.refused(409, "/api/pool/release", gpu_id=GPU, experiment_id=name, fence=e.fence)
    assert (await tag.experiments.get(name)).status == "running"
    assert await status(tag) == "training"


async def test_a_lease_is_given_back_by_its_holder_and_with_its_fence_alone(tag: TagUnderTest) -> None:
    name, other = [await registered(tag.client) for _ in range(2)]
    fence = (await tag.told("/api/pool/acquire", experiment_id=name))["fence"]

    await tag.refused(409, "/api/pool/release", gpu_id=GPU, experiment_id=other)
    await tag.refused(409, "/api/pool/release", gpu_id=GPU, experiment_id=name, fence=fence + 1)
    given = await tag.told("/api/pool/give-back", gpu_id=GPU, fence=fence + 1, reason="another's")
    assert given == {"given_back": False, "experiment_status": None}
    assert await status(tag) == "training"

    await tag.told("/api/pool/release", gpu_id=GPU, fence=fence)
    assert await status(tag) == "idle"


async def test_an_agent_that_gives_a_workers_gpu_back_does_not_replace_the_proof(tag: TagUnderTest) -> None:
    e = await tag.begun(await tag.submit())
    await tag.report(e, 1.0)
    await tag.told("/api/pool/release", gpu_id=GPU, experiment_id=e.experiment_id, fence=e.fence)
    assert await status(tag) == "draining"
    await proven_empty(tag)
    assert await status(tag) == "idle"


async def test_a_clock_that_goes_back_does_not_prolong_the_grace_after_a_gap(tag: TagUnderTest) -> None:
    in_an_hour, sweep = await tag.lab.now() + 3600, tag.lab.keys("sweep")
    await tag.lab.command("HSET", sweep, "at", repr(in_an_hour), "grace_until", repr(in_an_hour + 60))
    await tag.told("/api/pool/sweep")
    left = float(await tag.lab.command("HGET", sweep, "grace_until")) - await tag.lab.now()
    assert left <= tag.process.settings.stale_s


async def test_a_lease_that_no_worker_begins_uses_no_attempt_up_nor_gpu(tag: TagUnderTest) -> None:
    name = await leased(tag)
    await expire(tag.lab, GPU)
    swept = await tag.told("/api/pool/sweep")
    assert swept["experiments"] == {name: "queued"}
    assert (await tag.experiments.get(name)).attempt == 1
    gpu = await the_gpu(tag)
    assert (gpu.status, "did not begin" in (gpu.sick or "")) == ("unhealthy", True)
    assert (await tag.told("/api/pool/dispatch"))["leased"] == []


async def test_after_a_gap_without_sweeps_nobody_is_given_up_at_once(tag: TagUnderTest) -> None:
    await tag.told("/api/pool/sweep")
    e = await tag.begun(await tag.submit())
    await silence(tag.lab, GPU)
    sweep = tag.lab.keys("sweep")
    await tag.lab.command("HSET", sweep, "at", "1")

    for _ in range(2):
        swept = await tag.told("/api/pool/sweep")
        assert not any(swept[what] for what in ("offline", "forgotten", "leases_ended", "experiments"))

    assert (await tag.experiments.get(e.experiment_id)).status == "running"
    await tag.lab.command("HSET", sweep, "grace_until", "1")
    assert (await tag.told("/api/pool/sweep"))["experiments"] == {e.experiment_id: "queued"}


async def test_a_gpu_has_one_keeper_until_that_has_ended(tag: TagUnderTest) -> None:
    slot: dict[str, Any] = {"gpu_id": GPU, "gpu_index": 0, "gpu_name": "x", "vram_mb": 1}
    await add_gpu(tag.client, GPU, keeper="h:1:a", labels={"isolation": "bwrap"})

    refused = await tag.refused(
        409, "/api/pool/register", **slot, keeper="h:2:b", labels={"isolation": "none"}
    )
    assert refused["code"] == "served"
    assert (await the_gpu(tag)).labels == {"isolation": "bwrap"}

    await add_gpu(tag.client, GPU, keeper="h:2:b", replaced="h:1:a", labels={"isolation": "none"})
    assert (await the_gpu(tag)).labels == {"isolation": "none"}


async def test_a_keeper_takes_nothing_from_the_one_that_replaced_it(tag: TagUnderTest) -> None:
    await add_gpu(tag.client, GPU, keeper="h:2:b")
    for ended in (False, True):
        leaves = {"gpu_id": GPU, "keeper": "h:1:a", "ended": ended}
        await tag.process.invoker.system("keeper").invoke("pool::leave", leaves)
        assert await status(tag) == "idle"
