"""The web process: `python -P -m triggers.web`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.applications import Starlette

from functions.contract import table
from functions.process import exit_with, opened, start_logging
from state.errors import NightjarError
from state.settings import Settings
from triggers.guard import check_bind
from triggers.http import make_app

DRAIN_S = 5
"""Requests that wait (at most 50 s) are cut after this; their clients ask again."""


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    check_bind(settings)
    async with opened("web", settings) as process:

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            app.state.process = process
            yield

        app = make_app(dict(table()), settings, lifespan)
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=DRAIN_S,
        )
        await uvicorn.Server(config).serve()


def main() -> int:
    settings = Settings()
    start_logging(settings)
    try:
        asyncio.run(serve(settings))
    except NightjarError as problem:
        return exit_with(problem)
    return 0


if __name__ == "__main__":
    sys.exit(main())
