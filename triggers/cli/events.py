"""`nightjar events` follows the running lab's events, one line each."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from state.client_settings import ClientSettings
from triggers.cli.follow import follow
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import tag_argument, with_settings
from triggers.cli.output import OK, json_text, printable, say
from triggers.cli.runs import names_of_tags

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
@click.option(
    "--last", type=click.IntRange(0, 1000), default=None, help="begin with this many of the newest of these"
)
@click.option("--json", "as_json", is_flag=True, help="one JSON object per line")
def command(
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
