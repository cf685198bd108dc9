"""Times the calls of a swarm's workers, above all `next_config` with an empty queue.

    .venv/bin/python -P -m bench.swarm

A web process, as `up` starts it, uses a private Redis (append-only file, fsync every second). No process fills the
queue, so each config is drawn within the request. Each of 16 connections sends its next request when the last one is
answered. Each call of `next_config` comes from another worker. Then each run ticks at each fifth. 50 runs end before
the others tick, so that ticks are ranked against finished runs.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from random import Random

import click
import httpx
import uvloop
from rich.table import Table

from bench._load import LoadResult, Wanted, load
from bench._report import Bench, posted, private_redis
from bench._servers import ServerProcess, web
from functions.swarm.rules.simulating import simulate_metric
from state.policy import BUCKETS
from state.settings import Settings

CONNECTIONS = 16
ENOUGH_S = 300.0
"""Longer than any load: each ends by itself."""
FINISHED = 50
"""Runs that end before the others tick."""
BASELINE = 1.0
MOST_MS = {"next_config": 250.0}
"""Targets of the 99th percentile."""


def joined(workers: int) -> Iterator[Wanted]:
    for n in range(workers):
        yield posted("/register", worker_id=f"w{n}", gpu_type="Simulated", baseline_bpb=BASELINE)


def asked(workers: int) -> Iterator[Wanted]:
    for n in range(workers):
        yield posted(f"/next_config/w{n}")


def ticked(runs: range, chance: Random) -> Iterator[Wanted]:
    """Ticks of all runs at the first fifth, then of all at the next fifth, and so on."""
    for progress, n in itertools.product(BUCKETS, runs):
        config = {"LR": 10 ** Random(n).uniform(-4, -1)}
        metric = simulate_metric(config, progress, chance)
        yield posted("/tick", id=f"swarm-{n}", p=progress, m=metric, d=metric - BASELINE)


def resulted(runs: range, owners: dict[int, str], chance: Random) -> Iterator[Wanted]:
    for n in runs:
        value = simulate_metric({"LR": 10 ** Random(n).uniform(-4, -1)}, 1.0, chance)
        sent = {"config": {}, "config_delta": {}, "val_bpb": value, "duration_seconds": 300.0}
        yield posted("/result", worker_id=owners[n], exp_id=f"swarm-{n}", **sent)


def owners_of(server: ServerProcess) -> dict[int, str]:
    """The worker of each run, by the run's number."""
    runs = httpx.get(f"http://127.0.0.1:{server.port}/runs/active", timeout=60.0, trust_env=False).json()
    return {int(run["id"].rpartition("-")[2]): run["worker_id"] for run in runs}


async def measured(server: ServerProcess, workers: int) -> dict[str, LoadResult]:
    """Each call's answers, in the order of a run."""
    chance, found = Random(0), {}

    async def served(wanted: Iterator[Wanted]) -> LoadResult:
        return await load(server.port, wanted, ENOUGH_S, CONNECTIONS)

    found["register"] = await served(joined(workers))
    found["next_config"] = await served(asked(workers))
    owners = await asyncio.to_thread(owners_of, server)
    assert len(owners) == workers, f"{len(owners)} runs of {workers} workers"
    first, others = range(1, FINISHED + 1), range(FINISHED + 1, workers + 1)
    await served(ticked(first, chance))
    await served(resulted(first, owners, chance))
    found["tick"] = await served(ticked(others, chance))
    found["result"] = await served(resulted(others, owners, chance))
    return found


async def run(settings: Settings, workers: int) -> dict[str, LoadResult]:
    async with web(settings) as server:
        return await measured(server, workers)


def show(found: dict[str, LoadResult], bench: Bench) -> None:
    shown = Table("call", "times", "requests/s", "p50 ms", "p99 ms", "target, p99 ms", "")
    for call, served in found.items():
        most, p99 = MOST_MS.get(call), served.percentile(99)
        times = (f"{len(served.times)}", f"{served.rate:,.0f}", f"{served.percentile(50):.1f}", f"{p99:.1f}")
        verdict = bench.verdict(None if most is None else p99 <= most, call)
        shown.add_row(call, *times, "" if most is None else f"<= {most:g}", verdict)
    bench.console.print(shown)


@click.command()
@click.option("--workers", default=1000, show_default=True, type=click.IntRange(2 * FINISHED))
def main(workers: int) -> None:
    """Measure the calls of a swarm's workers; exits with 1 if a target is missed."""
    bench = Bench()
    with private_redis() as settings:
        show(uvloop.run(run(settings, workers)), bench)
    bench.end()


if __name__ == "__main__":
    main()
