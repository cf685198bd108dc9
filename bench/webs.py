"""Requests per second and CPU of a request with one, two and four web processes on one port.

    .venv/bin/python -P -m bench.webs

All have one private Redis (append-only file on, fsync every second) and the same load of 32 connections, which the
kernel spreads over the processes. The load, Redis and the processes share the machine's cores: with two cores two web
processes cannot be twice as fast. Each round measures each number of processes. Figures are medians over the rounds.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from statistics import median

import click
import uvloop
from rich.table import Table

from bench._load import load
from bench._report import Bench, private_redis
from bench._servers import MeasuredProcess, serving_port
from bench.http import CALLS, Agents
from state.settings import Settings
from triggers.lab import LabParts
from triggers.ports import free_port

COUNTS = (1, 2, 4)
NAMES = ("experiment::register", "experiment::complete", "experiment::best")
CONNECTIONS = 32


@dataclass
class Webs:
    """Web processes that share a port."""

    port: int
    processes: list[MeasuredProcess] = field(default_factory=list)

    @property
    def cpu_s(self) -> list[float]:
        return [process.cpu_s for process in self.processes]


@asynccontextmanager
async def webs(settings: Settings, count: int) -> AsyncIterator[Webs]:
    """As `up --web COUNT` starts them."""
    at = settings.model_copy(update={"port": free_port(0)})
    found = Webs(at.port)
    async with AsyncExitStack() as stack:
        for spec in LabParts(at, repo=None, web=count).specs():
            if spec.name.startswith("web"):
                env = spec.env or dict(os.environ)
                serving = serving_port(spec.argv, at.port, at.data_dir / "web.log", "/readyz", env)
                found.processes.append(await stack.enter_async_context(serving))
        yield found


async def measured(settings: Settings, count: int, seconds: float) -> dict[str, tuple[float, float, float]]:
    """By call: requests per second, CPU milliseconds of all processes for a request, least share of a process."""
    agents, found = Agents(), {}
    async with webs(settings, count) as server:
        await load(server.port, agents.setup(), seconds, 1)
        for name in NAMES:
            before = server.cpu_s
            served = await load(server.port, CALLS[name].bodies(agents), seconds, CONNECTIONS)
            used = [after - then for after, then in zip(server.cpu_s, before, strict=True)]
            if name == "experiment::register":
                agents.registered += len(served.times)
            found[name] = (served.rate, 1e3 * sum(used) / len(served.times), min(used) / sum(used))
    return found


async def run(rounds: int, seconds: float, bench: Bench) -> None:
    rows: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for nth, count in itertools.product(range(rounds), COUNTS):
        with private_redis() as settings:
            lab = settings.model_copy(update={"lab": f"webs{nth}"})
            for name, figures in (await measured(lab, count, seconds)).items():
                rows.setdefault((name, count), []).append(figures)
    table = Table("call", "web processes", "requests/s", "beside one", "CPU ms of a request", "least share")
    for name, count in itertools.product(NAMES, COUNTS):
        rate, cpu_ms, share = (median(column) for column in zip(*rows[name, count], strict=True))
        alone = median(rate for rate, *_ in rows[name, 1])
        table.add_row(
            name, str(count), f"{rate:.0f}", f"{rate / alone:.2f}", f"{cpu_ms:.2f}", f"{100 * share:.0f} %"
        )
    bench.console.print(table)


@click.command()
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=4.0, show_default=True, help="of each load")
def main(rounds: int, seconds: float) -> None:
    """Measure web processes side by side."""
    bench = Bench()
    uvloop.run(run(rounds, seconds, bench))
    bench.end()


if __name__ == "__main__":
    main()
