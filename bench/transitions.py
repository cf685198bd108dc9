"""Compares the two rules that choose a tag's mode and category, `adapt.rule` published and yields.

    .venv/bin/python -P -m bench.transitions FOLDER

With a folder: on its logs, every file `*.tsv` (bench/_transitions.py says how). Intervals come from resampling whole
logs. Gains are in the mean gain per try of their log, so that no log outweighs the others.

Then on simulated nights, whose agents follow the rule. Each rule has the same number of tries in the same worlds.
The yields below were read out of eight public logs with 382 tries. Two things are assumed: agents follow, and a
category's yield depends on nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import fmean, stdev

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
from functions.contract import CATEGORIES
from functions.rules.search.kinds import NO_CATEGORY, OF_CATEGORY, kept_category
from functions.rules.search.strategy import next_strategy
from functions.rules.search.suggestions import least_tried_of
from functions.rules.search.yields import MODES, best_category
from state.errors import NightjarError
from state.records import Direction, End, Mode

EXPLORED: list[str] = [c for c in CATEGORIES if c not in OF_CATEGORY and c != NO_CATEGORY]
EVENLY = "evenly"
"""Control: a mode drawn at random for each try."""
TRIES = 100

# What the logs show: kept tries of all by how many came in their category since its last keep.
FIRST_YIELD, FIRST_FADES = 0.30, 0.93
"""Where nothing of the category was kept yet: 0.29 of 69, 0.29 of 31, 0.27 of 30 tries, and so on."""
NEXT_YIELD, NEXT_FADES = 0.38, 0.75
"""After a keep: 0.38 of 93, 0.20 of 50, 0.23 of 35, 0.10 of 42, 0.06 of 35 tries, and so on."""
LEAST_YIELD = 0.06
AMONG = 0.34
"""Standard deviation of the categories' yields, of their mean."""
ABLATED = 0.23
"""Kept ablations, of 13."""
COMBINED, WITHOUT_PAIR = 0.17, 0.08
"""Kept combinations, of 12; half of it where no two near misses are left, which no log tells of."""
NEAR = 0.30
"""Discards that were near misses, of 304; each is combined once."""
GAIN, HARDER = 0.0018, 250.0
"""A keep gains |N(0, GAIN)| less with every try, as in `bench.keeps`."""
MARGIN = 0.002


@dataclass
class World:
    """The simulated results of one night."""

    chance: Random
    ends: list[End] = field(default_factory=lambda: [End("keep", baseline=True)])
    near: list[float] = field(default_factory=list)
    """Distance of each near miss from the best."""
    gain: float = 0.0

    def __post_init__(self) -> None:
        self.better = {c: max(0.0, self.chance.gauss(1, AMONG)) for c in EXPLORED}

    def chance_of(self, category: str) -> float:
        """The probability that the next try of this category is kept."""
        if category in ("combination", "ablation"):
            pair = len(self.near) >= 2
            return ABLATED if category == "ablation" else COMBINED if pair else WITHOUT_PAIR
        tried = [end for end in self.ends if end.category == category]
        since = next((n for n, end in enumerate(reversed(tried)) if end.status == "keep"), None)
        first = FIRST_YIELD * FIRST_FADES ** len(tried)
        rate = first if since is None else NEXT_YIELD * NEXT_FADES**since
        return min(1.0, max(LEAST_YIELD, rate) * self.better[category])

    def run(self, category: str) -> None:
        """One try of this category."""
        kept = self.chance.random() < self.chance_of(category)
        if category == "combination":
            self.near = self.near[2:]
        if kept:
            gain = abs(self.chance.gauss(0, GAIN)) * math.exp(-len(self.ends) / HARDER)
            self.gain += gain
            self.near = [worse + gain for worse in self.near if worse + gain <= MARGIN]
        elif self.chance.random() < NEAR:
            self.near.append(self.chance.uniform(0, MARGIN))
        self.ends.append(End("keep" if kept else "discard", category=category))


def night(rule: str, seed: int, tries: int = TRIES) -> tuple[int, float]:
    """Keeps and gain of a night whose agents do what the rule says."""
    world, drawn = World(Random(seed)), Random(~seed)
    for _ in range(tries):
        world.run(_category(rule, world, drawn))
    return sum(end.status == "keep" for end in world.ends) - 1, world.gain


def _category(rule: str, world: World, drawn: Random) -> str:
    """What the next agent is told to try."""
    ends = world.ends
    mode: Mode = drawn.choice(MODES)
    if rule != EVENLY:
        limits = RULES[rule]
        mode = next_strategy(ends[-limits.ends_read :], len(ends), len(world.near), limits).mode
    kept = kept_category(ends)
    if mode == "combine":
        return "combination"
    if mode == "ablation":
        return "ablation"
    if mode == "exploit" and kept is not None:
        return kept
    if rule == YIELDS:
        return best_category(ends[-RULES[YIELDS].ends_read :], EXPLORED)
    counts = {c: [end for end in ends if end.category == c] for c in EXPLORED}
    stats = {c: (len(own), sum(e.status == "keep" for e in own)) for c, own in counts.items() if own}
    return least_tried_of(stats, EXPLORED)


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


def draws(parts: int, many: int = 1000) -> list[list[int]]:
    """Bootstrap samples of part indexes, the same ones each time."""
    chance = Random(0)
    return [chance.choices(range(parts), k=parts) for _ in range(many)]


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


def of_nights(nights: int, seed: int, console: Console) -> None:
    """The table of the simulated nights."""
    table = Table(
        "rule", f"keeps of {TRIES} tries", "gain, 1e-3", "gain, less published's", title_justify="left"
    )
    table.title = f"{nights} simulated nights"
    found = {rule: [night(rule, seed + n) for n in range(nights)] for rule in (EVENLY, *RULES)}
    for rule, results in found.items():
        above = [1e3 * (a[1] - b[1]) for a, b in zip(results, found[PUBLISHED], strict=True)]
        off = 1.96 * stdev(above) / math.sqrt(nights)
        table.add_row(
            rule,
            f"{fmean(r[0] for r in results):.1f}",
            f"{1e3 * fmean(r[1] for r in results):.2f}",
            f"{fmean(above):+.2f} [{fmean(above) - off:+.2f}, {fmean(above) + off:+.2f}]",
        )
    console.print(table)


@click.command()
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--nights", default=1000, show_default=True, type=click.IntRange(2), help="simulated, of each rule"
)
@click.option("--seed", default=0, show_default=True)
def main(folder: Path | None, nights: int, seed: int) -> None:
    """Compare the rules of the search on the logs of a folder, and in simulated nights."""
    console = Console(width=150)
    if folder is not None:
        logs, refused = logs_in(folder)
        for line in refused:
            console.print(f"left out: {line}", markup=False)
        if not logs:
            raise click.ClickException(f"there is no log in {folder}")
        of_logs(logs, console)
    of_nights(nights, seed, console)


if __name__ == "__main__":
    main()
