"""gpu::train in a worker: the lease lasts as long as the run, its preparation included."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import httpx
import pytest

from functions.invoke import Invoker
from functions.lanes import Trained, TrainingJob, TrainingResult, Watcher
from functions.process import Process, opened
from state.errors import Unavailable
from state.experiments import Experiments
from state.settings import Settings
from tests.labs import add_gpu, asked, idea, open_tag, told

LEASE_S = 0.8


class SlowToPrepare:
    """A runner that asks for no order while it prepares."""

    name = "host:1:1"

    def __init__(self, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._meanwhile = meanwhile

    async def run(self, job: TrainingJob, watcher: Watcher, *, metric: str) -> TrainingResult:
        for _ in range(8):
            await asyncio.sleep(LEASE_S / 4)
            await self._meanwhile()
        return Trained({metric: 0.9}, evaluator_hash="e1", gpu_class="H100", log_tail="", metric=0.9)

    async def is_empty(self, job: TrainingJob) -> bool:
        return True


class Broken(SlowToPrepare):
    """A runner with a fault of its own."""

    async def run(self, job: TrainingJob, watcher: Watcher, *, metric: str) -> TrainingResult:
        raise ZeroDivisionError


async def leased(client: httpx.AsyncClient, process: Process) -> dict[str, object]:
    """The request of gpu::train for an experiment that a worker was leased for."""
    await open_tag(client)
    await add_gpu(client)
    await told(client, "/api/experiment/submit", **idea())
    await told(client, "/api/pool/dispatch")
    e = await Experiments(process.lab).get("mar11-1")
    return {"experiment_id": "mar11-1", "attempt": e.attempt, "fence": e.fence}


async def trained(settings: Settings, runner: SlowToPrepare, request: dict[str, object]) -> str:
    """The outcome, as a worker with short leases reports it."""
    short = settings.model_copy(update={"stale_s": LEASE_S})
    async with opened("runner", short, lane="gpu", extra=lambda _: [runner]) as worker:
        invoker: Invoker = worker.invoker
        done = await invoker.call("gpu::train", request, invoker.system("test"))
    return str(done.model_dump()["outcome"])


async def test_a_preparation_longer_than_the_lease_does_not_lose_it(
    client: httpx.AsyncClient, process: Process, settings: Settings
) -> None:
    request = await leased(client, process)

    async def sweep() -> None:
        await told(client, "/api/pool/sweep")

    outcome = await trained(settings, SlowToPrepare(sweep), request)

    shown = (await asked(client, "/api/experiment/mar11-1"))["experiment"]
    assert (outcome, shown["status"], shown["attempt"]) == ("keep", "keep", 1)


@pytest.mark.parametrize("fault", [Unavailable("Redis did not answer in time"), RuntimeError("a bug")])
async def test_a_renewal_that_fails_is_told_and_does_not_end_the_run(
    client: httpx.AsyncClient,
    process: Process,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: Exception,
) -> None:
    request = await leased(client, process)
    renew, left = Experiments.renew, [fault]

    async def failing(*args: object) -> object:
        if left:
            raise left.pop()
        return await renew(*args)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

    async def nothing() -> None:
        pass

    monkeypatch.setattr(Experiments, "renew", failing)
    with caplog.at_level(logging.WARNING):
        outcome = await trained(settings, SlowToPrepare(nothing), request)

    assert outcome == "keep"
    assert "the lease of mar11-1 is not renewed" in caplog.text


async def test_no_renewal_outlives_its_run(
    client: httpx.AsyncClient, process: Process, settings: Settings
) -> None:
    request = await leased(client, process)

    async def nothing() -> None:
        pass

    with pytest.raises(ZeroDivisionError):
        await trained(settings, Broken(nothing), request)

    assert not [t for t in asyncio.all_tasks() if "_renew_until" in str(t.get_coro())]


async def test_a_job_of_a_lease_that_is_over_is_refused(
    client: httpx.AsyncClient, process: Process, settings: Settings
) -> None:
    request = await leased(client, process)

    async def nothing() -> None:
        pass

    outcome = await trained(settings, Broken(nothing), request | {"fence": 99})

    assert outcome == "refused"
