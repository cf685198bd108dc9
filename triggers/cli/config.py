"""`nightjar config` shows every setting, secrets redacted."""

from __future__ import annotations

import click
from rich.table import Table

from state.client_settings import user_file
from state.settings import Settings
from triggers.cli.options import all_settings_from, data_option, lab_option
from triggers.cli.output import for_people, print_json


@click.command()
@data_option
@lab_option
@click.option("--json", "as_json", is_flag=True)
def command(data: str | None, lab: str | None, as_json: bool) -> None:
    """Show every setting with its value and meaning; secrets are redacted."""
    settings = all_settings_from(data=data, lab=lab)
    shown = settings.model_dump(mode="json")
    shown["data"] = str(settings.data_dir)
    if as_json:
        print_json(shown)
        return
    table = Table("variable", "value", "meaning")
    for name, info in Settings.model_fields.items():
        table.add_row(f"NIGHTJAR_{name.upper()}", str(shown[name]), info.description or "")
    for_people().print(table)
    click.echo(f"read from the environment, {settings.data_dir / '.env'}, then {user_file()}")
