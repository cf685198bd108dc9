"""What a call costs does not depend on how many experiments are stored: the same commands, the same bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from functions.kernel.process.lifecycle import Process, opened
from state.settings import Settings
from tests.crowd import TAG, crowd
from tests.labs import idea

FEW = 1_000
"""More than any call reads at most."""
A_DAY_S = 86_400.0
"""Nothing is silent for so long while this is measured, however slow the machine."""
OURS = frozenset({"info", "config|resetstat", "ping", "psubscribe", "auth", "hello", "client|setinfo"})
"""Commands of the measuring, and of connections that are made, or asked whether they live."""


async def call(process: Process, name: str, **body: Any) -> dict[str, Any]:
    return (await process.invoker.call(name, body, process.invoker.system("test"))).model_dump()


async def cost(process: Process, act: Callable[[], Awaitable[Any]]) -> tuple[dict[str, int], int]:
    """Redis commands (those of scripts too) that a call takes, by name, and the bytes that Redis sends for it."""
    await process.lab.command("CONFIG", "RESETSTAT")
    await act()
    stats = await process.lab.command("INFO", "stats", "commandstats")
    calls = {
        name.removeprefix("cmdstat_"): int(facts["calls"])
        for name, facts in stats.items()
        if name.startswith("cmdstat_")
    }
    return {name: n for name, n in calls.items() if name not in OURS}, int(stats["total_net_output_bytes"])


async def a_lab(process: Process, count: int) -> None:
    """A lab with so many finished experiments and one idle GPU of two, which is silent but for who asks."""
    await call(process, "experiment::setup", tag=TAG)
    await crowd(process.lab, count)
    await call(process, "search::adapt", tag=TAG)
    for name in ("g0", "g1"):
        gpu = {"gpu_id": name, "gpu_index": 0, "gpu_name": "H100", "vram_mb": 80_000.0}
        await call(process, "pool::register_gpu", **gpu)
    await call(process, "experiment::submit", **idea(TAG, gpu_id="g1"))
    await call(process, "pool::dispatch")  # the first job of all has RQ load its scripts
    while not await process.presence.alive(A_DAY_S):  # noqa: ASYNC110 (its first sign of life, and for a day the last)
        await asyncio.sleep(0.01)


async def a_day(process: Process) -> dict[str, tuple[dict[str, int], int]]:
    """What every call of an agent's and an operator's day costs."""
    costs: dict[str, tuple[dict[str, int], int]] = {}

    async def paid(label: str, name: str, **body: Any) -> dict[str, Any]:
        answers: list[dict[str, Any]] = []

        async def act() -> None:
            answers.append(await call(process, name, **body))

        costs[label] = await cost(process, act)
        return answers[0]

    page = await paid("history", "experiment::history", tag=TAG, limit=50)
    half = {"cursor": page["next_cursor"] // 2}
    for part in (half, {"status": "discard"}, {"category": "optimizer"}, {"order": "oldest"}):
        await paid(f"history by {[*part]}", "experiment::history", tag=TAG, limit=50, **part)
    near = await paid("near misses", "experiment::near_misses", tag=TAG, limit=50)
    assert near["total"] > len(near["near_misses"]) == 50
    for name in ("experiment::best", "search::suggest_direction", "report::brief", "report::summary"):
        await paid(name, name, tag=TAG)
    for name in ("report::tags", "lab::status"):
        await paid(name, name)
    for name in ("experiment::get", "experiment::wait"):
        await paid(name, name, experiment_id=f"{TAG}-{FEW // 2}")

    kept = await paid("register", "experiment::register", **idea(TAG, diff="+x\n", parent_id=f"{TAG}-2"))
    await paid("complete, kept", "experiment::complete", experiment_id=kept["experiment_id"], val_bpb=0.9)
    near_it = await paid("register again", "experiment::register", **idea(TAG, diff="+x\n"))
    await paid(
        "complete, discarded", "experiment::complete", experiment_id=near_it["experiment_id"], val_bpb=0.901
    )
    broken = await paid("register a third", "experiment::register", **idea(TAG))
    await paid("crash", "experiment::crash", experiment_id=broken["experiment_id"], error="boom")
    await paid("adapt and suggest", "search::suggest_direction", tag=TAG)

    queued = await paid("submit", "experiment::submit", **idea(TAG))
    await paid("wait for a turn", "experiment::wait", experiment_id=queued["experiment_id"], timeout=0)
    await paid("pause", "tag::pause", tag=TAG)
    await paid("unpause", "tag::unpause", tag=TAG)
    await paid("budget", "tag::budget", tag=TAG, runs=10**6)
    assert (await paid("dispatch", "pool::dispatch"))["leased"] == [queued["experiment_id"]]
    await paid("stop", "experiment::stop", experiment_id=queued["experiment_id"])
    await paid("sweep", "pool::sweep")
    return costs


@pytest.mark.parametrize("many", [FEW + 500, pytest.param(30 * FEW, marks=pytest.mark.long)])
async def test_many_experiments_cost_what_a_thousand_cost(settings: Settings, many: int) -> None:
    async with AsyncExitStack() as stack:
        days = []
        for count in (FEW, many):
            patient = {"stale_s": 6 * A_DAY_S}
            own = settings.model_copy(update={"lab": f"{settings.lab}-{count}", **patient})
            process = await stack.enter_async_context(opened("web", own))
            await a_lab(process, count)
            days.append(await a_day(process))
            assert await process.lab.command("ZCARD", process.lab.keys("lineage", TAG)) == count + 5

        of_few, of_many = days
        for label, (commands, size) in of_many.items():
            assert commands == of_few[label][0], label
            # An id or a number has a digit or two more; nothing else is longer.
            assert size == pytest.approx(of_few[label][1], rel=0.05, abs=200), label
