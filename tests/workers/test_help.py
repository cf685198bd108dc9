"""`join` and `worker` list every option that they take under Options."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from triggers.cli import worker
from workers import join as joining
from workers import supervisor


@pytest.mark.parametrize(
    ("command", "process"),
    [(worker.join_command, joining.main), (worker.worker_command, supervisor.main)],
    ids=["join", "worker"],
)
def test_the_help_lists_the_options_that_the_command_itself_reads(
    command: click.Command, process: click.Command
) -> None:
    _, options = CliRunner().invoke(process, ["--help"]).output.split("Options:")

    read = [param.opts[0] for param in command.params if isinstance(param, click.Option)]
    assert read
    assert [name for name in read if f"  {name} " not in options] == []
