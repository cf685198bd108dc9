"""How a command asks about tokens: over HTTP with its own, or on the lab's Redis, as who holds its data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from state.settings import Settings
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
        http = LabHttp(settings)
        yield lambda name, body: http.ask("POST", f"/api/{name.replace('::', '/')}", body)
        return
    if not is_own(settings):
        raise click.UsageError(
            "--direct writes to the Redis of this data directory's lab, not to the lab at NIGHTJAR_URL: unset it"
        )
    from triggers.cli.direct import called_on  # here: over HTTP nothing of what it imports is needed

    with called_on(settings, make=make) as ask:
        yield ask
