"""Latency of writes while many clients listen to server-sent events.

    .venv/bin/python -P -m bench.streams

One web process on one private Redis. Clients in a process of their own hold `GET /api/events` open, and read every
event. Beside them experiments are registered at a fixed rate. A write's latency begins when it was due, so a late
send counts. The bench prints percentiles without streams and with them, and how many messages arrived.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import click
import httpx
import uvloop
from rich.table import Table

from bench._load import Wanted
from bench._report import Bench, private_redis
from bench._servers import ServerProcess, web
from bench.http import ENOUGH_S, Agents, answered
from state.settings import Settings

MOST_P99_MS = 100.0
"""Target with 300 streams and 80 writes a second."""
MOST_SPREAD_S = 10.0
"""Seconds after the last write in which the last messages have to arrive."""
LISTENERS = """
import asyncio, sys

port, streams, expected = map(int, sys.argv[1:])
heard = 0

async def listen():
    global heard
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /api/events HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\n\\r\\n")
    while data := await reader.read(1 << 16):
        heard += data.count(b"event: ")

async def main():
    listening = []
    for _ in range(streams):
        listening.append(asyncio.create_task(listen()))
        await asyncio.sleep(0.002)
    print("listening", flush=True)
    within = float(await asyncio.to_thread(sys.stdin.readline))
    for _ in range(int(within / 0.05)):
        if heard >= expected:
            break
        await asyncio.sleep(0.05)
    print(heard, flush=True)

asyncio.run(main())
"""


@dataclass(frozen=True)
class Written:
    """One slice."""

    streams: int
    times: list[float]
    """Seconds of each write, in order of size."""
    heard: int
    cpu_share: float
    """CPU seconds of web in a second."""

    def ms(self, percent: float) -> float:
        return 1e3 * self.times[min(len(self.times) - 1, int(len(self.times) * percent / 100))]


async def written(
    server: ServerProcess, bodies: Iterator[Wanted], streams: int, rate: float, seconds: float
) -> Written:
    """Write at a fixed rate, while so many streams are open."""
    count = int(rate * seconds)
    argv = (sys.executable, "-c", LISTENERS, str(server.port), str(streams), str(streams * count))
    listeners = await asyncio.create_subprocess_exec(*argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert listeners.stdin is not None
    assert listeners.stdout is not None
    await listeners.stdout.readline()
    times = list[float]()

    async def write(http: httpx.AsyncClient, wanted: Wanted, due: float) -> None:
        answer = await http.post(wanted[0], content=wanted[1], headers={"content-type": "application/json"})
        answer.raise_for_status()
        times.append(time.monotonic() - due)

    url = f"http://127.0.0.1:{server.port}"
    async with (
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as http,
        asyncio.TaskGroup() as group,
    ):
        begun, used = time.monotonic(), server.cpu_s
        for nth, wanted in enumerate(itertools.islice(bodies, count)):
            due = begun + nth / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            group.create_task(write(http, wanted, due))
    took, used = time.monotonic() - begun, server.cpu_s - used
    heard, _ = await listeners.communicate(f"{MOST_SPREAD_S}\n".encode())
    return Written(streams, sorted(times), int(heard), used / took)


async def run(settings: Settings, streams: int, rate: float, seconds: float, bench: Bench) -> None:
    """Measure and print."""
    agents = Agents()
    async with web(settings, NIGHTJAR_STALE_S="604800") as server:
        await answered(server, agents.setup(), ENOUGH_S, 1)
        bodies = agents.register()
        found = [await written(server, bodies, n, rate, seconds) for n in (0, streams)]
    shown = Table("streams", "writes", "p50 ms", "p99 ms", "web's CPU", "messages")
    for each in found:
        cells = (len(each.times), f"{each.ms(50):.0f}", f"{each.ms(99):.0f}", f"{each.cpu_share:.2f}")
        shown.add_row(str(each.streams), *map(str, cells), f"{each.heard:,}")
    bench.console.print(shown)
    last = found[-1]
    if last.ms(99) > MOST_P99_MS:
        bench.missed.append(f"p99 of a write is {last.ms(99):.0f} ms, target <= {MOST_P99_MS:.0f}")
    if last.heard < streams * len(last.times):
        bench.missed.append(f"{last.heard:,} of {streams * len(last.times):,} messages arrived")


@click.command()
@click.option("--streams", default=300, show_default=True, type=click.IntRange(1))
@click.option("--rate", default=80.0, show_default=True, type=click.FloatRange(0.1), help="writes a second")
@click.option("--seconds", default=10.0, show_default=True, type=click.FloatRange(0.1))
def main(streams: int, rate: float, seconds: float) -> None:
    """Measure writes beside open streams; exits with 1 if a target is missed."""
    bench = Bench()
    with private_redis() as settings:
        uvloop.run(run(settings, streams, rate, seconds, bench))
    bench.end()


if __name__ == "__main__":
    main()
