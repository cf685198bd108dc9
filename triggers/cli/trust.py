"""Commands that follow work of the lab until it is decided: `nightjar certify`, `distil` and `transfer`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from functions.trust.rules.sequential import e_values, paired_gain
from state.program import PROGRAM
from triggers.certificates import folder
from triggers.cli.lab_http import LabHttp
from triggers.cli.looking import transfer_line
from triggers.cli.options import FiniteNumber, json_option, tag_argument, with_lab
from triggers.cli.output import DISCARD, OK, counted, note, print_json, show
from triggers.cli.runs import path_of, the_tag
from triggers.cli.wait import patiently


@contextmanager
def lab_goes_on() -> Iterator[None]:
    """Say on Ctrl-C that the lab goes on."""
    try:
        yield
    except KeyboardInterrupt:
        note("the lab goes on; the same command follows it")
        raise click.exceptions.Exit(130) from None


@click.command()
@with_lab
@click.argument("experiment")
@click.option("--against", metavar="REF", help="the reference [default: the tag's baseline]")
@click.option(
    "--min-gain", type=FiniteNumber(min=0), default=0.0, help="the gain has to exceed this [default: 0]"
)
@click.option(
    "--alpha", type=FiniteNumber(min=1e-6, max=0.2), default=0.01, help="largest false rate [default: 0.01]"
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="folder of the evidence [default: certificate-EXPERIMENT]",
)
@lab_goes_on()
def certify_command(
    http: LabHttp, experiment: str, against: str | None, min_gain: float, alpha: float, output: Path | None
) -> int:
    """Run EXPERIMENT and a reference in pairs on fresh seeds until a sequential test decides; write the evidence.

    After Ctrl-C the lab goes on, and the same command follows it. Exit codes: 0 certified, 3 refused, inconclusive.
    """
    target = output or Path(f"certificate-{experiment}")
    folder.check_new(target)
    asked = {"experiment_id": experiment, "against": against, "min_gain": min_gain, "alpha": alpha}
    begun = one = http.ask("POST", "/api/trust/certify", asked)["certificate"]
    told, path = 0, path_of(experiment)
    for one in followed(begun, lambda: http.ask("GET", path)["certificate"]):
        for line in certificate_lines(one)[told:]:
            click.echo(line)
            told += 1
    said = folder.write(target, http.ask, experiment)
    click.echo(said if one["state"] == "certified" else f"{one['state']}: {one['reason']}")
    click.echo(f"{target}: python3 -I {target}/verify.py checks it")
    return OK if one["state"] == "certified" else DISCARD


def certificate_lines(one: dict[str, Any]) -> list[str]:
    """A line for the conditions, and one for each pair that is over."""
    sign = 1 if one["direction"] == "minimize" else -1
    found = [
        f"{one['experiment_id']} against {one['against']}, at most {one['most_pairs']} pairs on {one['gpu_class']};"
        f" an e-value of {1 / one['alpha']:g} certifies it"
    ]
    gains: list[float] = []
    for nth, pair in enumerate(one["pairs"], 1):
        if pair["measured"] is not None:
            candidate, reference = pair["measured"]
            gains.append(paired_gain(sign * reference, sign * candidate, one["min_gain"]))
            found.append(
                f"pair {nth}: {candidate:.6g} ({pair['candidate']}) beside {reference:.6g} ({pair['reference']}),"
                f" {gains[-1]:+.6g} beyond the margin; e-value {e_values(gains)[-1]:.4g}"
            )
        elif pair["broken"] is not None:
            found.append(f"pair {nth}: run again, {pair['broken']}")
    return found


LOOK_S = 1.0


def followed(one: dict[str, Any], ask: Callable[[], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """This record and each answer of the lab, the last once it is no longer running."""
    yield one
    while one["state"] == "running":
        time.sleep(LOOK_S)
        one = patiently(ask)
        yield one


UNDECIDED = ("untried", "trying")


@click.command()
@with_lab
@tag_argument
@click.option("--yes", is_flag=True, help="begin it; otherwise only its budget is printed")
@json_option
@lab_goes_on()
def distil_command(http: LabHttp, tag: str | None, yes: bool, as_json: bool) -> int:
    """Leave out one keep of TAG at a time, and drop what the score does not need.

    After Ctrl-C the lab goes on, and the same command follows it. Exit codes: 0 done, 3 stopped.
    """
    name = the_tag(http, tag)
    found = http.ask("POST", "/api/trust/distil", {"tag": name, "begin": yes})
    if as_json:
        print_json(found)
        return OK
    show(_budget_line(found))
    one = found["distillation"]
    if one["state"] == "planned":
        click.echo(f"-> {PROGRAM} distil {name} --yes begins it")
        return OK
    told = dict[str, str]()
    for one in followed(
        found["distillation"], lambda: http.ask("POST", "/api/trust/distil", {"tag": name})["distillation"]
    ):
        for change in one["changes"]:
            change_id, state = change["experiment_id"], change["state"]
            if state not in UNDECIDED and told.get(change_id) != state:
                told[change_id] = state
                show(_change_line(change))
    show(_result_line(one))
    if one["state"] == "done":
        click.echo(f"-> {PROGRAM} take --distilled {name} makes branches of it")
    return OK if one["state"] == "done" else DISCARD


def _budget_line(found: dict[str, Any]) -> str:
    one = found["distillation"]
    return (
        f"{one['tag']}: {counted(len(one['changes']), 'change')} up to {one['best']}, at most {one['most_runs']} runs"
        f" of {one['run_s']:.0f} s: {found['hours']:.1f} hours on one GPU, in the tag {one['into']}"
    )


def _change_line(change: dict[str, Any]) -> str:
    loss = "" if change["loss"] is None else f", {change['loss']:+.3g} without it"
    runs = f" ({counted(change['runs'], 'run')})" if change["runs"] else ""
    why = f": {change['reason']}" if change["reason"] else ""
    return (
        f"{change['state']:<9} {change['experiment_id']} {change['description']},"
        f" {counted(change['lines'], 'line')}{loss}{runs}{why}"
    )


def _result_line(one: dict[str, Any]) -> str:
    if one["state"] != "done":
        return f"stopped: {one['reason']}"
    stay = [change for change in one["changes"] if change["state"] != "dropped"]
    lines, of = (sum(change["lines"] for change in changes) for changes in (stay, one["changes"]))
    worse = f"{one['loss']:+.3g} beside the whole chain, above zero is worse"
    return (
        f"{one['smallest']}: {len(stay)} of {counted(len(one['changes']), 'change')}, {lines} of {of} lines; {worse};"
        f" {counted(len(one['parts']), 'independent change')}"
    )


@click.command()
@with_lab
@click.argument("experiment")
@click.option("--budget", default="4x", help="of a run: seconds, or a multiple of its own  [default: 4x]")
@click.option("--against", metavar="REF", help="the reference  [default: the tag's baseline]")
@click.option("--yes", is_flag=True, help="begin it; otherwise only its budget is printed")
@json_option
@lab_goes_on()
def transfer_command(
    http: LabHttp, experiment: str, budget: str, against: str | None, yes: bool, as_json: bool
) -> int:
    """Run the keep EXPERIMENT and its reference in pairs at a longer budget: is its gain more than a head start?

    After Ctrl-C the lab goes on, and the same command follows it. Exit codes: 0 transfers, 3 bound to its budget,
    inconclusive.
    """
    asked = {"experiment_id": experiment, "budget": budget, "against": against, "begin": yes}
    found = http.ask("POST", "/api/trust/transfer", asked)
    if as_json:
        print_json(found)
        return OK
    one = found["transfer"]
    show(
        f"{one['experiment_id']} against {one['against']} at {one['budget_s']:g} s, not {one['own_budget_s']:g} s:"
        f" at most {one['most_runs']} runs, {found['hours']:.1f} hours on one GPU, in the tag {one['into']}"
    )
    if one["state"] == "planned":
        options = f"--budget {budget}" + (f" --against {against}" if against else "")
        click.echo(f"-> {PROGRAM} transfer {experiment} {options} --yes begins it")
        return OK
    told = 1  # all lines but the conditions
    for one in followed(found["transfer"], lambda: _transfer(http, experiment, found["transfer"]["into"])):
        for line in one.get("lines", [])[told:]:
            click.echo(line)
            told += 1
    show(transfer_line(one))
    return OK if one["state"] == "transfers" else DISCARD


def _transfer(http: LabHttp, experiment: str, into: str) -> dict[str, Any]:
    """The transfer as it is now, with the lines of its pairs."""
    its = http.ask("GET", path_of(experiment))["transfers"]
    now = next(each for each in its if each["into"] == into)
    by = http.ask("GET", path_of(now["candidate"]))["certificate"] if now["candidate"] else None
    return {**now, "lines": certificate_lines(by) if by else []}
