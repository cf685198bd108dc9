"""Commands that show experiments: `nightjar ls`, `show`, `logs`, `diff` and `best`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from functions.formats.metrics_block import deciding_line, remedies_in
from functions.formats.parsing import decoded
from state.client_settings import ClientSettings
from state.errors import Conflict, Invalid, NotFound, Unavailable
from state.program import PROGRAM
from triggers.cli.events import follow as stream
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import EXISTING_FILE, json_option, tag_argument, with_lab, with_settings
from triggers.cli.output import (
    BY_STATUS,
    counted,
    note,
    print_json,
    printable,
    printable_lines,
    say,
    show,
    show_patch,
)
from triggers.cli.runs import (
    Run,
    digits_of,
    gain_in_words,
    is_of_swarm,
    measured,
    newest_remedies,
    outcome,
    path_of,
    print_runs,
    the_tag,
    value,
)

MOST = 1000


@click.command()
@with_lab
@tag_argument
@click.option("-n", "limit", type=click.IntRange(1, MOST), default=20, show_default=True, help="how many")
@click.option("--status", type=click.Choice([*BY_STATUS]), help="only of this status")
@click.option("--category", help="only of this category")
@click.option("--json", "as_json", is_flag=True, help="the records, oldest first")
def ls_command(
    http: LabHttp, tag: str | None, limit: int, status: str | None, category: str | None, as_json: bool
) -> None:
    """List the experiments of TAG (default: the lab's only tag), the newest first.

    A gain is over the best before it, on the same seeds; above zero is better.
    """
    name = the_tag(http, tag)
    asked = {"tag": name, "limit": limit, "status": status, "category": category}
    found = http.ask("POST", "/api/experiment/history", asked)
    if as_json:
        print_json(found["experiments"])
    else:
        _show_list(name, found, digits_of(http, name))


def _show_list(tag: str, found: dict[str, Any], digits: int) -> None:
    runs = found["experiments"]
    if runs:
        print_runs(runs[::-1], found["gains"], digits)
    for remedy, run in newest_remedies(runs).items():
        show(f"{run['experiment_id']}: {remedy}")
    of = f"{len(runs)} of " if len(runs) < found["total"] else ""
    more = f"; {PROGRAM} show ID tells more of one" if runs else ""
    click.echo(f"{tag}: {of}{counted(found['total'], 'experiment')}{more}")


@click.command()
@with_lab
@click.argument("experiment")
@click.option("--json", "as_json", is_flag=True, help="the whole record")
def show_command(http: LabHttp, experiment: str, as_json: bool) -> None:
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
    pairs = sum(pair["measured"] is not None for pair in one["pairs"])
    what = (
        f"{one['state']} at alpha {one['alpha']:g}: a gain over {one['against']} beyond {one['min_gain']:g}"
    )
    return f"{what}, {pairs} pairs, e-value {one['e_value']:.4g}" + (
        f"; {one['reason']}" if one["reason"] else ""
    )


def transfer_line(one: dict[str, Any]) -> str:
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


PATIENCE_S = 60.0
"""Seconds for which the lab may be away while we follow."""
SKIPPED = "... lines were printed faster than they could be followed ..."


@click.command()
@with_settings
@click.argument("experiment")
@click.option(
    "-f", "--follow", is_flag=True, help="go on until the run has ended; the exit code is its outcome"
)
def logs_command(settings: ClientSettings, experiment: str, follow: bool) -> int:
    """Print the newest lines of EXPERIMENT's log, while it runs and after."""
    found = LabHttp(settings).ask("GET", path_of(experiment, "log"))
    shown = _say_new([], found["log"].splitlines())
    if not follow:
        if not shown:
            nothing = "it printed nothing" if found["finished"] else "it has printed nothing yet"
            note(f"{experiment}: {found['status']}; {nothing}")
        return 0
    newest = found
    if not newest["finished"]:
        for newest in stream(settings, {"follow": "true"}, say, path_of(experiment, "log"), PATIENCE_S):
            shown = _say_new(shown, newest["log"].splitlines())
            if newest["finished"]:
                break
    note(f"{experiment}: {newest['status']}; {PROGRAM} show {experiment}")
    return BY_STATUS[newest["status"]]


def _say_new(shown: Sequence[str], lines: Sequence[str]) -> Sequence[str]:
    """Print new lines; answers the newest ones."""
    news = list(added(shown, lines))
    if news:
        click.echo("\n".join(map(printable, news)))
    return lines


def added(shown: Sequence[str], lines: Sequence[str]) -> Iterator[str]:
    """The lines after the shown ones. The last shown line may have changed, as a progress line does."""
    for before in (shown, shown[:-1]):
        for overlap in range(min(len(before), len(lines)), 0, -1):
            if before[-overlap:] == lines[:overlap]:
                yield from lines[overlap:]
                return
    if len(shown) > 1:
        yield SKIPPED
    yield from lines


@click.command()
@with_lab
@click.argument("experiment")
@click.argument("other", required=False)
def diff_command(http: LabHttp, experiment: str, other: str | None) -> None:
    """Print the patch of EXPERIMENT against its tag's base commit, or what OTHER changes on top of EXPERIMENT.

    Constants that were set over the code are named on standard error. A swarm's run has no patch: its constants are
    printed, or those in which OTHER differs.
    """
    if other is None:
        one = http.ask("GET", path_of(experiment))
        config = _constants_of(one["experiment"])
        is_config = is_of_swarm(one["experiment"])
        text, missing = config if is_config else one["diff"], f"no patch is known of {experiment}"
        constants = "" if is_config or not config else f"{experiment} sets {', '.join(config.splitlines())}"
        same = f"{experiment} changes nothing of the code that it began with"
    else:
        found = http.ask("POST", "/api/report/diff", {"experiment_a": experiment, "experiment_b": other})
        text, missing = found["diff"], found["diff_cut"] or "one of them has no patch"
        constants = found["constants"] or ""
        same = f"{other} {'has the code of' if constants else 'changes nothing on top of'} {experiment}"
    if text is None:
        raise NotFound(missing, hint=f"./nightjar show {experiment} tells its commit")
    for line in filter(None, ("" if text else same, constants)):
        note(line)
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(text.encode())  # as it is: it may be applied
        return
    show_patch(text)


def _constants_of(run: Run) -> str:
    """The constants that a swarm's run sets, as lines of train.py."""
    return "".join(f"{name} = {value!r}\n" for name, value in (run["config_delta"] or {}).items())


@click.command()
@with_lab
@tag_argument
@click.option(
    "--write",
    "script",
    metavar="TRAIN_PY",
    type=EXISTING_FILE,
    help="set the constants of this file to the best config of a swarm's tag",
)
@json_option
def best_command(http: LabHttp, tag: str | None, script: Path | None, as_json: bool) -> None:
    """Show the best experiment of TAG (default: the lab's only tag), and what may be claimed of it.

    --write changes nothing of the file but the values of these constants; where it lacks one, nothing at all.
    """
    name = the_tag(http, tag)
    found = http.ask("POST", "/api/experiment/best", {"tag": name})
    best, run = found["best"], found["experiment"]
    if best is None:
        raise NotFound(f"nothing of {name!r} was kept yet", hint=f"./nightjar ls {name} shows what was tried")
    changes = None if script is None else set_constants(script, _config(run))
    if as_json:
        print_json(found if changes is None else {**found, "written": changes})
        return
    digits = digits_of(http, name)
    beside = f" (val_bpb {printed})" if (printed := measured(run, digits)) else ""
    what = f"{value(run, digits)}{beside}  {outcome(run)}  {printable(run['description'])}"
    click.echo(f"{best['experiment_id']}  {what}")
    if best["claimed_bpb"] is not None:
        runs = "run" if best["claimed_n"] == 1 else "runs"
        click.echo(
            f"claimed: {best['claimed_bpb']:.{digits}f}, the mean of {best['claimed_n']} more {runs} of its code"
        )
    if script is not None and changes is not None:
        _tell(script, changes, run)
    elif is_of_swarm(run):
        click.echo(f"-> {PROGRAM} best {name} --write train.py sets the constants of your train.py to it")
    else:
        click.echo(f"-> {PROGRAM} diff {best['experiment_id']}")


def _config(run: Run) -> dict[str, object]:
    """The best experiment's config, for a train.py. Raises Conflict: its change is none of constants alone."""
    if not is_of_swarm(run):
        raise Conflict(
            f"{run['experiment_id']}, the best of {run['tag']!r}, is a change of code: no swarm's config",
            hint=f"{PROGRAM} take {run['experiment_id']} makes a branch of its code",
        )
    if not run["config_delta"]:
        raise Conflict(
            f"{run['experiment_id']}, the best of {run['tag']!r}, ran the unchanged train.py of"
            f" {run['worker_id']!r}: there is no config to write",
            hint=f"{PROGRAM} ls {run['tag']} shows what else was tried",
        )
    return dict(run["config_delta"])


def _tell(script: Path, changes: dict[str, Change], run: Run) -> None:
    for name, (before, after) in changes.items():
        click.echo(f"{printable(name)}: {printable(repr(before))} -> {printable(repr(after))}")
    count = len(run["config_delta"])
    same = count - len(changes)
    rest = f", {same} had its value already" if same else ""
    click.echo(f"{script} has the {count} constants of {run['experiment_id']}{rest}")


Change = tuple[object, object]
"""A constant's value before and after."""


def set_constants(script: Path, values: Mapping[str, object]) -> dict[str, Change]:
    """Set constants of a script to these values; answers those that have changed.

    A constant that has its value already keeps its text. The file keeps its mode, and a link stays a link. It is
    replaced in one step: who reads it meanwhile sees the old text or the new one.

    Raises:
        Invalid: the file is no Python, or lacks one of the constants: it is left as it is.
        Unavailable: it cannot be read or written.
    """
    from functions.formats.constants import patch_constants, settable_constants  # imported late: few set any

    file = script.resolve()
    try:
        source, encoding = decoded(file.read_bytes())
        constants = settable_constants(source)
        patched = patch_constants(source, values)
        if patched != source:
            _replace(file, patched.encode(encoding))
    except Invalid as problem:
        raise Invalid(
            f"{script} is left as it is: {problem.detail}",
            hint="add it at the top level, as `NAME = VALUE`: the swarm's train.py has it there",
        ) from problem
    except OSError as problem:
        raise Unavailable(
            f"{script} is left as it is: {problem.strerror or problem}", hint="name a file that you may write"
        ) from problem
    return {
        name: (constants[name], value)
        for name, value in values.items()
        if ascii(constants[name]) != ascii(value)
    }


def _replace(file: Path, content: bytes) -> None:
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with draft.open("xb") as opened:
            shutil.copymode(file, draft)
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
