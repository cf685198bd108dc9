"""Options that several commands share."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from triggers.cli import dims, events, looking, texts
from triggers.cli.options import tag_argument

OF_ONE_TAG = [
    *(looking.best_command, dims.ls, events.events_command, texts.journal_command, looking.ls_command),
    *(texts.program_command, texts.report_command),
]


@click.command()
@tag_argument
def named(tag: str | None) -> None:
    click.echo(tag)


@pytest.mark.parametrize(
    ("words", "tag"),
    [
        ([], ""),
        (["mar11"], "mar11"),
        (["--tag", "mar11"], "mar11"),
        (["mar11", "--tag", "mar11"], "mar11"),
    ],
    ids=range(4),
)
def test_a_tag_is_named_with_or_without_its_option(words: list[str], tag: str) -> None:
    assert CliRunner().invoke(named, words).output == f"{tag}\n"


def test_two_different_tags_are_refused() -> None:
    done = CliRunner().invoke(named, ["mar11", "--tag", "mar12"])

    assert (done.exit_code, "two tags are named" in done.output) == (2, True)


@pytest.mark.parametrize("command", OF_ONE_TAG, ids=lambda command: command.callback.__module__)
def test_each_command_about_one_tag_takes_both_forms(command: click.Command) -> None:
    usage = CliRunner().invoke(command, ["--help"]).output

    assert "[TAG]" in usage
    assert "--tag TAG" in usage
