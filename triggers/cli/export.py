"""`nightjar export` writes a tag's runs to a file, or for another tool."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import get_args

import click
from rich.progress import MofNCompleteColumn

from state.client_settings import ClientSettings
from state.errors import Unavailable
from triggers.cli.events import follow
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import tag_argument, with_settings
from triggers.cli.output import OK, counted, say
from triggers.cli.runs import TELLS_RESULT, the_tag
from triggers.cli.tables import bar
from triggers.exports.files import FileFormat, RunFile
from triggers.exports.reading import TagFacts, TagReader, Target

FILES: dict[str, FileFormat] = {kind: kind for kind in get_args(FileFormat)}
LIBRARIES = {
    "optuna": ("optuna_journal:OptunaJournal", "optuna"),
    "mlflow": ("mlflow_store:MlflowStore", "mlflow-skinny sqlalchemy alembic"),
    "wandb": ("files:WandbOffline", "wandb"),
    "trackio": ("files:TrackioProject", "trackio"),
}
"""The other formats: their target, and the packages that it needs. The extras have the formats' names."""
ENDINGS = {"optuna": "journal"}
"""Of default names, where it is not the format."""


@click.command()
@with_settings
@tag_argument
@click.option(
    "--to",
    "kind",
    type=click.Choice([*FILES, *LIBRARIES]),
    default="tsv",
    show_default=True,
    help="the format",
)
@click.option(
    "-o",
    "--output",
    help="file or folder; for mlflow also a server's URI; - prints a file [default: TAG.<format>]",
)
@click.option("--follow", "follows", is_flag=True, help="go on with each run that ends, until Ctrl-C")
@click.option(
    "--spreadsheet",
    is_flag=True,
    help="in tsv and csv, quote texts that a spreadsheet would take for formulas",
)
def command(
    settings: ClientSettings, tag: str | None, kind: str, output: str | None, follows: bool, spreadsheet: bool
) -> int:
    """Export the finished runs of TAG (default: the lab's only tag).

    Exporting again into the same place adds what is new. A tsv, csv or jsonl file is written anew.
    """
    http = LabHttp(settings)
    name = the_tag(http, tag)
    reader = TagReader(settings, name)
    output = output or f"{name}.{ENDINGS.get(kind, kind)}"
    target = _target(kind, output, reader, spreadsheet)
    if follows and kind in FILES:
        target.is_final = True  # a line that is written stays: keeps wait for their retests
    try:
        added, waiting = _export(reader, target)
        say(f"{name}: {counted(added, 'run')} exported to {output}")
        if waiting:
            say(f"{counted(waiting, 'keep')} left out: export again once the retests have ended")
        if differs := target.complete():
            say(differs)
        if output != "-":
            say(f"-> {target.opened_by}")
        if follows:
            _mirror(settings, name, reader, target)
    except KeyboardInterrupt:
        return OK if follows else 130
    finally:
        target.close()
    return OK


def _target(kind: str, output: str, reader: TagReader, spreadsheet: bool) -> Target:
    """Where the runs go. Libraries are imported here. Raises Unavailable: a library is missing."""
    tag = reader.facts()
    if (file_format := FILES.get(kind)) is not None:
        return RunFile(output, file_format, tag, for_spreadsheet=spreadsheet)
    place, packages = LIBRARIES[kind]
    try:
        made: Callable[[str, TagFacts, TagReader], Target] = resolve_name(f"triggers.exports.{place}")
        return made(output, tag, reader)
    except ModuleNotFoundError as missing:
        if missing.name != kind:  # one that a library needs, or one of our own
            raise
        raise Unavailable(
            f"--to {kind} needs the package {packages.split()[0]}",
            hint=f"pip install {packages} where Nightjar is installed, or install 'nightjar[{kind}]'",
        ) from missing


def _export(reader: TagReader, target: Target) -> tuple[int, int]:
    """Add the runs that the target lacks. Answers their number, and that of keeps that wait for retests."""
    added = waiting = 0
    with bar(MofNCompleteColumn()) as shown:
        task = shown.add_task("exporting", total=None)
        for runs, total in reader.pages():
            shown.update(task, total=total)
            fresh = [run for run in runs if not target.awaits(run) and target.lacks(run)]
            shown.advance(task, len(runs) - len(fresh))
            for run in reader.whole(fresh) if target.needs_whole else fresh:
                target.add(run)
                shown.advance(task)
            added += len(fresh)
            waiting += sum(run.is_over and target.awaits(run) for run in runs)
    return added, waiting


def _mirror(settings: ClientSettings, tag: str, reader: TagReader, target: Target) -> None:
    """Export each run once it ends or is judged anew. The newest event comes at once, so none is missed."""
    is_complete = False
    query = {"tag": tag, "types": ",".join(sorted(TELLS_RESULT)), "last": "1"}
    for event in follow(settings, query, say):
        if event["type"] == "reset" or not is_complete:
            _export(reader, target)
            is_complete = True
            continue
        run = reader.one(event["subject"])
        if run.record.retest_of is not None:
            run = reader.one(run.record.retest_of)
        if not target.awaits(run) and target.lacks(run):
            target.add(run)
