"""`nightjar status` shows the running lab's processes, GPUs, queue and tags."""

from __future__ import annotations

from typing import Any

import click

from functions.formats.digits import decimals
from state.program import PROGRAM
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import json_option, with_lab
from triggers.cli.output import as_commands, counted, print_json, show
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
def command(http: LabHttp, as_json: bool) -> None:
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
