"""`nightjar config` shows every setting."""

from __future__ import annotations

from textwrap import wrap

import click

from state.client_settings import user_file
from state.settings import Settings
from triggers.cli.options import json_option, with_all_settings
from triggers.cli.output import print_json, show
from triggers.cli.tables import PIPE_WIDTH


@click.command()
@with_all_settings
@json_option
def command(settings: Settings, as_json: bool) -> None:
    """Show every setting with its meaning, as lines of a .env file; secrets are redacted."""
    shown = settings.model_dump(mode="json")
    shown["data"] = str(settings.data_dir)
    if as_json:
        print_json(shown)
        return
    for name, info in Settings.model_fields.items():
        click.echo(
            "\n".join(wrap(info.description or "", PIPE_WIDTH, initial_indent="# ", subsequent_indent="# "))
        )
        value = "" if shown[name] is None else shown[name]
        show(f"NIGHTJAR_{name.upper()}={value}\n")
    click.echo(f"read from the environment, {settings.data_dir / '.env'}, then {user_file()}")
