"""Times requests and ticks while a language model does not answer, beside the same without one.

    .venv/bin/python -P -m bench.author

A private Redis (append-only file, fsync every second) serves a web and an events process, as `up` starts them, and a
process of the lane `pi` with Anthropic's SDK. Its provider is a local server that takes requests and never answers. A
slice with the model has a hanging call from its beginning to its end. In a slice without it, the process of the lane
is stopped (SIGSTOP). Slices alternate, and figures are medians over the repeats.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from statistics import median

import click
import httpx
import uvloop
from rich.table import Table

from bench._load import LoadResult, Wanted, load
from bench._report import Bench, posted, private_redis, url_of
from bench._servers import ServerProcess, beside, web
from state.client import Lab
from state.presence import Presence
from state.private import made_key
from state.settings import Settings

CONNECTIONS = 16
WORKERS = 200
MOST = 1.2
"""Highest ratio of the p99 with a hanging model to the p99 without one."""
PATIENCE_S = 60.0
KEY = "sk-not-a-key"


def ticks() -> Iterator[Wanted]:
    """Endless ticks of all runs between two buckets."""
    for n in itertools.cycle(range(1, WORKERS + 1)):
        yield posted("/tick", id=f"swarm-{n}", p=0.13, m=1.0)


def syncs() -> Iterator[Wanted]:
    for n in itertools.cycle(range(WORKERS)):
        yield posted(f"/sync/w{n}")


CALLS: dict[str, Callable[[], Iterator[Wanted]]] = {
    "run::tick": ticks,
    "swarm::sync": syncs,
    "experiment::history": lambda: itertools.repeat(posted("/api/experiment/history", tag="swarm", limit=20)),
    "report::brief": lambda: itertools.repeat(posted("/api/report/brief", tag="swarm")),
}


class SilentProvider:
    """A server that reads requests and answers none. It counts the hanging ones."""

    def __init__(self) -> None:
        self.hanging = 0
        self.asked = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        over = asyncio.Event()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            self.hanging += 1
            self.asked.set()
            await over.wait()
            writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            over.set()
            server.close()


async def measured(
    settings: Settings, repeats: int, seconds: float
) -> dict[str, tuple[list[LoadResult], list[LoadResult]]]:
    """Answers of each call, without a model and with a hanging one, by repeat."""
    provider = SilentProvider()
    found: dict[str, tuple[list[LoadResult], list[LoadResult]]] = {call: ([], []) for call in CALLS}
    async with (
        provider.open() as url,
        web(settings, NIGHTJAR_REDIS_URL=url_of(settings)) as server,
        beside("triggers.events", settings),
        beside(
            "workers.pi",
            settings,
            ANTHROPIC_API_KEY=KEY,
            ANTHROPIC_BASE_URL=url,
            NIGHTJAR_LLM_TIMEOUT_S="600",
        ) as pi,
    ):
        await _filled(server, settings)
        operator = {"authorization": f"Bearer {made_key(settings)}"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", headers=operator) as http:
            (await http.post("/api/program/write", json={"tag": "swarm"})).raise_for_status()
        await asyncio.wait_for(provider.asked.wait(), PATIENCE_S)
        for nth in range(repeats):
            for call, bodies in CALLS.items():
                for hangs in (False, True) if nth % 2 else (True, False):
                    os.kill(pi.pid, signal.SIGCONT if hangs else signal.SIGSTOP)
                    served = await load(server.port, bodies(), seconds, CONNECTIONS)
                    found[call][hangs].append(served)
        assert provider.hanging == 1, f"{provider.hanging} requests to the provider"
    return found


async def _filled(server: ServerProcess, settings: Settings) -> None:
    """Give each worker of a swarm a run, and wait until the process of the lane has announced itself."""
    for n in range(WORKERS):
        await _send(server, posted("/register", worker_id=f"w{n}", gpu_type="Simulated", baseline_bpb=1.0))
        await _send(server, posted(f"/next_config/w{n}"))
    lab = Lab(settings.lab, url_of(settings))
    try:
        presence = Presence(lab)
        give_up = time.monotonic() + PATIENCE_S
        while await presence.author(PATIENCE_S) is None:
            assert time.monotonic() < give_up, "the process of the lane pi has not said that it is there"
            await asyncio.sleep(0.1)
    finally:
        await lab.close()


async def _send(server: ServerProcess, wanted: Wanted) -> None:
    await load(server.port, iter([wanted]), PATIENCE_S, 1)


def show(found: dict[str, tuple[list[LoadResult], list[LoadResult]]], bench: Bench) -> None:
    shown = Table(
        "call", "p50 ms without", "with", "p99 ms without", "with", "p99 with / without", "target", ""
    )
    for call, (without, with_model) in found.items():
        ratio = median(b.percentile(99) / a.percentile(99) for a, b in zip(without, with_model, strict=True))
        figures = [
            f"{median(s.percentile(p) for s in several):.1f}"
            for p in (50, 99)
            for several in (without, with_model)
        ]
        shown.add_row(call, *figures, f"{ratio:.2f}", f"<= {MOST}", bench.verdict(ratio <= MOST, call))
    bench.console.print(shown)


@click.command()
@click.option("--repeats", default=8, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=1.5, show_default=True, type=click.FloatRange(0.1))
def main(repeats: int, seconds: float) -> None:
    """Compare request times with and without a language model that hangs; exits with 1 if a target is missed."""
    bench = Bench()
    with private_redis() as settings:
        show(uvloop.run(measured(settings, repeats, seconds)), bench)
    bench.end()


if __name__ == "__main__":
    main()
