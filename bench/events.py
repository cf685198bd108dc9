"""Costs of the events process: to requests beside it, and to drain a backlog.

    .venv/bin/python -P -m bench.events

One web process on one private Redis answers `experiment::register` and `experiment::complete`, in turn with a running
and without an events process. Both parts of a ratio are measured one after the other. Before a part without it, the
process has handled everything.

The backlog has the events of as many registered and completed experiments, and of their first verdicts. Without an
events process they pile up; then one is started, and the bench notes when each binding has handled all of them.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import Any

import click
import httpx
import uvloop
from rich.table import Table

from bench._report import Bench, private_redis
from bench._servers import ServerProcess, beside, web
from bench.http import Agents, Slice, called, stored
from state.settings import Settings

CALLS = ("experiment::register", "experiment::complete")
LEAST_SHARE = 0.8
"""Target: requests per second with events running, as a share of those without."""
MOST_DRAIN_S = 15.0
"""Target for a backlog of `BACKLOG` events, for each binding."""
BACKLOG = 50_000
PATIENCE_S = 600.0


async def bindings(server: ServerProcess) -> dict[str, Any]:
    """Undelivered and unacknowledged events of each binding."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as http:
        found: dict[str, Any] = (await http.get("/api/lab/status")).json()["events"]["bindings"]
    return found


async def drained(server: ServerProcess) -> dict[str, float]:
    """Wait until each binding has handled everything; seconds until then."""
    begun, found = time.monotonic(), dict[str, float]()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            lags = await bindings(server)
            for name, lag in lags.items():
                if lag["undelivered"] == lag["unacknowledged"] == 0:
                    found.setdefault(name, time.monotonic() - begun)
                else:
                    found.pop(name, None)
            if lags and len(found) == len(lags):
                return found
            await asyncio.sleep(0.1)


async def compared(
    settings: Settings, server: ServerProcess, seconds: float, repeats: int
) -> dict[str, list[tuple[Slice, Slice, float]]]:
    """For each call and repeat: the slice with events, the one without, and CPU seconds of the events process."""
    agents = Agents()
    await stored(server, agents)
    found: dict[str, list[tuple[Slice, Slice, float]]] = {name: [] for name in CALLS}
    for _ in range(repeats):
        for name in CALLS:
            async with beside("triggers.events", settings) as running:
                await drained(server)
                before = running.cpu_s
                with_events = await called(server, name, agents, seconds)
                await drained(server)
                cpu_s = running.cpu_s - before
            if name == "experiment::complete":
                await called(server, "experiment::register", agents, seconds)
            found[name].append((with_events, await called(server, name, agents, seconds), cpu_s))
    return found


async def backlog(settings: Settings, server: ServerProcess, most: int) -> tuple[int, dict[str, float]]:
    """Pile events up, and drain them: their number, and seconds for each binding."""
    agents, written = Agents(), 0
    await stored(server, agents)
    async with beside("triggers.events", settings):
        await drained(server)
    while written < most:
        await called(server, "experiment::register", agents, PATIENCE_S, min(2000, most))
        await called(server, "experiment::complete", agents, PATIENCE_S)
        written = max(lag["undelivered"] or 0 for lag in (await bindings(server)).values())
    async with beside("triggers.events", settings):
        return written, await drained(server)


async def run(settings: Settings, seconds: float, repeats: int, most: int, bench: Bench) -> None:
    """Measure and print."""
    async with web(settings) as server:
        found = await compared(settings, server, seconds, repeats)
    shown = Table("call", "requests/s with events", "without", "share", "CPU ms of events for a request")
    for name, its in found.items():
        share = median(having.served.rate / lacking.served.rate for having, lacking, _ in its)
        shown.add_row(
            name,
            f"{median(having.served.rate for having, _, _ in its):,.0f}",
            f"{median(lacking.served.rate for _, lacking, _ in its):,.0f}",
            bench.marked(
                f"{share:.2f} (>= {LEAST_SHARE})",
                share >= LEAST_SHARE,
                f"{name}: share is {share:.2f}, target >= {LEAST_SHARE}",
            ),
            f"{median(1e3 * cpu_s / len(having.served.times) for having, _, cpu_s in its):.2f}",
        )
    bench.console.print(shown)
    if most:
        own = settings.model_copy(update={"lab": "backlog"})
        async with web(own) as server:
            written, times = await backlog(own, server, most)
        allowed = MOST_DRAIN_S * written / BACKLOG
        shown = Table("binding", f"s for {written:,} events")
        for name, took in sorted(times.items(), key=lambda each: -each[1]):
            missed = f"{name}: {took:.1f} s for {written:,} events, target <= {allowed:.1f}"
            shown.add_row(name, bench.marked(f"{took:.1f}", took <= allowed, missed))
        bench.console.print(shown)


@click.command()
@click.option("--seconds", default=3.0, show_default=True, type=click.FloatRange(0.1), help="for each slice")
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1))
@click.option("--backlog", "most", default=5000, show_default=True, type=click.IntRange(0), help="0: none")
def main(seconds: float, repeats: int, most: int) -> None:
    """Measure what the events process costs; exits with 1 if a target is missed."""
    bench = Bench()
    with private_redis() as settings:
        uvloop.run(run(settings, seconds, repeats, most, bench))
    bench.end()


if __name__ == "__main__":
    main()
