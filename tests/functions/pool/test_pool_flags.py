"""Why a GPU is not lent: each reason stands for itself, and only what was set for it lifts it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process, opened
from functions.pool.rules.leases import broken, why_gone
from state.decisions import BrokenLease, Gone
from state.experiments import Experiments
from state.leases import Holding
from state.pool import Pool
from state.settings import Settings
from tests.conftest import http_client

GPU = "h:0"
HOT: dict[str, Any] = {"temperature_c": 99.0}
FINE: dict[str, Any] = {"temperature_c": 50.0}


class Bench:
    """One GPU of a lab, and those who use it."""

    def __init__(self, http: httpx.AsyncClient, process: Process) -> None:
        self.http = http
        self.process = process
        self.pool = Pool(process.lab)
        self.experiments = Experiments(process.lab)
        self.count = 0

    async def post(self, path: str, *, expect: int = 200, **body: Any) -> Any:
        answer = await self.http.post(f"/api/{path}", json=body)
        assert answer.status_code == expect, answer.text
        return answer.json()

    async def status(self) -> str:
        return str((await self.pool.get(GPU)).status)

    async def sample(self, health: dict[str, Any], times: int = 1) -> None:
        """Samples, each judged as the clock does."""
        for _ in range(times):
            await self.post("pool/heartbeat", gpu_id=GPU, health=health)
            await self.process.invoker.call(
                "gpu::health", {"gpu_id": GPU}, self.process.invoker.system("clock", "cron")
            )

    async def submit(self) -> str:
        self.count += 1
        body: dict[str, Any] = {
            "hypothesis": "h",
            "category": "other",
            "commit_sha": f"{self.count:07x}",
            "diff_summary": "d",
        }
        return str((await self.post("experiment/submit", tag="t", **body))["experiment_id"])

    async def lease(self) -> str:
        """An experiment that is leased to the GPU."""
        experiment = await self.submit()
        assert (await self.post("pool/dispatch"))["leased"] == [experiment]
        return experiment

    async def run(self) -> str:
        """An experiment that a worker runs on the GPU."""
        experiment = await self.lease()
        e = await self.experiments.get(experiment)
        assert await self.experiments.start(e, attempt=e.attempt, fence=e.fence, runner="h:1:1", lease_s=60.0)
        return experiment

    async def expire_lease(self) -> None:
        """The lease ran out long ago, by Redis' clock."""
        lab = self.process.lab
        await lab.command("HSET", lab.keys.gpu(GPU), "lease_expires_at", "1")
        await lab.command("ZADD", lab.keys("leases"), "1", GPU)

    async def fall_silent(self) -> None:
        """The last heartbeat was long ago, by Redis' clock."""
        await self.process.lab.command("HSET", self.process.lab.keys.gpu(GPU), "heartbeat_at", "1")

    async def give_back(self) -> Any:
        fence = (await self.pool.get(GPU)).fence
        return await self.post("pool/give-back", gpu_id=GPU, fence=fence, reason="proven empty")


@pytest.fixture
async def bench(settings: Settings) -> AsyncIterator[Bench]:
    async with opened("web", settings) as process, http_client(process) as http:
        found = Bench(http, process)
        await found.post("experiment/setup", tag="t")
        await found.post("pool/register", gpu_id=GPU, gpu_index=0, gpu_name="x", vram_mb=1)
        yield found


async def test_a_drain_outlives_a_broken_lease_and_the_proof(bench: Bench) -> None:
    await bench.run()
    await bench.post("pool/drain", gpu_id=GPU)
    await bench.expire_lease()

    await bench.post("pool/sweep")
    assert (await bench.post("pool/heartbeat", gpu_id=GPU))["action"] == "prove"
    await bench.give_back()

    assert await bench.status() == "draining"
    assert (await bench.post("pool/drain", gpu_id=GPU, undo=True))["status"] == "idle"


async def test_a_gpu_that_falls_sick_while_lent_finishes_its_run_and_is_not_lent_again(bench: Bench) -> None:
    experiment = await bench.run()
    await bench.sample(HOT)
    assert await bench.status() == "training"

    e = await bench.experiments.get(experiment)
    await bench.post(
        "experiment/complete", experiment_id=experiment, val_bpb=1.0, attempt=e.attempt, fence=e.fence
    )
    await bench.pool.release(GPU, experiment, e.fence, proven=True)

    assert await bench.status() == "unhealthy"
    await bench.sample(FINE, times=2)
    assert await bench.status() == "unhealthy"
    await bench.sample(FINE)
    assert await bench.status() == "idle"


async def test_a_sick_gpu_that_was_silent_comes_back_sick(bench: Bench) -> None:
    await bench.sample(HOT)
    await bench.fall_silent()
    await bench.post("pool/sweep")
    assert await bench.status() == "offline"

    await bench.post("pool/heartbeat", gpu_id=GPU)

    assert await bench.status() == "unhealthy"


async def test_a_gpu_whose_worker_was_away_is_lent_again_as_soon_as_it_is_back(bench: Bench) -> None:
    await bench.sample(FINE)
    await bench.fall_silent()
    await bench.process.lab.command("HSET", bench.process.lab.keys.gpu(GPU), "sampled_at", "1.0")
    await bench.post("pool/sweep")
    clock = bench.process.invoker.system("clock", "cron")
    told = await bench.process.invoker.call("gpu::health", {"gpu_id": GPU}, clock)
    assert "no sample" in str(told)
    assert await bench.status() == "offline"

    await bench.post("pool/register", gpu_id=GPU, gpu_index=0, gpu_name="n", vram_mb=1.0)
    await bench.process.invoker.call("gpu::health", {"gpu_id": GPU}, clock)

    assert await bench.status() == "idle"


async def test_a_run_that_a_worker_has_is_not_released_by_anybody_else(bench: Bench) -> None:
    leased = await bench.lease()
    refused = await bench.post("pool/release", gpu_id=GPU, expect=409)
    assert leased in refused["detail"]
    e = await bench.experiments.get(leased)
    await bench.experiments.start(e, attempt=1, fence=e.fence, runner="h:1:1", lease_s=30)

    await bench.post("pool/release", gpu_id=GPU, experiment_id=leased, fence=e.fence, expect=409)

    assert (await bench.experiments.get(leased)).status == "running"
    assert await bench.status() == "training"


async def test_an_agent_that_gives_a_workers_gpu_back_does_not_replace_the_proof(bench: Bench) -> None:
    experiment = await bench.run()
    e = await bench.experiments.get(experiment)
    held: dict[str, Any] = {"experiment_id": experiment, "fence": e.fence}
    await bench.post("experiment/complete", **held, val_bpb=1.0)

    await bench.post("pool/release", gpu_id=GPU, **held)

    assert await bench.status() == "draining"
    await bench.give_back()
    assert await bench.status() == "idle"


async def test_a_clock_that_goes_back_does_not_prolong_the_grace_after_a_gap(bench: Bench) -> None:
    lab = bench.process.lab
    in_an_hour = await lab.now() + 3600
    await lab.command("HSET", lab.keys("sweep"), "at", repr(in_an_hour), "grace_until", repr(in_an_hour + 60))

    await bench.post("pool/sweep")

    left = float(await lab.command("HGET", lab.keys("sweep"), "grace_until")) - await lab.now()
    assert left <= bench.process.settings.stale_s


async def test_a_lease_that_no_worker_begins_uses_no_attempt_up_and_the_gpu_gets_no_other(
    bench: Bench,
) -> None:
    experiment = await bench.lease()
    await bench.expire_lease()

    swept = await bench.post("pool/sweep")

    assert swept["experiments"] == {experiment: "queued"}
    assert (await bench.experiments.get(experiment)).attempt == 1
    gpu = await bench.pool.get(GPU)
    assert (gpu.status, "did not begin" in (gpu.sick or "")) == ("unhealthy", True)
    assert (await bench.post("pool/dispatch"))["leased"] == []


async def test_a_lease_renewed_after_the_sweep_has_looked_is_not_broken(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = await bench.run()
    await bench.expire_lease()
    e = await bench.experiments.get(experiment)
    seen: list[Gone | None] = []

    def gone(held: Holding) -> BrokenLease | None:
        seen.append(why_gone(held.gpu, held.now, 60.0))
        return seen[-1] and broken(held.gpu, e, seen[-1], reason="late", max_attempts=2)

    finish = Experiments._requeue

    async def late(*given: Any) -> None:
        assert await bench.experiments.renew(experiment, GPU, e.fence, 30.0) == "continue"
        await finish(*given)

    monkeypatch.setattr(Experiments, "_requeue", late)
    assert await bench.experiments.break_lease(GPU, gone) is None

    assert seen == ["expired", None]
    assert (await bench.experiments.get(experiment)).status == "running"


async def test_after_a_gap_without_sweeps_nobody_is_given_up_at_once(bench: Bench) -> None:
    await bench.post("pool/sweep")
    experiment = await bench.run()
    await bench.fall_silent()
    await bench.process.lab.command("HSET", bench.process.lab.keys("sweep"), "at", "1")

    first = await bench.post("pool/sweep")
    second = await bench.post("pool/sweep")

    assert (
        first
        == second
        == {"offline": [], "forgotten": [], "leases_ended": [], "trials": [], "experiments": {}}
    )
    assert (await bench.experiments.get(experiment)).status == "running"
    await bench.process.lab.command("HSET", bench.process.lab.keys("sweep"), "grace_until", "1")
    assert (await bench.post("pool/sweep"))["experiments"] == {experiment: "queued"}


async def served_by(bench: Bench, keeper: str, *, expect: int = 200, **more: Any) -> Any:
    body = {"gpu_id": GPU, "gpu_index": 0, "gpu_name": "x", "vram_mb": 1, "keeper": keeper}
    return await bench.post("pool/register", expect=expect, **body, **more)


async def leave(bench: Bench, keeper: str, *, ended: bool = False) -> None:
    await bench.process.invoker.system("keeper").invoke(
        "pool::leave", {"gpu_id": GPU, "keeper": keeper, "ended": ended}
    )


async def test_a_gpu_has_one_keeper_until_that_has_ended(bench: Bench) -> None:
    await served_by(bench, "h:1:a", labels={"isolation": "bwrap"})

    refused = await served_by(bench, "h:2:b", expect=409, labels={"isolation": "none"})
    assert refused["code"] == "served"
    assert (await bench.pool.get(GPU)).labels == {"isolation": "bwrap"}

    await served_by(bench, "h:2:b", replaced="h:1:a", labels={"isolation": "none"})
    assert (await bench.pool.get(GPU)).labels == {"isolation": "none"}


async def test_a_keeper_takes_nothing_from_the_one_that_replaced_it(bench: Bench) -> None:
    await served_by(bench, "h:2:b")

    for ended in (False, True):
        await leave(bench, "h:1:a", ended=ended)

        assert await bench.status() == "idle"
