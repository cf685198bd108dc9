"""`nightjar logs` prints the newest lines of a run's log, and follows it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

import click

from state.errors import Exhausted, TooManyRequests, Unavailable
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import data_option, lab_option, settings_from
from triggers.cli.output import BY_STATUS, printable
from triggers.cli.runs import path_of

WAIT_S = 20.0
PATIENCE_S = 60.0
"""How long the lab may be away while we follow."""
SKIPPED = "... lines were printed faster than they could be followed ..."


@click.command()
@data_option
@lab_option
@click.argument("experiment")
@click.option(
    "-f", "--follow", is_flag=True, help="go on until the run has ended; the exit code is its outcome"
)
def command(data: str | None, lab: str | None, experiment: str, follow: bool) -> int:
    """Print the newest lines of EXPERIMENT's log, while it runs and after."""
    http = LabHttp(settings_from(data=data, lab=lab))
    found = http.ask("GET", path_of(experiment, "log"))
    shown = _say([], found["log"].splitlines())
    if not follow:
        if not shown:
            click.echo(f"{experiment} is {found['status']} and has printed nothing yet", err=True)
        return 0
    newest = found
    for newest in _newer(http, experiment, found):
        shown = _say(shown, newest["log"].splitlines())
    click.echo(f"{experiment}: {newest['status']}; ./nightjar show {experiment}", err=True)
    return BY_STATUS[newest["status"]]


def _newer(http: LabHttp, experiment: str, found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each answer with other lines, until the run has ended.

    Raises:
        NightjarError: the lab refuses, or is away for longer than PATIENCE_S.
    """
    heard_at = time.monotonic()
    while not found["finished"]:
        query = urlencode({"after": found["version"], "timeout": WAIT_S})
        try:
            found = http.ask("GET", f"{path_of(experiment, 'log')}?{query}")
        except (Exhausted, TooManyRequests, Unavailable):
            if time.monotonic() - heard_at > PATIENCE_S:
                raise
            time.sleep(1.0)
            continue
        heard_at = time.monotonic()
        yield found


def _say(shown: Sequence[str], lines: Sequence[str]) -> Sequence[str]:
    """Print what is new in the newest lines; answers them."""
    news = list(added(shown, lines))
    if news:
        click.echo("\n".join(map(printable, news)))
    return lines


def added(shown: Sequence[str], lines: Sequence[str]) -> Iterator[str]:
    """The lines after those that were shown; the last of these may have been written over, as progress is."""
    for before in (shown, shown[:-1]):
        for overlap in range(min(len(before), len(lines)), 0, -1):
            if before[-overlap:] == lines[:overlap]:
                yield from lines[overlap:]
                return
    if len(shown) > 1:
        yield SKIPPED
    yield from lines
