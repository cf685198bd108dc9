"""`nightjar wait` waits for one experiment and exits with the code of its outcome."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from functions.formats.metrics_block import deciding_line, remedies_in
from state.errors import NightjarError
from triggers.cli.lab_http import AWAY, LabHttp
from triggers.cli.options import FiniteNumber, with_lab
from triggers.cli.output import BY_STATUS, as_commands, print_json, printable
from triggers.cli.runs import digits_of, gain_in_words, path_of
from triggers.cli.runs import outcome as told
from triggers.cli.tables import bar

LOOK_S = 1.0
"""How long each request waits when a progress bar is shown."""
WAIT_S = 50.0
"""How long each request waits otherwise: the longest that the lab allows."""
PATIENCE_S = 60.0
"""How long the lab may be down while we wait."""
RETRY_S = 1.0

Outcome = dict[str, Any]
T = TypeVar("T")


@click.command()
@with_lab
@click.argument("experiment")
@click.option("--timeout", type=FiniteNumber(min=0), help="seconds [default: until it has finished]")
@click.option("--json", "as_json", is_flag=True, help="the outcome as JSON")
def command(http: LabHttp, experiment: str, timeout: float | None, as_json: bool) -> int:
    """Wait until EXPERIMENT has finished, and print its outcome.

    Exit codes: 0 keep (a retest: measured), 3 discard (also retracted), 4 crash (also timeout and invalid), 5 still
    running after --timeout, 8 stopped, 9 lost.
    """
    (outcome,) = deque(waited(http, experiment, timeout), maxlen=1)
    if as_json:
        print_json(outcome)
    else:
        shown = http.ask("GET", path_of(experiment))
        click.echo(line(outcome, shown, digits_of(http, shown["experiment"]["tag"])))
    return BY_STATUS[outcome["status"]]


def waited(http: LabHttp, experiment: str, timeout: float | None = None) -> Iterator[Outcome]:
    """The outcome so far, until it is final or after `timeout` seconds; on a terminal with a progress bar.

    Raises:
        NightjarError: no lab for PATIENCE_S. NotFound: no such experiment.
    """
    path = f"{path_of(experiment, 'wait')}?until=finished"
    wait_s = LOOK_S if sys.stderr.isatty() else WAIT_S
    now = heard_at = time.monotonic()
    end = now + timeout if timeout is not None else math.inf
    with bar() as shown:
        task = shown.add_task(f"{experiment}: asking", total=None)
        # the first request does not wait, so that a missing lab or experiment is reported at once
        outcome: Outcome = http.ask("GET", f"{path}&timeout=0")
        yield outcome
        while not outcome["finished"] and now < end:
            shown.update(task, **_progress(experiment, outcome))
            try:
                outcome = http.ask("GET", f"{path}&timeout={min(wait_s, end - now):.3f}")
                heard_at = time.monotonic()
                yield outcome
            except AWAY:
                if now - heard_at > PATIENCE_S:
                    raise
                time.sleep(min(RETRY_S, max(0.0, end - now)))
            now = time.monotonic()


def _progress(experiment: str, outcome: Outcome) -> dict[str, Any]:
    """What a progress bar shows of it."""
    done = outcome["progress"] if outcome["status"] == "running" else None
    metric = f", {outcome['metric']:.6g}" if done is not None and outcome["metric"] is not None else ""
    queue = outcome["queue"]
    place = f", place {queue['position']}" if queue else ""
    return {
        "description": f"{experiment}: {outcome['status']}{place}{metric}",
        "total": None if done is None else 1.0,
        "completed": done or 0.0,
    }


def patiently(step: Callable[[], T]) -> T:
    """The answer to a request, repeated while the lab is busy or away, for a while: it may have been done."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            return step()
        except NightjarError as problem:
            if not is_passing(problem) or time.monotonic() > give_up:
                raise
            time.sleep(min(problem.retry_after or RETRY_S, PATIENCE_S / 10))


def is_passing(problem: NightjarError) -> bool:
    """Whether to repeat the request: it may have been done, or will be."""
    return isinstance(problem, AWAY) or problem.retry_after is not None


def line(outcome: Outcome, shown: dict[str, Any], digits: int) -> str:
    """The outcome as text; `shown` is all of the experiment."""
    facts = [f"{outcome['experiment_id']}: {told(shown['experiment'])}"]
    if outcome["val_bpb"] is not None:
        printed = (
            "" if outcome["reported"] is None else f" (train.py printed {outcome['reported']:.{digits}f})"
        )
        facts.append(f"{outcome['val_bpb']:.{digits}f}{printed}")
    if better := gain_in_words(shown["experiment"], shown["gain"], digits):
        facts.append(better)
    if outcome["error"]:
        facts.append(
            printable(deciding_line(outcome["error"], outcome["error_kind"] or outcome["status"]))[:500]
        )
    steps = (*remedies_in(outcome["error"] or ""), as_commands(outcome["next"]))
    return "\n-> ".join(("  ".join(facts), *map(printable, steps)))
