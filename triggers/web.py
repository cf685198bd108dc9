"""The web process: `python -P -m triggers.web`.

With `--shared` others may listen on its port, too: the kernel spreads connections over them.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import uvicorn
from starlette.applications import Starlette

from functions.kernel.own import load
from functions.kernel.process.lifecycle import opened
from functions.kernel.process.meters import import_late, watch
from functions.kernel.process.process_identity import birth_name
from functions.kernel.process.running import ended, run, stop_signals
from functions.kernel.table import table
from functions.swarm.dimensions import swarm_dimensions
from state.client_settings import host_name
from state.settings import Settings, set_in_vain
from triggers.http.connection import LimitedConnection
from triggers.http.hosts import check_bind
from triggers.http.routes import make_app
from triggers.ports import local_url, shared_socket
from triggers.sse import broadcasting

log = logging.getLogger(__name__)

DRAIN_S = 5
"""Requests that wait (at most 50 s) are cut after this; their clients ask again."""


class WebServer(uvicorn.Server):
    """uvicorn's, which leaves signals to us: it would end us by the same signal before we have said goodbye."""

    def __init__(self, config: uvicorn.Config, listens: Callable[[], None] = lambda: None) -> None:
        super().__init__(config)
        self._listens = listens
        """Called once, when it is sure that the port is ours."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._listens()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def serve_until(self, stop: asyncio.Event, *, shared: bool = False) -> None:
        """Serve until `stop`, then let requests finish for a while."""
        stopping = asyncio.create_task(self._exit_after(stop))
        try:
            await self.serve([shared_socket(self.config.host, self.config.port)] if shared else None)
        finally:
            await ended(stopping)

    async def _exit_after(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.should_exit = True


async def serve(settings: Settings, *, shared: bool = False) -> None:
    """Serve until SIGTERM or SIGINT; a second one ends at once.

    Raises:
        Invalid: the swarm's profile, the address or functions of your own cannot be used.
    """
    load(settings)
    swarm_dimensions(settings.swarm_profile)
    for name, instead in set_in_vain(os.environ).items():
        log.warning("%s sets nothing here; %s", name, instead)
    async with opened("web", settings) as process:
        await check_bind(settings, process.tokens)
        stop = stop_signals()

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            app.state.process = process
            async with broadcasting(process) as broadcast:
                app.state.broadcast = broadcast
                # Event streams never end by themselves: the server would wait for them until it cuts them.
                stopping = asyncio.create_task(stop.wait())
                stopping.add_done_callback(lambda _: process.stopping.set())
                stopping.add_done_callback(lambda _: broadcast.close())
                beside = [asyncio.create_task(task) for task in (import_late(), watch(process.meters))]
                yield
                await ended(stopping, *beside)

        app = make_app(dict(table()), settings, lifespan)
        gc.freeze()  # it stays for ever: one look at all of it takes 50 ms of some request
        await WebServer(server_config(app, settings), lambda: write_down(settings)).serve_until(
            stop, shared=shared
        )


def write_down(settings: Settings) -> None:
    """Leave the URL and the name of this process where the lab's commands look for them."""
    told = {"url": local_url(settings), "process": birth_name(host_name(), os.getpid())}
    settings.own_file("web.json").write_text(json.dumps(told))


def server_config(app: Starlette, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        http=LimitedConnection,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN_S,
    )


def main(*arguments: str) -> int:
    return run("web", partial(serve, shared="--shared" in arguments))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
