"""`nightjar webhook` sends the lab's events to URLs: add, list, test, remove."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from state.program import PROGRAM
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import json_option, with_lab
from triggers.cli.output import ERROR, OK, print_json, say, show
from triggers.cli.tables import Column, print_table

WEBHOOKS = (
    *(Column("id"), Column("URL", text=30), Column("state"), Column("delivered", right=True)),
    *(Column("failed", right=True), Column("last answer", text=20), Column("tag", spare=2)),
    Column("types", text=20, spare=1),
)


def common(run: Callable[..., Any]) -> Callable[..., Any]:
    """The options of all these commands."""
    return with_lab(json_option(run))


@click.group(subcommand_metavar="COMMAND [--OPTION]...")
def command() -> None:
    """Send the lab's events to a URL, Slack or Discord, signed by Standard Webhooks."""


@command.command()
@common
@click.option("--type", "types", multiple=True, help="only events of this type (repeatable)  [default: all]")
@click.option("--tag", help="only events of this tag")
@click.argument("url")
def add(http: LabHttp, as_json: bool, types: tuple[str, ...], tag: str | None, url: str) -> None:
    """Send every event from now on to URL; prints the secret that signs them, which is shown only once."""
    body = {"url": url, "types": [*types] or None, "tag": tag}
    added = http.ask("POST", "/api/webhook/add", body)
    if as_json:
        print_json(added)
        return
    click.echo(added["secret"])
    say(f"webhook {added['id']}; -> {PROGRAM} webhook test {added['id']}")


@command.command("list")
@common
def show_all(http: LabHttp, as_json: bool) -> None:
    """Show every webhook with counts of its deliveries, without its secret and the path of its URL."""
    found = http.ask("POST", "/api/webhook/list", {})
    if as_json:
        print_json(found)
    elif found["webhooks"]:
        print_table(WEBHOOKS, map(_row, found["webhooks"]))
    else:
        click.echo(f"no webhook: {PROGRAM} webhook add URL")


def _row(webhook: dict[str, Any]) -> tuple[str, ...]:
    status = webhook["last_status"]
    return (
        *(
            webhook["id"],
            webhook["url"],
            webhook["status"],
            str(webhook["delivered"]),
            str(webhook["failed"]),
        ),
        webhook["disabled_reason"] or webhook["last_error"] or ("" if status is None else str(status)),
        *(webhook["tag"] or "", ", ".join(webhook["types"] or ())),
    )


@command.command()
@common
@click.argument("webhook", metavar="ID")
def test(http: LabHttp, as_json: bool, webhook: str) -> int:
    """Send the webhook ID one message now; exits with 1 where it was not delivered."""
    found = http.ask("POST", "/api/webhook/test", {"id": webhook})
    if as_json:
        print_json(found)
    else:
        how = found["error"] or f"the receiver answered {found['status']}"
        show(f"{webhook}: {'delivered' if found['delivered'] else 'not delivered'}, {how}")
    return OK if found["delivered"] else ERROR


@command.command()
@common
@click.argument("webhook", metavar="ID")
def remove(http: LabHttp, as_json: bool, webhook: str) -> None:
    """Delete the webhook ID, with the events that it is still owed."""
    found = http.ask("POST", "/api/webhook/remove", {"id": webhook})
    if as_json:
        print_json(found)
    else:
        click.echo(f"{webhook}: removed")
