"""`nightjar open` prints a link that signs a browser in, and opens it where there is a browser."""

from __future__ import annotations

import contextlib
import html
import os
import sys
import webbrowser
from pathlib import Path

import click

from state.client_settings import ClientSettings
from state.private import write_private
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import with_settings


@click.command()
@with_settings
def command(settings: ClientSettings) -> None:
    """Sign a browser in to the lab's page, as whoever the commands are: the link works once, for 10 minutes."""
    link = sign_in_link(LabHttp(settings))
    click.echo(link)
    if sys.stdout.isatty() and has_browser():
        with contextlib.suppress(OSError, webbrowser.Error):  # the link is printed
            webbrowser.open(page_to(link, settings).as_uri())


def sign_in_link(http: LabHttp) -> str:
    """The page's URL with a new code in its fragment, which no server and no log sees.

    Raises:
        NightjarError: no lab answers, or it asks for a token.
    """
    code = http.ask("POST", "/api/token/sign-in", {})["code"]
    return f"{http.url}/#sign-in={code}"


def page_to(link: str, settings: ClientSettings) -> Path:
    """A private file that leads a browser to the link: every user may read the command line of a browser.

    The file stays until the next call replaces it; its code works once, for 10 minutes.

    Raises:
        OSError: the data directory cannot be written.
    """
    page, to = settings.own_file("sign-in.html"), html.escape(link)
    write_private(
        page, f'<!doctype html><meta http-equiv="refresh" content="0;url={to}"><a href="{to}">Sign in</a>'
    )
    return page


def has_browser() -> bool:
    """Whether this machine has a screen; a browser of the terminal shows nothing of the page."""
    return sys.platform == "darwin" or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
