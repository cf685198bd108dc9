"""`nightjar open` prints a sign-in link, and opens it if there is a browser."""

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
    """The page's URL with a new code in its fragment, which no server gets. Raises NightjarError: no code."""
    code = http.ask("POST", "/api/token/sign-in", {})["code"]
    return f"{http.url}/#sign-in={code}"


def page_to(link: str, settings: ClientSettings) -> Path:
    """A private file that redirects to the link: all users can read a browser's command line.

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
    """Whether this machine has a screen. A browser in the terminal cannot show the page."""
    return sys.platform == "darwin" or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
