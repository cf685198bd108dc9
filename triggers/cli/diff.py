"""`nightjar diff` shows the change of one experiment, or what lies between two."""

from __future__ import annotations

import sys

import click

from state.errors import NotFound
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import with_lab
from triggers.cli.output import note, show_patch
from triggers.cli.runs import Run, is_of_swarm, path_of


@click.command()
@with_lab
@click.argument("experiment")
@click.argument("other", required=False)
def command(http: LabHttp, experiment: str, other: str | None) -> None:
    """Print the patch of EXPERIMENT against its tag's base commit, or what OTHER changes on top of EXPERIMENT.

    Constants that were set over the code are named on standard error. A swarm's run has no patch: its constants are
    printed, or those in which OTHER differs.
    """
    if other is None:
        one = http.ask("GET", path_of(experiment))
        config = _config(one["experiment"])
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


def _config(run: Run) -> str:
    """The constants that a swarm's run sets, as lines of train.py."""
    return "".join(f"{name} = {value!r}\n" for name, value in (run["config_delta"] or {}).items())
