"""Commands that print how the lab stands, and its texts: `nightjar status`, `report`, `journal` and `program`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from functions.formats.digits import decimals
from state.client_settings import ClientSettings
from state.program import PROGRAM
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import NEW_FILE, json_option, tag_argument, with_lab, with_settings
from triggers.cli.output import as_commands, counted, note, print_json, printable_lines, show
from triggers.cli.runs import the_tag
from triggers.cli.tables import Column, print_table

GPUS = (
    *(Column("GPU"), Column("name", text=20), Column("status"), Column("experiment")),
    Column("last heartbeat", spare=1),
)
TAGS = (
    *(Column("tag"), Column("experiments", right=True, spare=1), Column("kept", right=True)),
    *(Column("best", right=True), Column("experiment", spare=5), Column("state", spare=2)),
    *(Column("runs", right=True, spare=3), Column("GPU hours", right=True, spare=4)),
)


@click.command()
@with_lab
@json_option
def status_command(http: LabHttp, as_json: bool) -> None:
    """Show the running lab's processes, GPUs, queue and tags."""
    status = http.ask("GET", "/api/lab/status")
    pool = http.ask("GET", "/api/pool/list")
    tags = http.ask("GET", "/api/report/tags")
    of_swarms = [tag["name"] for tag in tags["tags"] if tag["branch"] == f"swarm/{tag['name']}"]
    swarms = {name: http.ask("GET", f"/health?tag={name}") for name in of_swarms}
    if as_json:
        print_json({"status": status, "pool": pool, "tags": tags, "swarms": swarms})
        return
    _show(http.url, status, pool, tags)
    for name, swarm in swarms.items():
        click.echo(
            f"swarm {name!r}: {counted(swarm['active_workers'], 'active worker')},"
            f" {counted(swarm['queue_depth'], 'waiting config')},"
            f" {counted(swarm['experiments'], 'result')}, {counted(swarm['frozen_dims'], 'frozen dimension')};"
            f" {PROGRAM} call swarm::leaderboard --tag {name}"
        )


def _show(url: str, status: dict[str, Any], pool: dict[str, Any], tags: dict[str, Any]) -> None:
    alive = ", ".join(f"{count} {kind}" for kind, count in status["counts"].items())
    show(f"lab {status['lab']!r} at {url}: {alive}; {status['queue']} waiting")
    if pool["workers"]:
        print_table(
            GPUS,
            [
                (
                    *(gpu["gpu_id"], gpu["gpu_name"], gpu["status"]),
                    *(gpu["experiment_id"] or "", gpu["last_heartbeat"]),
                )
                for gpu in pool["workers"]
            ],
        )
    else:
        show(f"no worker: {PROGRAM} worker --repo PATH")
    for process in status["processes"]:
        if training := process.get("training"):
            show(f"{process['name']}: training {training}")
        for warning in process.get("warnings", ()):
            show(f"{process['name']}: {warning}")
    for agent in status["agents"]:
        used = f", {agent['tokens']:,} tokens" if agent["tokens"] is not None else ""
        used += f", {agent['cost_usd']:.2f} USD" if agent["cost_usd"] is not None else ""
        until = f" until {agent['until']} ({agent['limit']})" if agent["until"] else ""
        show(
            f"agent {agent['agent']} on {agent['tag']}: {agent['state']}{until},"
            f" {counted(agent['starts'], 'start')}, {counted(agent['experiments'], 'experiment')}{used}"
        )
    if tags["tags"]:
        print_table(TAGS, map(_of_tag, tags["tags"]))
    for hint in status["hints"]:
        show(f"-> {as_commands(hint)}")


def _of_tag(tag: dict[str, Any]) -> tuple[str, ...]:
    return (
        *(tag["name"], str(tag["total_experiments"]), str(tag["kept_experiments"])),
        "" if tag["best"] is None else f"{tag['best']:.{decimals(tag['sigma'])}f}",
        tag["best_experiment_id"] or "",
        "paused" if tag["paused"] else "",
        _of_limit(tag["budget"]["runs"], 1),
        _of_limit(tag["budget"]["gpu_seconds"], 3600),
    )


def _of_limit(account: dict[str, Any], unit: float) -> str:
    """Spent plus reserved, and the limit if there is one."""
    used = f"{(account['spent'] + account['reserved']) / unit:.4g}"
    return used if account["limit"] is None else f"{used} of {account['limit'] / unit:.4g}"


@click.command()
@with_lab
@tag_argument
@click.option("-o", "--output", type=NEW_FILE, help="write it to this file, and the plot beside it")
@click.option(
    "--shrinkage", is_flag=True, help="say, to operators, what a hidden split bears out of the gains"
)
@click.option("--json", "as_json", is_flag=True, help="the figures, and the Markdown among them")
def report_command(
    http: LabHttp, tag: str | None, output: Path | None, shrinkage: bool, as_json: bool
) -> None:
    """Print what TAG (default: the lab's only tag) brought: fit for a pull request."""
    name = the_tag(http, tag)
    plot = output.with_name(f"{output.stem}.png") if output else None
    asked = {"tag": name, "picture": plot.name if plot else None}
    night = http.ask("POST", "/api/report/night", asked)
    if output is not None and plot is not None:
        picture = http.ask("GET", f"/api/report/progress.png?tag={name}")
        output.write_text(night["markdown"] + "\n")
        plot.write_bytes(picture)
        note(f"{output} and {plot.name} are written")
    elif as_json:
        print_json(night)
    else:
        click.echo(printable_lines(night["markdown"]))
    if shrinkage:
        _show_shrinkage(http, name)
    if night["best_experiment_id"] is not None:
        hint = (
            f"best {name} --write train.py sets the constants of your train.py to the best"
            if night["by_delta"]
            else f"take {night['best_experiment_id']} makes a branch of the best"
        )
        note(f"-> {PROGRAM} {hint}")


def _show_shrinkage(http: LabHttp, tag: str) -> None:
    """Say how much of the gains the hidden split bears out: on standard error, never in the report."""
    found = http.ask("POST", "/api/trust/shrinkage", {"tag": tag})
    if found["shrinkage"] is None:
        note("hidden split: no keep of this tag was compared on it")
        return
    gains = f"{found['visible_gain']:.6g} visible, {found['hidden_gain']:.6g} hidden"
    note(
        f"hidden split: {found['shrinkage']:.0%} of the visible gain is missing there ({gains}; mean of"
        f" {found['keeps']} keeps)"
    )


@click.command()
@with_settings
@tag_argument
@click.option("-o", "--output", type=NEW_FILE, help="write it to this file")
def journal_command(settings: ClientSettings, tag: str | None, output: Path | None) -> None:
    """Print the whole journal of TAG, a swarm, checkpoint by checkpoint.

    TAG is by default the lab's only tag, else NIGHTJAR_SWARM_TAG.
    """
    http = LabHttp(settings)
    name = the_tag(http, tag, among_several=settings.swarm_tag)
    texts = list(_checkpoints(http, name))
    if output is not None:
        output.write_text("\n".join(texts), "utf-8")
        note(f"{output}: {counted(len(texts), 'checkpoint')} of {name}")
    elif texts:
        click.echo(printable_lines("\n".join(texts)), nl=False)
    else:
        note(f"{name} has no checkpoint yet: one is written after every 100 results")


def _checkpoints(http: LabHttp, tag: str) -> Iterator[str]:
    """The texts of all checkpoints, page by page."""
    first, count = 1, 1
    while first <= count:
        found = http.ask("POST", "/api/journal/list", {"tag": tag, "first": first})
        yield from (checkpoint["text"] for checkpoint in found["checkpoints"])
        first, count = first + len(found["checkpoints"]), found["count"]
        if not found["checkpoints"]:
            return


VERSIONS = (
    *(Column("version", right=True), Column("written"), Column("by"), Column("results", right=True)),
    *(Column("strategy"), Column("why", text=20)),
)


@click.command()
@with_settings
@tag_argument
@click.option("--versions", is_flag=True, help="list the versions: who wrote each, when and why")
@click.option("--diff", type=click.IntRange(1), metavar="N", help="what version N changed")
@click.option("--write", is_flag=True, help="have a version written now")
def program_command(
    settings: ClientSettings, tag: str | None, versions: bool, diff: int | None, write: bool
) -> None:
    """Print what the lab has written of the results of TAG: the block in program.md.

    TAG is by default the lab's only tag, else NIGHTJAR_SWARM_TAG.
    """
    http = LabHttp(settings)
    name = the_tag(http, tag, among_several=settings.swarm_tag)
    if write:
        begun = http.ask("POST", "/api/program/write", {"tag": name})
        note(_of_writing(begun))
    elif versions:
        if found := _versions(http, name):
            print_table(VERSIONS, map(_version_row, found))
    elif diff is not None:
        shown = http.ask("POST", "/api/program/diff", {"tag": name, "number": diff})["diff"]
        click.echo(printable_lines(shown), nl=False)
    else:
        for version in _versions(http, name, limit=1):
            click.echo(printable_lines(version["text"]))


def _versions(http: LabHttp, tag: str, limit: int | None = None) -> list[dict[str, Any]]:
    """The newest versions; prints a note if there are none."""
    body = {"tag": tag} | ({} if limit is None else {"limit": limit})
    found: list[dict[str, Any]] = http.ask("POST", "/api/program/list", body)["versions"]
    if not found:
        note(f"nothing was written of {tag} yet: it is after 50 results, or with --write")
    return found


def _version_row(version: dict[str, Any]) -> tuple[str, ...]:
    return tuple(
        str(version[name]) for name in ("number", "written_at", "author", "results", "strategy", "reason")
    )


def _of_writing(begun: dict[str, Any]) -> str:
    number, tag = begun["number"], begun["tag"]
    if begun["became"] == "written":
        return f"version {number} of the program of {tag} is written"
    return f"a language model writes version {number} of the program of {tag}: --versions shows it once it is there"
