"""One line for each run that starts or ends, for who has `nightjar up` before them."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import Callable

from functions.process.readiness import connected
from functions.rules.keeps.gains import gain_of
from functions.views.experiments import view
from state.errors import NightjarError, NotFound
from state.experiments import Experiments
from state.facts import Shown
from state.records import Experiment
from state.settings import Settings
from state.stream import Stream
from triggers.cli.output import printable
from triggers.cli.runs import outcome, signed, value

log = logging.getLogger(__name__)

START = "experiment.started"
ENDS = frozenset(
    {
        "experiment.finished",
        "experiment.lost",
        "experiment.retested",
        "experiment.promoted",
        "experiment.refuted",
    }
)
LOOK_S = 5.0
AWAY_S = 1.0
WIDTH = 160
"""Columns where nothing says how many there are."""


async def tell_runs(settings: Settings, say: Callable[[str], None]) -> None:
    """Say a line for each run that starts or ends from now on, until cancelled."""
    async with connected(settings) as lab:
        stream, experiments = Stream(lab), Experiments(lab)
        last: str | None = None
        while True:
            try:
                last = last or await stream.newest()
                for event in await stream.follow(last, wait_s=LOOK_S):
                    last = event.id
                    if event.type in ENDS:
                        say(line(await experiments.shown(event.subject)))
                    elif event.type == START:
                        say(begun(await experiments.shown(event.subject), event.data.get("gpu_id")))
            except NotFound:
                continue  # its record is gone already: there is nothing to tell
            except NightjarError:
                await asyncio.sleep(AWAY_S)  # `up` says itself that Redis is away
            except Exception:  # the lab goes on without these lines
                log.exception("telling of runs")
                await asyncio.sleep(AWAY_S)


def begun(found: Shown, gpu: str | None) -> str:
    """Such as `mar11-7   starts on box:0, budget 300 s  WIDTH 48 -> 96`."""
    e = found.runs.experiment
    budget = found.policy.budgets.base_s if e.budget_s is None else e.budget_s
    place = f" on {gpu}" if gpu else ""
    return _cut(f"{e.experiment_id:<9} starts{place}, budget {budget:g} s  {printable(e.description)}")


def line(found: Shown) -> str:
    """Such as `mar11-7  keep  0.997900  +0.002100  301 s  WIDTH 48 -> 96`; a gain above zero is better."""
    e = found.runs.experiment
    run, gain = view(e).model_dump(), gain_of(e, found.runs, found.compared, found.direction)
    why = "over budget" if e.over_budget else "hung" if e.hung else e.error_kind
    said = f"{outcome(run)} ({why})" if why is not None else outcome(run)
    numbers = f"{value(run):>8} {signed(gain.by if gain else None):>9} {_seconds(e):>6}"
    return _cut(f"{e.experiment_id:<9} {said:<8} {numbers}  {printable(e.description)}")


def _cut(told: str) -> str:
    width = shutil.get_terminal_size((WIDTH, 0)).columns if sys.stderr.isatty() else WIDTH
    return told if len(told) <= width else f"{told[: width - 1]}…"


def _seconds(e: Experiment) -> str:
    seconds = e.training_seconds
    if seconds is None and e.started_at is not None and e.finished_at is not None:
        seconds = e.finished_at - e.started_at
    return "" if seconds is None else f"{seconds:.0f} s"
