"""Compares the cost of calls in a tag with 1,000 stored experiments and in one with 100,000.

    .venv/bin/python -P -m bench.scale --many 100000

Two labs use one private Redis (append-only file, as `up` starts it). Calls go through the Invoker, because the
constant cost of HTTP would hide a difference. Calls on the two labs alternate, so that other load on the machine
affects both. Figures are medians in milliseconds.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import click
from rich.table import Table

from bench._report import Bench, call, idea, private_redis
from functions.kernel.process.lifecycle import Process, opened
from tests.crowd import TAG, crowd

TARGET = 1.1
"""Highest ratio of a call's time in the long tag to its time in the short one."""

Act = Callable[[Process], Awaitable[Any]]
_commits = itertools.count(0x1000000)


def ask(name: str, **body: Any) -> Act:
    """A call that only reads."""
    return lambda process: call(process, name, **body)


def an_idea() -> dict[str, object]:
    return idea(TAG, next(_commits), diff="+WIDTH = 96\n" * 20)


async def tried(process: Process) -> None:
    new = await call(process, "experiment::register", **an_idea())
    await call(process, "experiment::complete", experiment_id=new["experiment_id"], val_bpb=1.05)


async def trained(process: Process) -> None:
    """Submit an experiment, dispatch it, stop it and give its GPU back."""
    new = await call(process, "experiment::submit", **an_idea())
    await call(process, "pool::dispatch")
    await call(process, "experiment::wait", experiment_id=new["experiment_id"], timeout=0)
    gpu = (await call(process, "pool::list"))["workers"][0]
    await call(process, "experiment::stop", experiment_id=new["experiment_id"])
    await call(process, "pool::give_back", gpu_id="g0", fence=gpu["fence"], reason="bench")


CALLS: dict[str, Act] = {
    "history (50)": ask("experiment::history", tag=TAG, limit=50),
    "history (discard, 50)": ask("experiment::history", tag=TAG, limit=50, status="discard"),
    "best": ask("experiment::best", tag=TAG),
    "near misses (20)": ask("experiment::near_misses", tag=TAG),
    "suggest": ask("search::suggest_direction", tag=TAG),
    "brief": ask("report::brief", tag=TAG),
    "summary": ask("report::summary", tag=TAG),
    "get": ask("experiment::get", experiment_id=f"{TAG}-500"),
    "wait": ask("experiment::wait", experiment_id=f"{TAG}-500"),
    "register + complete": tried,
    "submit + dispatch + stop": trained,
}


async def a_lab(process: Process, count: int) -> None:
    await call(process, "experiment::setup", tag=TAG)
    await crowd(process.lab, count)


async def measure(few: Process, many: Process, repeats: int) -> dict[str, tuple[float, float]]:
    """Median milliseconds of every call in both labs."""
    found = {}
    for process in (few, many):  # now, since a GPU that was silent for a minute is lent to nobody
        await call(process, "pool::register_gpu", gpu_id="g0", gpu_index=0, gpu_name="H100", vram_mb=80_000.0)
    for label, act in CALLS.items():
        times: tuple[list[float], list[float]] = ([], [])
        for nth in range(repeats + 3):
            for process, its in zip((few, many), times, strict=True):
                begun = time.perf_counter()
                await act(process)
                if nth >= 3:  # the first ones warm up
                    its.append((time.perf_counter() - begun) * 1e3)
        found[label] = (statistics.median(times[0]), statistics.median(times[1]))
    return found


async def run(few: int, many: int, repeats: int, bench: Bench) -> None:
    async with AsyncExitStack() as stack:
        base, labs = stack.enter_context(private_redis()), []
        for count in (few, many):
            settings = base.model_copy(update={"lab": f"scale{count}"})
            process = await stack.enter_async_context(opened("web", settings))
            begun = time.perf_counter()
            await a_lab(process, count)
            click.echo(f"{count} experiments stored in {time.perf_counter() - begun:.0f} s", err=True)
            labs.append(process)
        show(few, many, await measure(labs[0], labs[1], repeats), bench)


def show(few: int, many: int, found: dict[str, tuple[float, float]], bench: Bench) -> None:
    table = Table("call", f"ms at {few:,}", f"ms at {many:,}", "ratio", title=f"target: at most {TARGET}")
    for label, (short, long) in found.items():
        ratio = long / short
        shown = bench.marked(f"{ratio:.2f}", ratio <= TARGET, f"{label}: {ratio:.2f} times")
        table.add_row(label, f"{short:.2f}", f"{long:.2f}", shown)
    bench.console.print(table)


@click.command()
@click.option("--few", default=1_000, show_default=True, type=click.IntRange(500))
@click.option("--many", default=100_000, show_default=True, type=click.IntRange(500))
@click.option("--repeats", default=60, show_default=True, type=click.IntRange(1))
def main(few: int, many: int, repeats: int) -> None:
    """Compare a short tag with a long one; exits with 1 if a call misses the target."""
    bench = Bench()
    asyncio.run(run(few, many, repeats, bench))
    bench.end()


if __name__ == "__main__":
    main()
