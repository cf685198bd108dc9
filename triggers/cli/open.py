"""`nightjar open` prints a link that signs a browser in, and opens it where there is a browser."""

from __future__ import annotations

import os
import sys
import webbrowser

import click

from triggers.cli.lab_http import LabHttp
from triggers.cli.options import data_option, lab_option, settings_from


@click.command()
@data_option
@lab_option
def command(data: str | None, lab: str | None) -> None:
    """Sign a browser in to the lab's page, as whoever the commands are: the link works once, for 10 minutes."""
    link = sign_in_link(LabHttp(settings_from(data=data, lab=lab)))
    click.echo(link)
    if sys.stdout.isatty() and has_browser():
        webbrowser.open(link)


def sign_in_link(http: LabHttp) -> str:
    """The page's URL with a new code in its fragment, which no server and no log sees.

    Raises:
        NightjarError: no lab answers, or it asks for a token.
    """
    code = http.ask("POST", "/api/token/sign-in", {})["code"]
    return f"{http.url}/#sign-in={code}"


def has_browser() -> bool:
    """Whether this machine has a screen; a browser of the terminal shows nothing of the page."""
    return sys.platform == "darwin" or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
