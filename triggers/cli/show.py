"""`nightjar show` prints the main facts of one experiment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from functions.formats.metrics_block import deciding_line, remedies_in
from state.program import PROGRAM
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import with_lab
from triggers.cli.output import counted, print_json, printable, printable_lines
from triggers.cli.runs import digits_of, gain_in_words, is_of_swarm, measured, outcome, path_of, value


@click.command()
@with_lab
@click.argument("experiment")
@click.option("--json", "as_json", is_flag=True, help="the whole record")
def command(http: LabHttp, experiment: str, as_json: bool) -> None:
    """Show EXPERIMENT: what was tried, what came of it, its further runs, the end of its log."""
    found = http.ask("GET", path_of(experiment))
    if as_json:
        print_json(found)
        return
    run = found["experiment"]
    click.echo(f"{run['experiment_id']}  {outcome(run)}  {printable(run['description'])}")
    for name, text in _facts(run, found, digits_of(http, run["tag"])):
        click.echo(f"{name:<12}{printable(text)}")
    if found["log_tail"]:
        click.echo(f"\n{printable_lines(found['log_tail'])}")
    if run["has_diff"]:
        click.echo(f"\n-> {PROGRAM} diff {run['experiment_id']} shows its change")


def _facts(run: dict[str, Any], found: dict[str, Any], digits: int) -> Iterator[tuple[str, str]]:
    """Names and texts of the known facts."""
    if number := value(run, digits):
        better = gain_in_words(run, found["gain"], digits)
        yield "value", f"{number}{_of_baseline(run, digits)}" + (f", {better}" if better else "")
    if run["score"] == "trusted" and run["reported"] is not None and run["reported"] != run["val_bpb"]:
        yield "printed", f"{run['reported']:.{digits}f} by train.py"
    for retest in found["retests"]:
        again = "" if retest["val_bpb"] is None else f" {retest['val_bpb']:.{digits}f}"
        yield "run again", f"{retest['retest_id']}: {retest['status']}{again} (seed {retest['seed']})"
    if one := found["certificate"]:
        yield "certificate", certificate_line(one)
    for one in found["transfers"]:
        yield "transfer", transfer_line(one)
    if (claim := found["claim"]) and claim["claimed_bpb"] is not None:
        interval = claim["claimed_interval"]
        within = f", 95 % within {interval[0]:.{digits}f} and {interval[1]:.{digits}f}" if interval else ""
        runs = "run" if claim["claimed_n"] == 1 else "runs"
        yield (
            "claimed",
            f"{claim['claimed_bpb']:.{digits}f}, the mean of {claim['claimed_n']} more {runs}{within}",
        )
    if run["contended"]:
        slow = [one["reason"] for one in found["attempts"].values() if one["status"] == "contended"]
        yield "contended", "; ".join(slow)
    if run["hung"]:
        yield (
            "hung",
            "after it had printed its result, so its worker ended it: have it end its threads and children",
        )
    if run["reason"]:
        yield "because", run["reason"]
    yield "hypothesis", run["hypothesis"]
    yield "category", run["category"]
    if run["parent_ids"]:
        yield "made from", ", ".join(run["parent_ids"])
    if run["config_delta"]:
        yield "constants", ", ".join(f"{name} = {given!r}" for name, given in run["config_delta"].items())
    if run["duplicate_of"]:
        yield "same code", f"as {run['duplicate_of']}"
    by = " by " + run["agent"] if run["agent"] else ""
    if is_of_swarm(run):
        yield "run by", f"{run['worker_id']} ({run['gpu_type']}), config {run['commit_sha']}"
    else:
        yield "commit", f"{run['commit_sha']}{by}"
    if run["gpu_id"]:
        took = "" if run["training_seconds"] is None else f", {run['training_seconds']:g} s of training"
        yield "trained on", f"{run['gpu_id']}{took}"
    if run["peak_vram_mb"]:
        yield "memory", f"{run['peak_vram_mb']:g} MB"
    yield (
        "times",
        ", ".join(
            f"{what} {run[at]}"
            for what, at in (
                ("registered", "registered_at"),
                ("started", "started_at"),
                ("finished", "finished_at"),
            )
            if run[at]
        ),
    )
    if run["error"]:
        yield run["error_kind"] or "error", deciding_line(run["error"], run["error_kind"] or run["status"])
        yield from (("remedy", told) for told in remedies_in(run["error"]))


def certificate_line(one: dict[str, Any]) -> str:
    """A certificate in a line."""
    pairs = sum(pair["measured"] is not None for pair in one["pairs"])
    what = (
        f"{one['state']} at alpha {one['alpha']:g}: a gain over {one['against']} beyond {one['min_gain']:g}"
    )
    return f"{what}, {pairs} pairs, e-value {one['e_value']:.4g}" + (
        f"; {one['reason']}" if one["reason"] else ""
    )


def transfer_line(one: dict[str, Any]) -> str:
    """A transfer in a line."""
    there = "" if one["longer_gain"] is None else f", {one['longer_gain']:+.3g} at {one['budget_s']:g} s"
    gain = f"{one['gain']:+.3g} at {one['own_budget_s']:g} s{there}"
    why = f"; {one['reason']}" if one["reason"] else ""
    return f"{one['state']}: gain over {one['against']} {gain}, {counted(one['pairs'], 'pair')}{why}"


def _of_baseline(run: dict[str, Any], digits: int) -> str:
    """The printed value and the baseline, if the value is a difference."""
    if not (printed := measured(run, digits)):
        return ""
    return (
        f" (val_bpb {printed}, its worker's baseline {run['baseline_bpb']:.{digits}f}: below zero is better)"
    )
