"""`nightjar token` manages tokens: issue, enroll, list, rotate, revoke, whoami.

`nightjar open` prints a sign-in link, and opens it if there is a browser."""

from __future__ import annotations

import asyncio
import contextlib
import html
import os
import sys
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from functions.kernel.process.redaction import hide
from functions.kernel.validation import invalid
from state.client_settings import ClientSettings
from state.errors import NotFound
from state.private import write_private
from state.program import PROGRAM
from state.records import ROLES
from state.settings import Settings
from triggers.cli.lab_http import LabHttp, base_url, bearer_of, is_own, warn_of_plain_http
from triggers.cli.options import (
    Duration,
    all_settings_from,
    data_option,
    json_option,
    lab_option,
    with_all_settings,
    with_settings,
)
from triggers.cli.output import counted, print_answer, print_json, say
from triggers.cli.tables import Column, print_table


@click.command()
@with_settings
def open_command(settings: ClientSettings) -> None:
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


Shown = dict[str, Any]


def common(run: Callable[..., Any]) -> Callable[..., Any]:
    """The options of all these commands."""
    return with_all_settings(json_option(run))


TOKENS = (
    *(Column("id"), Column("name"), Column("role"), Column("state"), Column("kind", spare=1)),
    *(
        Column("tags", text=20),
        Column("expires", spare=2),
        Column("last used", spare=3),
        Column("by", spare=4),
    ),
)
direct_option = click.option(
    "--direct",
    is_flag=True,
    help="use the lab's Redis, not HTTP: where no web process of the lab runs on this machine",
)


@click.group(subcommand_metavar="COMMAND [--OPTION]...")
def token_command() -> None:
    """Manage tokens, which decide who may call the lab.

    The first token is an operator's; from then on every call needs a token. A token is shown once, alone on
    standard output. The commands send NIGHTJAR_TOKEN, else the operator's key of the data directory.
    """


@token_command.command()
@common
@direct_option
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="what its bearer may do")
@click.option("--tag", "tags", multiple=True, help="a tag that the agent may use (repeatable) [default: all]")
@click.option("--expires", type=Duration(), help="lifetime, such as 12h or 30d [default: until revoked]")
@click.option("--enroll", is_flag=True, help="an enroll token: agents and workers get their own with it")
@click.option("--uses", type=click.IntRange(1), help="how often an enroll token can be used")
def issue(
    settings: Settings,
    as_json: bool,
    direct: bool,
    name: str,
    role: str,
    tags: tuple[str, ...],
    expires: float | None,
    enroll: bool,
    uses: int | None,
) -> None:
    """Issue a token to NAME."""
    from functions.people.tokens import Issue  # imported late: it takes longer than the other commands

    kind = "enroll" if enroll else "access"
    body = {
        "name": name,
        "role": role,
        "kind": kind,
        "tags": [*tags] or None,
        "lasts_s": expires,
        "uses": uses,
    }
    try:
        Issue.model_validate(body)
    except ValidationError as problem:
        raise click.UsageError(invalid(problem).detail) from problem
    with asking(settings, direct=direct, make=True) as ask:
        token = ask("token::issue", body)
    print_answer(token, as_json, token["token"])
    if enroll:
        say(f"{_described(token)}; its receiver runs: {PROGRAM} token enroll URL --name N")
    else:
        say(f"{_described(token)}; it is shown only once. Its bearer sets NIGHTJAR_TOKEN to it")


@token_command.command()
@data_option
@lab_option
@json_option
@click.argument("url", required=False)
@click.option("--name", required=True, help="your name in the lab; it must be new")
def enroll(data: Path | None, lab: str | None, as_json: bool, url: str | None, name: str) -> None:
    """Get a token of your own with an enroll token of the lab at URL (default: this machine's).

    The enroll token is asked for, or read from standard input or NIGHTJAR_ENROLL_TOKEN. It is not an argument,
    because all users of the machine can read command lines.
    """
    settings = all_settings_from(data=data, lab=lab, url=url)
    given = _enroll_token(settings)
    if not is_own(settings):
        warn_of_plain_http(base_url(settings))
    token = LabHttp(settings, anonymous=True).ask(
        "POST", "/api/token/enroll", {"enroll_token": given, "name": name}
    )
    print_answer(token, as_json, token["token"])
    say(f"{_described(token)}; it is shown only once. Set NIGHTJAR_TOKEN to it")


@token_command.command("list")
@common
@direct_option
def show_all(settings: Settings, as_json: bool, direct: bool) -> None:
    """Show every token with its bearer and state, without secrets."""
    with asking(settings, direct=direct) as ask:
        answer = ask("token::list", {})
    if as_json:
        print_json(answer)
        return
    if answer["tokens"]:
        print_table(TOKENS, map(_row, answer["tokens"]))
    else:
        click.echo("no token: programs on this machine need none")


def _row(token: dict[str, Any]) -> tuple[str, ...]:
    left = token["uses_left"]
    return (
        *(token["id"], token["name"], token["role"], token["status"]),
        token["kind"] if left is None else f"{token['kind']}, {counted(left, 'use')} left",
        ", ".join(token["tags"] or ()),
        *(token["expires_at"] or "never", token["last_used_at"] or "never", token["issued_by"]),
    )


@token_command.command()
@common
@direct_option
@click.argument("token", metavar="[ID|NAME]", required=False)
@click.option(
    "--overlap",
    type=Duration(),
    default="5m",
    show_default=True,
    help="how long the old secret stays valid; 0 ends it and all its sessions at once",
)
def rotate(settings: Settings, as_json: bool, direct: bool, token: str | None, overlap: float) -> None:
    """Give a token a new secret: your own, or (as operator) another's."""
    if direct and token is None:
        raise click.UsageError("name the token: --direct has no token of its own")
    with asking(settings, direct=direct) as ask:
        body = {"overlap_s": overlap} | ({"id": _found(ask, token)["id"]} if token else {})
        rotated = ask("token::rotate", body)
    print_answer(rotated, as_json, rotated["token"])
    say(
        f"{_described(rotated)}: a new secret; its bearer sets NIGHTJAR_TOKEN to it."
        f" The old one is valid for another {overlap:g} s"
    )


@token_command.command()
@common
@direct_option
@click.argument("token", metavar="ID|NAME")
@click.option(
    "--descendants", is_flag=True, help="Of an enroll token: revoke all that were made with it too."
)
def revoke(settings: Settings, as_json: bool, direct: bool, descendants: bool, token: str) -> None:
    """Revoke a token, at once and for ever."""
    with asking(settings, direct=direct) as ask:
        rows = ask("token::list", {})["tokens"]
        found = _chosen(rows, token)
        revoked = ask("token::revoke", {"id": found["id"], "descendants": descendants})
    if as_json:
        print_json(revoked)
    say(f"the token {revoked['id']} of {revoked['name']!r} is revoked since {revoked['revoked_at']}")
    if revoked["descendants"]:
        say(f"so are those that were made with it: {', '.join(revoked['descendants'])}")
    if revoked["gpus"]:
        say(f"no more in the pool: {', '.join(revoked['gpus'])}")
    left = [
        r for r in rows if r["id"] != revoked["id"] and r["status"] == "active" and r["role"] == "operator"
    ]
    if not left:
        say("no operator's token is left; the commands of this data directory go on by the operator's key")


@token_command.command()
@common
def whoami(settings: Settings, as_json: bool) -> None:
    """Show your name and role in the lab."""
    http = LabHttp(settings)
    me = http.ask("GET", "/api/token/whoami")
    tags = f", on {', '.join(me['tags'])}" if me["tags"] else ""
    bearer = bearer_of(settings)
    proof = f"by {bearer.source}" if bearer else "without a token"
    print_answer(me, as_json, f"{me['name']}: {me['role']}{tags} ({proof}) at {http.url}")


def _found(ask: Ask, token: str) -> Shown:
    return _chosen(ask("token::list", {})["tokens"], token)


def _chosen(rows: list[Shown], token: str) -> Shown:
    """The token with this id, else the newest, preferably living one of this name. Raises NotFound."""
    named = sorted((r for r in rows if r["name"] == token), key=lambda r: r["status"] == "revoked")
    for row in [*(r for r in rows if r["id"] == token), *named]:
        return row
    raise NotFound(f"there is no token {token!r}", hint="./nightjar token list shows them")


def _enroll_token(settings: Settings) -> str:
    """The enroll token: the setting, a prompt, or standard input. Raises click.UsageError: it is empty."""
    if settings.enroll_token is not None:
        given = settings.enroll_token.get_secret_value()
    elif sys.stdin.isatty():
        given = click.prompt("enroll token", hide_input=True, err=True)
    else:
        given = sys.stdin.readline(1000)
    given = str(given).strip()
    if not given:
        raise click.UsageError("no enroll token: set NIGHTJAR_ENROLL_TOKEN, or pipe it in")
    hide(given)
    return given


def _described(token: Shown) -> str:
    on = f" on {', '.join(token['tags'])}" if token["tags"] else ""
    until = f" until {token['expires_at']}" if token["expires_at"] else ""
    kind = "enroll token" if token["kind"] == "enroll" else "token"
    return f"{kind} {token['id']} of {token['name']!r}, {token['role']}{on}{until}"


Ask = Callable[[str, Mapping[str, Any]], dict[str, Any]]
"""Calls a function by name and returns its response as JSON values."""


@contextmanager
def asking(settings: Settings, *, direct: bool, make: bool = False) -> Iterator[Ask]:
    """Call functions over HTTP; or, if `direct`, on the lab's Redis, which is started if none runs.

    `make` allows a direct call to create the lab. Call from the main thread, see `serving`.

    Raises:
        click.UsageError: `direct`, but NIGHTJAR_URL names another lab than the data directory's.
    """
    if not direct:
        http = LabHttp(settings)
        yield lambda name, body: http.ask("POST", f"/api/{name.replace('::', '/')}", body)
        return
    if not is_own(settings):
        raise click.UsageError(
            "--direct writes to the Redis of this data directory's lab, not to the lab at NIGHTJAR_URL: unset it"
        )
    from state.embedded import serving  # imported late: HTTP calls do not need it

    with serving(settings, make=make) as url:
        yield lambda name, body: asyncio.run(_called(settings, url, name, body))


async def _called(settings: Settings, url: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a function that is called without the web process."""
    from functions.kernel.invoke import Invoker
    from functions.kernel.process.readiness import lab_at, until_ready
    from functions.kernel.table import table
    from state.experiments import Experiments
    from state.pool import Pool
    from state.tokens import Tokens

    async with lab_at(settings, url) as lab:
        await until_ready(lab)
        invoker = Invoker({name: table()[name]}, [Tokens(lab), Pool(lab), Experiments(lab), settings])
        answer = await invoker.call(name, body, invoker.system("direct"))
        return answer.model_dump(mode="json")
