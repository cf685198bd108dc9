"""`nightjar try` has the change in your clone trained, waits, and moves the branch by the verdict."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click

from functions.experiments.views.hints import HUNG
from functions.formats.metrics_block import deciding_line, remedies_in
from functions.kernel.contract import CATEGORIES
from triggers.cli.lab_http import LabHttp
from triggers.cli.one_idea import OneIdea, TryRequest, TryVerdict
from triggers.cli.options import with_lab
from triggers.cli.output import BY_STATUS, printable, say
from triggers.cli.runs import digits_of, gain_in_words, outcome, path_of

LONGEST = 300
"""Characters of a reason or an error that are printed."""


@click.command()
@with_lab
@click.argument("hypothesis")
@click.option(
    "--category", type=click.Choice(CATEGORIES), default="other", show_default=True, help="the kind of change"
)
@click.option(
    "--tag",
    envvar="NIGHTJAR_TAG",
    help="the line of research [NIGHTJAR_TAG, else that of the branch autoresearch/TAG-NAME]",
)
def command(http: LabHttp, hypothesis: str, category: str, tag: str | None) -> int:
    """Have the change in this clone trained, committed or not; wait for the verdict, and act on it.

    HYPOTHESIS is what you expect of the change, and why. A keep stays on your branch. Otherwise the branch goes back
    to the lab's base, and the last line says how to get the change back. After Ctrl-C the same command goes on
    waiting. Exit codes are those of `wait`.
    """
    idea = OneIdea(http, Path.cwd(), say)
    try:
        verdict = idea.tried(TryRequest(hypothesis, category, tag, os.environ.get("NIGHTJAR_NAME")))
    except KeyboardInterrupt:
        say("interrupted; the same command goes on")
        raise
    for line in lines(http, verdict):
        click.echo(printable(line))
    return BY_STATUS[verdict.outcome["status"]]


def lines(http: LabHttp, verdict: TryVerdict) -> Iterator[str]:
    """The verdict in seven lines at most."""
    found = verdict.outcome
    shown = http.ask("GET", path_of(found["experiment_id"]))
    run = shown["experiment"]
    digits = digits_of(http, run["tag"])
    facts = [f"{found['experiment_id']}: {outcome(run)}{', near miss' if found['near_miss'] else ''}"]
    if found["val_bpb"] is not None:
        facts.append(f"{found['val_bpb']:.{digits}f}")
    if better := gain_in_words(run, shown["gain"], digits):
        facts.append(better)
    yield "  ".join(facts)
    if found["error"]:
        yield deciding_line(found["error"], found["error_kind"] or found["status"])[:LONGEST]
        yield from (f"-> {remedy}"[:LONGEST] for remedy in remedies_in(found["error"])[:1])
    elif found["reason"]:
        yield found["reason"][:LONGEST]
    if found["hung"]:
        yield HUNG
    if found["trust"] == "provisional":
        yield "It runs once more on another seed, and may be demoted."
    yield verdict.place
    if found["should_abort"]:
        yield found["next"]
    if verdict.unsent:
        yield verdict.unsent
