"""`nightjar events` follows the running lab's events, one line each, and connects again after each cut.

`nightjar webhook` sends them to URLs.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from functions.kernel.process.supervision import RestartBackoff
from state.client_settings import ClientSettings
from state.program import PROGRAM
from triggers.cli.lab_http import AWAY, LabHttp
from triggers.cli.options import json_option, tag_argument, with_lab, with_settings
from triggers.cli.output import ERROR, OK, json_text, print_answer, print_json, printable, say
from triggers.cli.runs import names_of_tags
from triggers.cli.tables import Column, print_table

TIMEOUT_S = 45.0
"""Seconds of silence after which a connection counts as dead: three heartbeats of the stream."""
BACKOFF = RestartBackoff(first_s=0.2, most_s=5.0)


def follow(
    settings: ClientSettings,
    query: Mapping[str, str],
    say: Callable[[str], None],
    path: str = "/api/events",
    patience_s: float = math.inf,
) -> Iterator[dict[str, Any]]:
    """Yield every event once and in order, even if the connection breaks.

    A gap (events that are no longer kept) is yielded as `{"type": "reset", ...}`.

    Raises:
        NightjarError: the lab does not answer at the start or for `patience_s`, or refuses the request at any time.
    """
    last_id: str | None = None
    failures, told, away_since = 0, False, math.inf
    while True:
        try:
            for event_id, event in _connection(settings, path, query, last_id):
                if told:
                    say("connected again")
                failures, told, last_id, away_since = 0, False, event_id, math.inf
                if event is not None:
                    yield event
        except AWAY as problem:
            away_since = min(away_since, time.monotonic())
            if last_id is None or time.monotonic() - away_since > patience_s:
                raise
            if not told:
                say(f"{problem.detail}; trying again")
                told = True
        failures += 1
        time.sleep(BACKOFF.delay(failures))


def _connection(
    settings: ClientSettings, path: str, query: Mapping[str, str], last_id: str | None
) -> Iterator[tuple[str | None, dict[str, Any] | None]]:
    """Ids and events until the connection ends. The first id is the start position, without an event."""
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    # looks the URL and the token up each time: they may have changed
    with LabHttp(settings, timeout_s=TIMEOUT_S).lines(path, query, headers) as lines:
        yield from read(lines, last_id)


def read(
    lines: Iterable[str], last_id: str | None = None
) -> Iterator[tuple[str | None, dict[str, Any] | None]]:
    """Parse server-sent events into (id, event); an unfinished last block is left out."""
    kind, data = "message", list[str]()
    begun = False
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            begun = begun or bool(name)
            match name:
                case "id":
                    last_id = value
                case "event":
                    kind = value
                case "data":
                    data.append(value)
        elif begun:
            yield last_id, {"type": kind, **json.loads("\n".join(data))} if data else None
            kind, data, begun = "message", [], False


STYLES = {
    "best.changed": "bold green",
    "experiment.finished": "bold",
    "experiment.lost": "red",
    "experiment.confirmed": "green",
    "experiment.demoted": "bold red",
    "experiment.retracted": "bold red",
    "experiment.promoted": "bold green",
    "experiment.refuted": "bold red",
    "gpu.offline": "yellow",
    "gpu.unhealthy": "red",
    "lab.audit_failed": "bold red",
    "reset": "bold yellow",
}
TOLD = {
    "experiment.registered": ("category", "agent", "hypothesis"),
    "experiment.finished": ("status", "trust", "val_bpb", "description"),
    "experiment.retesting": ("retest_id", "seed"),
    "experiment.retested": ("status", "val_bpb"),
    "certificate.decided": ("state", "against", "pairs"),
    "transfer.decided": ("state", "budget_s", "pairs"),
    "experiment.confirmed": ("val_bpb", "base_commit_sha"),
    "experiment.revalued": ("val_bpb", "judged_val_bpb"),
    "experiment.demoted": ("val_bpb", "best_experiment_id", "base_commit_sha"),
    "experiment.retracted": ("val_bpb", "reason", "best_experiment_id", "base_commit_sha"),
    "experiment.promoted": ("val_bpb", "base_commit_sha"),
    "experiment.refuted": ("val_bpb", "reported"),
    "best.changed": ("val_bpb",),
    "strategy.changed": ("mode", "reason"),
}
"""The fields that the line of an event shows, without names; other types show all fields with names."""


@click.command()
@with_settings
@tag_argument
@click.option("--type", "types", multiple=True, help="only events of this type, such as experiment.finished")
@click.option("--only-new-best", is_flag=True, help="only new bests")
@click.option("--last", type=click.IntRange(0, 1000), help="begin with this many of the newest of these")
@click.option("--json", "as_json", is_flag=True, help="one JSON object per line")
def events_command(
    settings: ClientSettings,
    tag: str | None,
    types: tuple[str, ...],
    only_new_best: bool,
    last: int | None,
    as_json: bool,
) -> int:
    """Follow the events of TAG (default: of the whole lab) until Ctrl-C, also over restarts of the lab."""
    if only_new_best and types:
        raise click.UsageError("give --only-new-best or --type, not both")
    asked = {
        "tag": tag,
        "types": ",".join(types) or None,
        "only": "new_best" if only_new_best else None,
        "last": last,
    }
    query = {name: str(value) for name, value in asked.items() if value is not None}
    console = Console(soft_wrap=True, highlight=False)
    if tag is not None and tag not in names_of_tags(LabHttp(settings)):
        say(f"there is no tag {tag!r} yet: its events come once it is opened")
    try:
        for event in follow(settings, query, say):
            if as_json:
                click.echo(json_text(event))
            else:
                console.print(line(event))
    except KeyboardInterrupt:
        return OK
    return OK


def line(event: dict[str, Any]) -> Text:
    """One event as a line: local time, type, subject, fields."""
    kind = str(event["type"])
    if kind == "reset":
        return Text(f"events after {event['since']} are no longer kept: a gap", style=STYLES["reset"])
    moment = datetime.fromisoformat(event["time"]).astimezone() if event["time"] else None
    text = Text(f"{moment:%H:%M:%S}  " if moment else " " * 10, style="dim")
    text.append(f"{kind:<22}", style=STYLES.get(kind, ""))
    text.append(f"{printable(event['subject']):<14} ", style="cyan")
    text.append(printable(_facts(event)))
    return text


def _facts(event: dict[str, Any]) -> str:
    data, told = event["data"], TOLD.get(event["type"])
    if told is not None:
        return "  ".join(_value(data[name]) for name in told if data.get(name) is not None)
    said = {None, event["tag"], event["subject"]}
    return "  ".join(
        f"{name}={_value(value)}"
        for name, value in data.items()
        if not (isinstance(value, str | None) and value in said)
    )


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# -- Webhooks: add, list, test, remove.

WEBHOOKS = (
    *(Column("id"), Column("URL", text=30), Column("state"), Column("delivered", right=True)),
    *(Column("failed", right=True), Column("last answer", text=20), Column("tag", spare=2)),
    Column("types", text=20, spare=1),
)


def common(run: Callable[..., Any]) -> Callable[..., Any]:
    """The options of all these commands."""
    return with_lab(json_option(run))


@click.group(subcommand_metavar="COMMAND [--OPTION]...")
def webhook_command() -> None:
    """Send the lab's events to a URL, Slack or Discord, signed by Standard Webhooks."""


@webhook_command.command()
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


@webhook_command.command("list")
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


@webhook_command.command()
@common
@click.argument("webhook", metavar="ID")
def test(http: LabHttp, as_json: bool, webhook: str) -> int:
    """Send the webhook ID one message now; exits with 1 where it was not delivered."""
    found = http.ask("POST", "/api/webhook/test", {"id": webhook})
    how = found["error"] or f"the receiver answered {found['status']}"
    told = f"{webhook}: {'delivered' if found['delivered'] else 'not delivered'}, {how}"
    print_answer(found, as_json, told)
    return OK if found["delivered"] else ERROR


@webhook_command.command()
@common
@click.argument("webhook", metavar="ID")
def remove(http: LabHttp, as_json: bool, webhook: str) -> None:
    """Delete the webhook ID, with the events that it is still owed."""
    found = http.ask("POST", "/api/webhook/remove", {"id": webhook})
    print_answer(found, as_json, f"{webhook}: removed")
