"""Calls functions on the Redis of this data directory's lab; the right to read its files is enough."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from functions.kernel.invoke import Invoker
from functions.kernel.process.readiness import lab_at, until_ready
from functions.kernel.table import table
from state.embedded import serving
from state.experiments import Experiments
from state.pool import Pool
from state.settings import Settings
from state.tokens import Tokens


@contextmanager
def called_on(
    settings: Settings, *, make: bool
) -> Iterator[Callable[[str, Mapping[str, Any]], dict[str, Any]]]:
    """Call functions without the web process; starts Redis if none runs, see `serving`."""
    with serving(settings, make=make) as url:
        yield lambda name, body: asyncio.run(_called(settings, url, name, body))


async def _called(settings: Settings, url: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    async with lab_at(settings, url) as lab:
        await until_ready(lab)
        invoker = Invoker({name: table()[name]}, [Tokens(lab), Pool(lab), Experiments(lab), settings])
        answer = await invoker.call(name, body, invoker.system("direct"))
        return answer.model_dump(mode="json")
