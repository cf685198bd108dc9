"""`nightjar agent` starts coding agents on a tag and keeps them at work."""

from __future__ import annotations

from pathlib import Path

import click

from state.settings import Settings
from triggers.cli.options import EXISTING_FOLDER, Duration, NameType, with_all_settings
from triggers.cli.output import note


@click.command()
@with_all_settings
@click.option(
    "--tag",
    type=NameType(),
    required=True,
    help="the line of research; opened at HEAD of --repo if it does not exist",
)
@click.option("-n", "--count", type=click.IntRange(1, 64), default=1, show_default=True, help="agents")
@click.option(
    "--name",
    type=NameType(),
    default="agent",
    show_default=True,
    help="their name; several are NAME-1, NAME-2, ...",
)
@click.option(
    "--repo",
    type=EXISTING_FOLDER,
    help="the research repository, which each agent clones [default: the one around the working directory]",
)
@click.option(
    "--idle-after",
    type=Duration(),
    default="30m",
    show_default=True,
    help="start one again that has had no experiment of its own for so long",
)
@click.option(
    "--silent-after",
    type=Duration(),
    default="1h",
    show_default=True,
    help="start one again that has printed nothing for so long; 0: never",
)
@click.option(
    "--starts",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="give one up after so many starts in a row without an experiment",
)
@click.argument("words", metavar="-- COMMAND...", nargs=-1, required=True)
def command(
    settings: Settings,
    tag: str,
    count: int,
    name: str,
    repo: Path | None,
    idle_after: float,
    silent_after: float,
    starts: int,
    words: tuple[str, ...],
) -> int:
    """Start COMMAND as a research agent, such as `claude -p ...` or `codex exec ...`, and keep it at work.

    Each agent has a clone of its own and gets program.md on standard input, made out to it; where a word of COMMAND
    has {program}, it gets the name of that file instead; {name} and {tag} stand for its own name and tag. It is
    started again when it exits, is silent or idle. The night ends with the tag's budget, a pause, or Ctrl-C.
    """
    from functions.kernel.git import repository_around
    from triggers.agents.keeper import Patience
    from triggers.agents.night import night

    names = [name] if count == 1 else [f"{name}-{nth + 1}" for nth in range(count)]
    repo = repo or repository_around(Path.cwd())
    if repo is None:
        raise click.UsageError("this folder is in no git repository: name one with --repo PATH")
    return night(
        settings,
        tag=tag,
        names=names,
        repo=repo.absolute(),
        command=words,
        patience=Patience(silent_after, idle_after, starts),
        say=note,
    )
