"""`nightjar logs` prints the newest lines of a run's log, and follows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from state.client_settings import ClientSettings
from state.program import PROGRAM
from triggers.cli.follow import follow as stream
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import with_settings
from triggers.cli.output import BY_STATUS, note, printable, say
from triggers.cli.runs import path_of

PATIENCE_S = 60.0
"""Seconds for which the lab may be away while we follow."""
SKIPPED = "... lines were printed faster than they could be followed ..."


@click.command()
@with_settings
@click.argument("experiment")
@click.option(
    "-f", "--follow", is_flag=True, help="go on until the run has ended; the exit code is its outcome"
)
def command(settings: ClientSettings, experiment: str, follow: bool) -> int:
    """Print the newest lines of EXPERIMENT's log, while it runs and after."""
    found = LabHttp(settings).ask("GET", path_of(experiment, "log"))
    shown = _say([], found["log"].splitlines())
    if not follow:
        if not shown:
            nothing = "it printed nothing" if found["finished"] else "it has printed nothing yet"
            note(f"{experiment}: {found['status']}; {nothing}")
        return 0
    newest = found
    if not newest["finished"]:
        for newest in stream(settings, {"follow": "true"}, say, path_of(experiment, "log"), PATIENCE_S):
            shown = _say(shown, newest["log"].splitlines())
            if newest["finished"]:
                break
    note(f"{experiment}: {newest['status']}; {PROGRAM} show {experiment}")
    return BY_STATUS[newest["status"]]


def _say(shown: Sequence[str], lines: Sequence[str]) -> Sequence[str]:
    """Print new lines; answers the newest ones."""
    news = list(added(shown, lines))
    if news:
        click.echo("\n".join(map(printable, news)))
    return lines


def added(shown: Sequence[str], lines: Sequence[str]) -> Iterator[str]:
    """The lines after the shown ones. The last shown line may have changed, as a progress line does."""
    for before in (shown, shown[:-1]):
        for overlap in range(min(len(before), len(lines)), 0, -1):
            if before[-overlap:] == lines[:overlap]:
                yield from lines[overlap:]
                return
    if len(shown) > 1:
        yield SKIPPED
    yield from lines
