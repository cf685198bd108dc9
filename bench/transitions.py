"""Compares the two rules that choose a tag's mode and category, `adapt.rule` published and yields.

    .venv/bin/python -P -m bench.transitions FOLDER

On the logs of a folder, every file `*.tsv` (bench/_transitions.py says how). Intervals come from resampling whole
logs. Gains are in the mean gain per try of their log, so that no log outweighs the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import fmean

import click
from rich.console import Console
from rich.table import Table

from bench._transitions import (
    PUBLISHED,
    RULES,
    YIELDS,
    Comparison,
    Estimate,
    Judged,
    Try,
    compared,
    judged_categories,
    judged_modes,
    recorded_tries,
    scaled,
)
from functions.kernel.contract import CATEGORIES
from state.errors import NightjarError
from state.records import Direction

RESAMPLES = 1000


@dataclass(frozen=True)
class RecordedLog:
    """A log of results that says which direction is better."""

    tries: list[Try]
    direction: Direction


def logs_in(folder: Path) -> tuple[list[RecordedLog], list[str]]:
    """The logs of a folder, and why each other file is left out."""
    found, refused = list[RecordedLog](), list[str]()
    for file in sorted(folder.rglob("*.tsv")):
        try:
            recorded, tries = recorded_tries(file)
        except NightjarError as problem:
            refused.append(f"{file.name}: {problem}")
            continue
        if recorded.direction is None:
            refused.append(f"{file.name}: nothing says whether a higher {recorded.metric} is better")
        else:
            found.append(RecordedLog(tries, recorded.direction))
    return found, refused


def _parts(logs: Iterable[RecordedLog], judge: Callable[[RecordedLog], list[Judged]]) -> list[list[Judged]]:
    """The judged tries of each log that has any, with gains in the mean gain per try of that log."""
    parts = [found for log in logs if (found := judge(log))]
    return [scaled(part, fmean(judged.gain for judged in part) or 1.0) for part in parts]


def of_logs(logs: list[RecordedLog], console: Console) -> None:
    """Print the tables of the recorded logs."""
    modes = _parts(logs, lambda log: judged_modes(log.tries, log.direction))
    console.print(f"{len(modes)} logs, {sum(map(len, modes))} tries after the first five of each")
    found = compared(modes, draws(len(modes)))
    console.print(table_of(found, "search::adapt, the mode"))
    difference = found.difference
    if difference.rates is None or not difference.is_significant:
        console.print("No significant difference between published and yields.")
    else:
        console.print(f"{YIELDS if difference.rates[0] > 0 else PUBLISHED} finds more keeps per try.")
    explored = _parts(logs, lambda log: judged_categories(log.tries, log.direction, CATEGORIES))
    found = compared(explored, draws(len(explored)))
    console.print(table_of(found, "search::suggest_direction, the category to explore"))


def draws(parts: int) -> list[list[int]]:
    """Bootstrap samples of part indexes, the same ones each time."""
    chance = Random(0)
    return [chance.choices(range(parts), k=parts) for _ in range(RESAMPLES)]


def table_of(comparison: Comparison, title: str) -> Table:
    """One row for the record, each rule, and their difference."""
    columns = ("rule", "tries", "keeps per try", "gain per try", "keeps, weighted", "gain, weighted")
    table = Table(*columns, title=title, title_justify="left")
    table.add_row("the record", *_cells(comparison.record))
    for rule in RULES:
        table.add_row(rule, *_cells(comparison.rules[rule]))
    table.add_row("yields less published", *_cells(comparison.difference, "+"))
    return table


def _cells(estimate: Estimate, sign: str = "") -> list[str]:
    rates = estimate.rates or (None,) * 4
    intervals = estimate.intervals or (None,) * 4
    cells = [f"{estimate.tries} differ" if sign else str(estimate.tries)]
    for rate, interval in zip(rates, intervals, strict=True):
        spread = f" \\[{interval[0]:{sign}.2g}, {interval[1]:{sign}.2g}]" if interval else ""
        cells.append("-" if rate is None else f"{rate:{sign}.3g}{spread}")
    return cells


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(folder: Path) -> None:
    """Compare the rules of the search on the logs of a folder."""
    console = Console(width=150)
    logs, refused = logs_in(folder)
    for line in refused:
        console.print(f"left out: {line}", markup=False)
    if not logs:
        raise click.ClickException(f"there is no log in {folder}")
    of_logs(logs, console)


if __name__ == "__main__":
    main()
