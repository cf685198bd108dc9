"""How the token commands call functions: over HTTP with a token, or directly on the lab's Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from state.settings import Settings
from triggers.cli.lab_http import LabHttp, is_own

Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]
"""Calls a function by name and returns its response as JSON values."""


@contextmanager
def asking(settings: Settings, *, direct: bool, make: bool = False) -> Iterator[Ask]:
    """Call functions over HTTP; or, if `direct`, on the lab's Redis, which is started if none runs.

    `make` allows a direct call to create the lab. Call from the main thread, see `serving`.

    Raises:
        click.UsageError: `direct`, but NIGHTJAR_URL names another lab than the data directory's.
    """
    if not direct:
        http = LabHttp(settings)
        yield lambda name, body: http.ask("POST", f"/api/{name.replace('::', '/')}", body)
        return
    if not is_own(settings):
        raise click.UsageError(
            "--direct writes to the Redis of this data directory's lab, not to the lab at NIGHTJAR_URL: unset it"
        )
    from triggers.cli.direct import called_on  # imported late: HTTP calls do not need it

    with called_on(settings, make=make) as ask:
        yield ask
