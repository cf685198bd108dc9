"""`nightjar journal` prints the journal of a swarm, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from state.client_settings import ClientSettings
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import tag_argument, with_settings
from triggers.cli.output import counted, note, printable_lines
from triggers.cli.runs import the_tag


@click.command()
@with_settings
@tag_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="write it to this file",
)
def command(settings: ClientSettings, tag: str | None, output: Path | None) -> None:
    """Print the whole journal of TAG, a swarm, checkpoint by checkpoint.

    TAG is by default the lab's only tag, else NIGHTJAR_SWARM_TAG.
    """
    http = LabHttp(settings)
    name = the_tag(http, tag, among_several=settings.swarm_tag)
    texts = list(_checkpoints(http, name))
    if output is not None:
        output.write_text("\n".join(texts), "utf-8")
        note(f"{output}: {counted(len(texts), 'checkpoint')} of {name}")
    elif texts:
        click.echo(printable_lines("\n".join(texts)), nl=False)
    else:
        note(f"{name} has no checkpoint yet: one is written after every 100 results")


def _checkpoints(http: LabHttp, tag: str) -> Iterator[str]:
    """The texts of all checkpoints, page by page."""
    first, count = 1, 1
    while first <= count:
        found = http.ask("POST", "/api/journal/list", {"tag": tag, "first": first})
        yield from (checkpoint["text"] for checkpoint in found["checkpoints"])
        first, count = first + len(found["checkpoints"]), found["count"]
        if not found["checkpoints"]:
            return
