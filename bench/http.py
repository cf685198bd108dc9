"""Costs of calls over HTTP, compared with a bare handler.

    .venv/bin/python -P -m bench.http

One web process of Nightjar, as `up` starts it, and the bare handler of `bench/_bare.py` use one private Redis
(append-only file on, fsync every second). The load has 16 connections, and each sends its next request when the last
one is answered. For each call, first the bare handler is measured, then Nightjar. All figures are medians over the
repeats. Both parts of a ratio are measured one after the other, so that other load on the machine affects both.

Sequential round trips of one request are counted by a proxy (`tests/trips.py`) between another web process and Redis,
including the check of tokens. With `--profile` the web process runs under cProfile, and the bench prints a profile of
each call instead.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import os
import pstats
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Any

import click
import uvloop
from rich.console import Console
from rich.table import Table

from bench import _bare
from bench._load import LoadResult, Wanted, load
from bench._report import Bench, idea, posted, private_redis, url_of
from bench._servers import ServerProcess, bare, web
from state.settings import Settings
from tests.trips import counted

CONNECTIONS = 16
STORED = 300
"""Experiments in the tag before anything is measured."""
SHOWN = 60
"""Lines of a profile, by each order."""
ENOUGH_S = 60.0
"""Longer than any load, which ends by itself."""
A_WEEK_S = "604800"
P99 = 3.0
"""Target of a call's p99, as a multiple of the bare handler's. With a fixed number of connections, a third of the
requests per second means three times the time per answer, so only calls with a higher target rate have this one."""


@dataclass
class Agents:
    """Bodies of new requests of agents."""

    chance: Random = field(default_factory=lambda: Random(0))
    commits: Iterator[int] = field(default_factory=lambda: itertools.count(0x1000000))
    registered: int = 0
    completed: int = 0

    def setup(self) -> Iterator[Wanted]:
        for tag in ("plain", "queued"):
            yield posted("/api/experiment/setup", tag=tag, base_commit="abc1234")

    def register(self, path: str = "/api/experiment/register", tag: str = "plain") -> Iterator[Wanted]:
        for number in self.commits:
            yield posted(path, **idea(tag, number, diff=f"+WIDTH = {number}\n" * 20))

    def submit(self) -> Iterator[Wanted]:
        return self.register("/api/experiment/submit", "queued")

    def complete(self, path: str = "/api/experiment/complete") -> Iterator[Wanted]:
        """Results of all registered experiments: one in ten is near the best, few are better."""
        while self.completed < self.registered:
            self.completed += 1
            yield posted(
                path,
                experiment_id=f"plain-{self.completed}",
                val_bpb=round(
                    1.0 + (0.0005 if self.completed % 10 == 0 else abs(self.chance.gauss(0.03, 0.01))), 6
                ),
                peak_vram_mb=44_000.0,
                training_seconds=300.0,
            )


Bodies = Callable[[Agents], Iterator[Wanted]]


def same(path: str, **body: Any) -> Bodies:
    """The same request for ever."""
    return lambda _: itertools.repeat(posted(path, **body))


@dataclass(frozen=True)
class TargetedCall:
    """One function and its targets."""

    bodies: Bodies
    least_share: float
    """Target rate, as a share of the bare handler's requests per second."""
    most_p99: float | None = None
    """As a multiple of the bare handler's."""


CALLS: dict[str, TargetedCall] = {
    "experiment::register": TargetedCall(Agents.register, 0.46, P99),
    "experiment::complete": TargetedCall(Agents.complete, 0.36, P99),
    "experiment::best": TargetedCall(same("/api/experiment/best", tag="plain"), 0.62, P99),
    "report::brief": TargetedCall(same("/api/report/brief", tag="plain"), 0.20),
    "search::suggest_direction": TargetedCall(same("/api/search/suggest", tag="plain"), 0.20),
    "experiment::history": TargetedCall(same("/api/experiment/history", tag="plain", limit=50), 0.12),
    "experiment::submit": TargetedCall(Agents.submit, 0.40),
}
"""In the order of calls: experiments are registered before they are completed."""


@dataclass(frozen=True)
class Slice:
    """One server's answers to one call in one repeat."""

    served: LoadResult
    cpu_s: float

    @property
    def cpu_ms(self) -> float:
        """The server's CPU milliseconds per request."""
        return 1e3 * self.cpu_s / len(self.served.times)


async def answered(
    server: ServerProcess, wanted: Iterator[Wanted], seconds: float, connections: int = CONNECTIONS
) -> Slice:
    before = server.cpu_s
    served = await load(server.port, wanted, seconds, connections)
    return Slice(served, server.cpu_s - before)


async def stored(server: ServerProcess, agents: Agents) -> None:
    """Fill the lab's tag with experiments."""
    await answered(server, agents.setup(), ENOUGH_S, 1)
    await called(server, "experiment::register", agents, ENOUGH_S, STORED)
    await called(server, "experiment::complete", agents, ENOUGH_S)


async def prepared(server: ServerProcess, name: str, agents: Agents, seconds: float) -> None:
    """Register experiments for a slice of completes, in as much time."""
    if name == "experiment::complete" and agents.completed == agents.registered:
        await called(server, "experiment::register", agents, seconds)


async def called(
    server: ServerProcess, name: str, agents: Agents, seconds: float, most: int | None = None
) -> Slice:
    """One slice of a call, of at most `most` requests; a single request uses one connection."""
    wanted = itertools.islice(CALLS[name].bodies(agents), most)
    found = await answered(server, wanted, seconds, 1 if most == 1 else CONNECTIONS)
    if name == "experiment::register":
        agents.registered += len(found.served.times)
    return found


# -- what is measured


@dataclass(frozen=True)
class MeasuredCall:
    """A call and the bare handler, one pair for each repeat."""

    pairs: list[tuple[Slice, Slice]] = field(default_factory=list)

    def of(self, figure: Callable[[Slice], float]) -> float:
        return median(figure(its) for its, _ in self.pairs)

    def ratio(self, figure: Callable[[Slice], float]) -> float:
        return median(figure(its) / figure(anchor) for its, anchor in self.pairs)


def rate(of: Slice) -> float:
    return of.served.rate


def p50(of: Slice) -> float:
    return of.served.percentile(50)


def p99(of: Slice) -> float:
    return of.served.percentile(99)


def cpu_ms(of: Slice) -> float:
    return of.cpu_ms


async def measured(
    ours: ServerProcess, anchor: ServerProcess, names: Sequence[str], seconds: float, repeats: int
) -> dict[str, MeasuredCall]:
    agents, anchors = Agents(), Agents(registered=1 << 40)
    await stored(ours, agents)
    await answered(anchor, anchors.complete(_bare.PATH), seconds / 2)
    found = {name: MeasuredCall() for name in names}
    for _ in range(repeats):
        for name in names:
            await prepared(ours, name, agents, seconds)
            least = await answered(anchor, anchors.complete(_bare.PATH), seconds / 2)
            found[name].pairs.append((await called(ours, name, agents, seconds), least))
    return found


async def round_trips(settings: Settings, names: Sequence[str]) -> dict[str, int]:
    """Sequential round trips to Redis of one request of each call, including the check of its token."""
    agents, found = Agents(), {}
    async with counted(url_of(settings)) as trips:
        own = settings.model_copy(update={"lab": "trips"})
        async with web(own, NIGHTJAR_REDIS_URL=trips.url, NIGHTJAR_STALE_S=A_WEEK_S) as server:
            await stored(server, agents)
            for name in names:
                made = []
                for _ in range(3):  # a heartbeat of the process may be counted in one of them
                    await prepared(server, name, agents, 0.1)
                    trips.begin()
                    await called(server, name, agents, ENOUGH_S, 1)
                    made.append(len(trips.made))
                found[name] = min(made)
    return found


async def profiles(settings: Settings, names: Sequence[str], seconds: float, console: Console) -> None:
    """Print a profile of the web process for each call."""
    file = settings.data_dir / "profile"
    agents = Agents()
    async with web(settings, wrapper=("bench._profiled", str(file))) as server:
        await stored(server, agents)
        for name in names:
            await prepared(server, name, agents, seconds)
            os.kill(server.pid, signal.SIGUSR1)
            found = await called(server, name, agents, seconds)
            os.kill(server.pid, signal.SIGUSR2)
            while not file.exists():  # noqa: ASYNC110 (another process writes it)
                await asyncio.sleep(0.05)
            console.rule(f"{name}: {len(found.served.times)} requests")
            told = io.StringIO()
            stats = pstats.Stats(str(file), stream=told)
            stats.sort_stats("cumulative").print_stats(SHOWN)
            stats.sort_stats("tottime").print_stats(SHOWN)
            console.print(told.getvalue(), markup=False, highlight=False)
            file.unlink()


# -- what is shown


def table(found: dict[str, MeasuredCall], trips: dict[str, int], bench: Bench) -> None:
    """Print the table, and collect missed targets."""

    def judged(what: str, figure: float, target: str, hit: bool) -> str:
        return bench.marked(f"{figure:.2f} ({target})", hit, f"{what} is {figure:.2f}, target {target}")

    shown = Table(
        *("call", "requests/s", "of bare's", "p50 ms", "p99 ms", "p99, bare's x", "CPU ms", "bare's x"),
        "round trips",
        title=f"{CONNECTIONS} connections",
    )
    for name, its in found.items():
        target, share, tail = CALLS[name], its.ratio(rate), its.ratio(p99)
        shown.add_row(
            name,
            f"{its.of(rate):,.0f}",
            judged(f"{name}: share", share, f">= {target.least_share:.2f}", share >= target.least_share),
            f"{its.of(p50):.1f}",
            f"{its.of(p99):.1f}",
            f"{tail:.1f}"
            if target.most_p99 is None
            else judged(f"{name}: p99", tail, f"<= {target.most_p99:g}", tail <= target.most_p99),
            f"{its.of(cpu_ms):.2f}",
            f"{its.ratio(cpu_ms):.1f}",
            str(trips[name]),
        )
    anchors = MeasuredCall([(anchor, anchor) for its in found.values() for _, anchor in its.pairs])
    figures = (f"{anchors.of(rate):,.0f}", "1", f"{anchors.of(p50):.1f}", f"{anchors.of(p99):.1f}", "1")
    shown.add_row("bare handler", *figures, f"{anchors.of(cpu_ms):.2f}", "1", "2")
    bench.console.print(shown)


async def run(settings: Settings, names: Sequence[str], seconds: float, repeats: int, bench: Bench) -> None:
    """Measure and print."""
    trips = await round_trips(settings, names)
    async with web(settings) as ours, bare(settings, url_of(settings)) as anchor:
        found = await measured(ours, anchor, names, seconds, repeats)
    table(found, trips, bench)


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(CALLS)), help="default: all")
@click.option(
    "--seconds", default=2.0, show_default=True, type=click.FloatRange(0.1), help="for each call and repeat"
)
@click.option("--repeats", default=3, show_default=True, type=click.IntRange(1))
@click.option(
    "--profile", is_flag=True, help="print a profile of the web process for each call, measure nothing"
)
def main(only: tuple[str, ...], seconds: float, repeats: int, profile: bool) -> None:
    """Compare calls over HTTP with a bare handler; exits with 1 if a target is missed."""
    bench = Bench(width=180)
    names = [name for name in CALLS if name in only or not only]
    with private_redis() as settings:
        if profile:
            uvloop.run(profiles(settings, names, seconds, bench.console))
        else:
            uvloop.run(run(settings, names, seconds, repeats, bench))
    bench.end()


if __name__ == "__main__":
    main()
