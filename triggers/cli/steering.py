"""Commands that steer runs: `nightjar pause`, `unpause`, `stop` and `retest`."""

from __future__ import annotations

import click

from state.program import PROGRAM
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import json_option, tag_argument, with_lab
from triggers.cli.output import counted, print_json, show
from triggers.cli.runs import the_tag


@click.command()
@with_lab
@tag_argument
@click.option("--reason", help="why, for the tag's agents")
@click.option("--stop-running", is_flag=True, help="stop its runs in progress too; else they go on")
@json_option
def pause_command(
    http: LabHttp, tag: str | None, reason: str | None, stop_running: bool, as_json: bool
) -> None:
    """Start no more runs of TAG (default: the lab's only tag): what waits keeps its place."""
    name = the_tag(http, tag)
    body = {"tag": name, "stop_running": stop_running, "reason": reason}
    found = http.ask("POST", "/api/tag/pause", body)
    if as_json:
        print_json(found)
        return
    since = "" if found["changed"] else f" since {found['paused_at']}"
    why = f" ({found['reason']})" if found["reason"] else ""
    show(f"{name}: paused{since}{why}; waiting: {counted(found['waiting'], 'experiment')}")
    if found["stopping"]:
        show(f"its workers end {', '.join(found['stopping'])}")
    click.echo(f"-> {PROGRAM} unpause {name}")


@click.command()
@with_lab
@tag_argument
@json_option
def unpause_command(http: LabHttp, tag: str | None, as_json: bool) -> None:
    """Start runs of TAG again (default: the lab's only tag)."""
    name = the_tag(http, tag)
    found = http.ask("POST", "/api/tag/unpause", {"tag": name})
    if as_json:
        print_json(found)
    else:
        what = "goes on" if found["changed"] else "was not paused"
        click.echo(f"{name}: {what}; waiting: {counted(found['waiting'], 'experiment')}")


@click.command()
@with_lab
@click.argument("experiment")
@click.option("--reason", help="why, for whoever reads it later")
@json_option
def stop_command(http: LabHttp, experiment: str, reason: str | None, as_json: bool) -> None:
    """Stop EXPERIMENT: at once where no worker has it, else its worker ends the run."""
    body = {"experiment_id": experiment} | ({"reason": reason} if reason is not None else {})
    found = http.ask("POST", "/api/experiment/stop", body)
    if as_json:
        print_json(found)
    elif found["stopping"]:
        click.echo(f"{experiment}: its worker ends the run; {PROGRAM} wait {experiment}")
    else:
        click.echo(f"{experiment}: stopped")


@click.command()
@with_lab
@click.argument("experiment")
@json_option
def retest_command(http: LabHttp, experiment: str, as_json: bool) -> None:
    """Run the code of EXPERIMENT once more on another seed: evidence for it, not a new experiment."""
    found = http.ask("POST", "/api/experiment/retest", {"experiment_id": experiment})
    if as_json:
        print_json(found)
    else:
        click.echo(
            f"{found['retest_id']}: {found['status']}, seed {found['seed']}; {PROGRAM} wait {found['retest_id']}"
        )
