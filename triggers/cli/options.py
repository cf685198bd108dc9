"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from state.settings import Settings

data_option = click.option(
    "--data", type=click.Path(path_type=Path), default=None, help="state directory of the lab [NIGHTJAR_DATA]"
)
lab_option = click.option("--lab", default=None, help="name of the lab [NIGHTJAR_LAB]")


def settings_from(**given: Any) -> Settings:
    """The settings of the command line, else of the environment.

    Raises:
        click.UsageError: a setting is not valid.
    """
    named = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**named)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        name = "_".join(str(part) for part in first["loc"]).upper()
        raise click.UsageError(f"setting NIGHTJAR_{name}: {first['msg']}") from problem
