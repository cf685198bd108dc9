"""The lease of a worker's run lasts as long as the run, its preparation included."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from functions.kernel.process.lifecycle import Process
from state.errors import Unavailable
from state.experiments import Experiments
from state.records import Footprint
from tests.labs import add_gpu, asked, begun, idea, open_tag, told
from tests.lane import trained
from workers.attempt.job import TrainedRun, TrainingJob, TrainingResult, Unfit, Watcher

LEASE_S = 0.8
BEFORE = Footprint(used_mb=812.25, processes={4711: 800.5})


class OneRunner:
    """A runner that is busy for a while, on a GPU that is as it is told to be before and after its run."""

    name = "host:1:1"
    gpu_id = "host:gpu0"

    def __init__(
        self,
        before: Footprint | Unfit | None = None,
        *,
        empty: bool = True,
        meanwhile: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._before, self._empty, self._meanwhile = before, empty, meanwhile
        self.jobs: list[TrainingJob] = []
        self.proven_by: list[Footprint | None] = []

    async def run(self, job: TrainingJob, watcher: Watcher, *, metric: str) -> TrainingResult:
        self.jobs.append(job)
        if self._meanwhile is not None:
            for _ in range(3):
                await self._meanwhile()
        return TrainedRun({metric: 0.9}, evaluator_hash="e1", gpu_class="H100", log_tail="", metric=0.9)

    async def survey(self) -> Footprint | Unfit | None:
        return self._before

    async def is_empty(self, job: TrainingJob, before: Footprint | None) -> bool:
        self.proven_by.append(before)
        return self._empty


async def broken() -> None:
    raise ZeroDivisionError


async def leased(client: httpx.AsyncClient, **changes: Any) -> None:
    """An experiment that a GPU was lent to."""
    await open_tag(client)
    await add_gpu(client)
    await told(client, "/api/experiment/submit", **idea(**changes))
    await told(client, "/api/pool/dispatch")


async def test_a_lease_is_renewed_until_its_gpu_is_proven_empty_and_idle(client: httpx.AsyncClient) -> None:
    await leased(client)

    async def renewed() -> None:
        before = now = (await the_gpu(client))["lease_expires_at"]
        while now == before:
            now = (await the_gpu(client))["lease_expires_at"]

    runner = OneRunner(BEFORE, meanwhile=renewed)
    assert await trained(client, runner, lease_s=LEASE_S) == "keep"
    gpu = await the_gpu(client)
    assert runner.proven_by == [BEFORE]
    assert (gpu["status"], gpu["unproven"], gpu["footprint"]) == ("idle", False, None)


async def test_a_renewal_that_fails_is_told_and_does_not_end_the_run(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await leased(client)
    renew, failed, renewed = Experiments.renew, asyncio.Event(), asyncio.Event()

    async def failing(*args: Any, **more: Any) -> object:
        if not failed.is_set():
            failed.set()
            raise Unavailable("Redis did not answer in time")
        renewed.set()
        return await renew(*args, **more)

    monkeypatch.setattr(Experiments, "renew", failing)
    with caplog.at_level(logging.WARNING):
        outcome = await trained(client, OneRunner(meanwhile=renewed.wait), lease_s=LEASE_S)

    assert outcome == "keep"
    assert "the lease of mar11-1 is not renewed" in caplog.text


async def test_no_renewal_outlives_its_run_and_a_job_of_an_old_lease_is_refused(
    client: httpx.AsyncClient,
) -> None:
    await leased(client)
    runner = OneRunner(meanwhile=broken)

    assert await trained(client, runner, fence=99) == "refused"
    with pytest.raises(ZeroDivisionError):
        await trained(client, runner)
    assert not [t for t in asyncio.all_tasks() if "_renew_until" in str(t.get_coro())]


async def the_gpu(client: httpx.AsyncClient) -> dict[str, Any]:
    worker: dict[str, Any] = (await asked(client, "/api/pool/list"))["workers"][0]
    return worker


async def test_a_gpu_not_proven_empty_drains_until_its_keeper_proves_it(client: httpx.AsyncClient) -> None:
    await leased(client)

    outcome = await trained(client, OneRunner(BEFORE, empty=False))

    gpu = await the_gpu(client)
    assert (outcome, gpu["status"], gpu["unproven"], gpu["holder"]) == ("keep", "draining", True, None)
    assert Footprint.model_validate(gpu["footprint"]) == BEFORE
    assert (await told(client, "/api/pool/heartbeat", gpu_id="host:gpu0"))["action"] == "prove"
    back = {"gpu_id": "host:gpu0", "fence": gpu["fence"], "reason": "looked"}
    await told(client, "/api/pool/give-back", **back, proven=False)
    assert (await the_gpu(client))["status"] == "draining"
    await told(client, "/api/pool/give-back", **back)
    gpu = await the_gpu(client)
    assert (gpu["status"], gpu["footprint"]) == ("idle", None)
    assert (await told(client, "/api/lab/audit"))["violations"] == []


async def test_an_unfit_worker_leaves_the_experiment_and_uses_no_attempt(client: httpx.AsyncClient) -> None:
    await leased(client)

    outcome = await trained(client, OneRunner(Unfit("its disk is full")))

    shown = (await asked(client, "/api/experiment/mar11-1"))["experiment"]
    assert (outcome, shown["status"], shown["attempt"]) == ("handed back", "queued", 1)
    gpu = await the_gpu(client)
    assert (gpu["status"], gpu["sick"], gpu["consecutive_crashes"]) == ("unhealthy", "its disk is full", 0)
    await add_gpu(client, "host:gpu1")
    assert (await told(client, "/api/pool/dispatch"))["leased"] == ["mar11-1"]


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"+y\n", "is not the one that was registered"), (None, "is in the lab's archive, and this process")],
    ids=["another in its place", "said to be in the archive"],
)
async def test_an_experiment_whose_patch_was_rewritten_is_not_trained_and_its_gpu_is_not_to_blame(
    client: httpx.AsyncClient,
    process: Process,
    caplog: pytest.LogCaptureFixture,
    content: bytes | None,
    why: str,
) -> None:
    await leased(client, diff="+x\n")
    e = await Experiments(process.lab).get("mar11-1")
    key, digest = process.lab.keys("diffs", e.diff_id or ""), e.diff_id or ""
    if content is None:
        await process.lab.command("DEL", key)
        await process.lab.command("ZADD", process.lab.keys("archived"), 1, digest)
    else:
        await process.lab.command("SET", key, zlib.compress(content))
    runner = OneRunner(None)

    outcome = await trained(client, runner)

    [shown] = (await told(client, "/api/experiment/history", tag="mar11"))["experiments"]
    gpu = await the_gpu(client)
    assert (outcome, runner.jobs, shown["status"]) == (None, [], "lost")
    assert why in shown["error"]
    assert (gpu["status"], gpu["sick"], gpu["consecutive_crashes"]) == ("idle", None, 0)
    assert why in caplog.text


async def noted(process: Process, name: str = "mar11-1", **code: Any) -> bool:
    """A worker tells what code it has checked out."""
    experiments = Experiments(process.lab)
    e = await experiments.get(name)
    known: dict[str, Any] = {"tree_id": "tree-1", "patch": None, "differs": False}
    lease: dict[str, Any] = {"attempt": e.attempt, "fence": e.fence}
    return await experiments.note_source(e, **{**lease, **known, **code})


async def test_what_a_worker_found_is_kept_once(client: httpx.AsyncClient, process: Process) -> None:
    await leased(client)
    before_it_began = await noted(process)
    e = await begun(process, "mar11-1")

    first, again = [await noted(process, patch=b"+x\n") for _ in range(2)]
    of_another_fence = await noted(process, fence=e.fence + 1, patch=b"+y\n")

    shown = await asked(client, "/api/experiment/mar11-1")
    assert (before_it_began, first, again, of_another_fence) == (False, True, True, False)
    assert (shown["diff"], shown["experiment"]["tree_id"]) == ("+x\n", "tree-1")
    assert shown["experiment"]["duplicate_of"] is None


async def test_trained_code_is_told_as_a_duplicate(client: httpx.AsyncClient, process: Process) -> None:
    await leased(client)
    await begun(process, "mar11-1")
    await noted(process)
    await told(client, "/api/experiment/submit", **idea(commit_sha="4c1a9f3"))
    await add_gpu(client, gpu_id="h:1")
    await told(client, "/api/pool/dispatch")
    await begun(process, "mar11-2")

    assert await noted(process, "mar11-2")

    assert (await asked(client, "/api/experiment/mar11-2"))["experiment"]["duplicate_of"] == "mar11-1"
