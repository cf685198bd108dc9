"""`nightjar worker` trains for a lab on this machine."""

from __future__ import annotations

import os
import sys

import click

from functions.process.own_modules import started
from state.settings import own_environment
from triggers.cli.options import data_option, lab_option, settings_from


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@data_option
@lab_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(data: str | None, lab: str | None, arguments: tuple[str, ...]) -> None:
    """Train for the lab on this machine's GPUs: --repo PATH [--gpu all|INDEX] [--cpu N]."""
    settings = settings_from(data=data, lab=lab)
    chosen = {"NIGHTJAR_DATA": str(settings.data_dir), "NIGHTJAR_LAB": settings.lab}
    environment = own_environment() | chosen | settings.worker_environment
    # triggers may not import workers, so this process becomes one
    os.execve(sys.executable, started("workers.supervisor", *arguments), environment)
