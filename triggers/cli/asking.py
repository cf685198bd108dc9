"""How a command asks about tokens: over HTTP with its own, or on the lab's Redis, as who holds its data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from functions.invoke import Invoker
from functions.process.lifecycle import until_ready
from functions.table import table
from state.client import Lab
from state.embedded import serving
from state.settings import Settings
from state.tokens import Tokens
from triggers.cli.address import is_own
from triggers.cli.lab_http import LabHttp

Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]
"""Calls a function by name; answers its response as JSON would have it."""


@contextmanager
def asking(settings: Settings, *, direct: bool, make: bool = False) -> Iterator[Ask]:
    """Call functions over HTTP; or `direct`ly, on a Redis that is started meanwhile where none runs.

    With `make` a direct call may be the first that the lab ever hears. Call from the main thread, see `serving`.

    Raises:
        click.UsageError: direct, but on another lab than that of the data directory.
    """
    if not direct:
        with LabHttp(settings) as http:
            yield lambda name, body: http.ask("POST", f"/api/{name.replace('::', '/')}", body)
        return
    if not is_own(settings):
        raise click.UsageError(
            "--direct writes to the Redis of this data directory's lab, not to the lab at NIGHTJAR_URL: unset it"
        )
    with serving(settings, make=make) as url:
        yield lambda name, body: asyncio.run(_called(settings, url, name, body))


async def _called(settings: Settings, url: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    lab = Lab(settings.lab, url, timeout_s=settings.redis_timeout_s)
    try:
        await until_ready(lab)
        invoker = Invoker({name: table()[name]}, [Tokens(lab)])
        answer = await invoker.call(name, body, invoker.system("direct"))
        return answer.model_dump(mode="json")
    finally:
        await lab.close()
