"""Options of `up` and of a worker: the Python that trains, and the isolation of its runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args

import click

Isolation = Literal["auto", "none", "limits", "landlock", "bwrap"]


python_option = click.option(
    "--python",
    help="interpreter that trains [default: the project's .venv, its uv environment, the active one, Nightjar's own]",
)


def isolation_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `isolation`, `network`, `data_dirs`, `hidden_data` and `link`."""
    options = (
        click.option(
            "--isolation",
            type=click.Choice(get_args(Isolation)),
            default="auto",
            help="how far runs are kept from this machine [default: the strongest that works here]",
        ),
        click.option(
            "--network", type=click.Choice(["on", "off"]), default="off", help="network for isolated runs"
        ),
        click.option(
            "--data-dir",
            "data_dirs",
            type=click.Path(path_type=Path, exists=True, file_okay=False),
            multiple=True,
            help="folder that isolated runs may read, too",
        ),
        click.option(
            "--hidden-data",
            type=click.Path(path_type=Path, exists=True, file_okay=False),
            help="folder of hidden splits, which only evaluators may read (docs/hidden-split.md)",
        ),
        click.option(
            "--link",
            "links",
            multiple=True,
            metavar="PATH",
            help="data of the project that no commit has, for runs (besides those in nightjar.toml)",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command
