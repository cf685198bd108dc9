"""Servers for benchmarks over HTTP: context managers that start a process and end it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import psutil

from functions.kernel.process.running import started
from state.own_processes import tethered
from state.settings import Settings
from triggers.lab import LabParts
from triggers.ports import free_port

PATIENCE_S = 60.0


class MeasuredProcess:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._usage = psutil.Process(pid)

    @property
    def cpu_s(self) -> float:
        used = self._usage.cpu_times()
        return float(used.user + used.system)


class ServerProcess(MeasuredProcess):
    def __init__(self, port: int, pid: int) -> None:
        super().__init__(pid)
        self.port = port


@asynccontextmanager
async def web(
    settings: Settings, *, wrapper: Sequence[str] = (), **changed: str
) -> AsyncIterator[ServerProcess]:
    """A web process as `up` starts it, on a running Redis; `wrapper`: the module that runs it, with arguments."""
    at = settings.model_copy(update={"port": free_port(0)})
    spec = next(spec for spec in LabParts(at, repo=None).specs() if spec.name == "web")
    *python, module = spec.argv
    # the shell's own settings must not change what is measured
    ours = {"NIGHTJAR_DATA", "NIGHTJAR_LAB", "NIGHTJAR_PORT"}
    env = {k: v for k, v in (spec.env or os.environ).items() if k in ours or not k.startswith("NIGHTJAR_")}
    argv = [*python, *wrapper, module]
    async with serving_port(argv, at.port, settings.data_dir / "web.log", "/readyz", env | changed) as server:
        yield server


@asynccontextmanager
async def beside(module: str, settings: Settings, **env: str) -> AsyncIterator[MeasuredProcess]:
    """Another process of the lab on a running Redis."""
    assert settings.redis_url is not None
    plain = {k: v for k, v in os.environ.items() if not k.startswith("NIGHTJAR_")}
    plain |= {"NIGHTJAR_DATA": str(settings.data_dir), "NIGHTJAR_LAB": settings.lab}
    plain["NIGHTJAR_REDIS_URL"] = settings.redis_url.get_secret_value()
    with (settings.data_dir / f"{module}.log").open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *tethered(started(module)), stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=plain | env
        )
    try:
        yield MeasuredProcess(process.pid)
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 10)
        except TimeoutError:
            process.kill()
            await process.wait()


@asynccontextmanager
async def bare(settings: Settings, redis_url: str) -> AsyncIterator[ServerProcess]:
    """The handler of `bench/_bare.py`."""
    port = free_port(0)
    argv = [sys.executable, "-P", "-m", "bench._bare", str(port), redis_url]
    async with serving_port(argv, port, settings.data_dir / "bare.log", "/") as server:
        yield server


@asynccontextmanager
async def serving_port(
    argv: Sequence[str], port: int, log: Path, path: str, env: Mapping[str, str] | None = None
) -> AsyncIterator[ServerProcess]:
    """Wait until it listens, and a GET of this path is answered. Several may share the port."""
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *tethered(argv), stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env
        )
    try:
        async with (
            asyncio.timeout(PATIENCE_S),
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http,
        ):
            while not (await _answers(http, path) and _listens(process.pid)):
                assert process.returncode is None, f"{argv} ended, its log is {log}"
                await asyncio.sleep(0.05)
        yield ServerProcess(port, process.pid)
    finally:
        process.terminate()
        await process.wait()


def _listens(pid: int) -> bool:
    return any(each.status == psutil.CONN_LISTEN for each in psutil.Process(pid).net_connections())


async def _answers(http: httpx.AsyncClient, path: str) -> bool:
    try:
        return (await http.get(path)).status_code < 500
    except httpx.HTTPError:
        return False
