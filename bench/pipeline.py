"""Measures what a swarm gains by drafting its next program ahead, before the results that decide it are in.

    .venv/bin/python -P -m bench.pipeline

A night is 800 runs of 20 to 40 simulated workers, 300 s each. The rules of the server choose the configs, learn about
hypotheses, assign workers and decide on drafts, in memory (`bench/_batches.py`). The lag of a batch is the time from
its decision until its text is served. It is 0 s if the draft is confirmed. Otherwise the author needs 30 s, and
writes one text at a time. Without a pipeline the lag is 30 s.

In the first kind of night the truth stays, and each dimension has one claim. In the second kind each range has two
rival claims, and the truth flips after 300 runs. The pipeline is compared with one whose predictor always says "no
change", on the same runs. Batches count from the first generated program on. Brackets hold 95 % bootstrap intervals
over nights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import fmean

import click
from rich.console import Console
from rich.table import Table

from bench._batches import AUTHOR_S, Batches, EndedBatch, SimulatedPipeline
from bench._report import Bench, Interval, mean_of
from functions.pi.rules.stepping import PipelineTerms

SEEDS = 20
RESULTS = 800
FLIPPED_AT = 300
WORKERS = (20, 40)
LEAST_RATE = 0.90
MOST_LAG = 0.25
"""Relative to that without a pipeline."""
TERMS = PipelineTerms(enabled=True, auto_deploy=True)


@dataclass(frozen=True)
class DraftsOfNight:
    """The fates of one night's drafts."""

    confirmed: int
    flushed: Counter[str]
    """By reason."""
    batches: Sequence[EndedBatch]

    @property
    def hit_rate(self) -> float:
        return self.confirmed / max(1, self.confirmed + self.flushed.total())

    @property
    def lag(self) -> float:
        """Mean lag, relative to that without a pipeline."""
        return fmean(b.lag_s for b in self.batches) / AUTHOR_S

    @property
    def hits_of_changes(self) -> tuple[int, int]:
        """Number of batches that changed the decision and had a confirmed draft, and of all that changed it."""
        changed = [b for b in self.batches if b.has_changed]
        return sum(b.is_hit for b in changed), len(changed)


@dataclass(frozen=True)
class ComparedNight:
    """One night by both predictors."""

    own: DraftsOfNight
    unchanging: DraftsOfNight


def lived(seed: int, results: int, flipped_at: int | None) -> ComparedNight:
    """One night. With `flipped_at` it has rival claims, and its truth flips after that many runs."""
    workers = Random(f"workers {seed}").randint(*WORKERS)
    night = Batches(seed, workers=workers, terms=TERMS, has_rivals=flipped_at is not None)
    if flipped_at is not None:
        night.go_on(flipped_at)
        night.flip()
    night.go_on(results)
    return ComparedNight(fared(night.pipe), fared(night.unchanging))


def fared(pipe: SimulatedPipeline) -> DraftsOfNight:
    """The fates of a pipeline's drafts."""
    reasons = Counter(str(step.data["reason"]) for step in pipe.steps if step.kind == "flushed")
    first = next(step.before.batch_id for step in pipe.steps if step.kind == "drafting")
    batches = [b for b in pipe.batches if b.results > first * TERMS.batch_every]
    return DraftsOfNight(pipe.pipeline.confirmed_count, reasons, batches)


# -- the report


def show(name: str, nights: Sequence[ComparedNight], console: Console) -> dict[str, Interval]:
    """Print a table of one kind of night; answers its figures."""
    figures: dict[str, Callable[[ComparedNight], float]] = {
        "hit rate": lambda n: n.own.hit_rate,
        "hit rate, no change": lambda n: n.unchanging.hit_rate,
        "hit rate gained": lambda n: n.own.hit_rate - n.unchanging.hit_rate,
        "lag": lambda n: n.own.lag,
        "lag, no change": lambda n: n.unchanging.lag,
        "lag saved": lambda n: n.unchanging.lag - n.own.lag,
        "flushes": lambda n: n.own.flushed.total(),
        "lowest trust after its highest": lambda n: fallen(n.own.batches),
        "trust in the end": lambda n: n.own.batches[-1].bank,
        "deploys, share of batches": lambda n: fmean(b.deploys for b in n.own.batches),
    }
    found = {what: mean_of([figure(night) for night in nights]) for what, figure in figures.items()}
    table = Table("what", "found", title=name)
    for what, mean in found.items():
        table.add_row(what, f"{mean}")
    for who, fares in (("", [n.own for n in nights]), (", no change", [n.unchanging for n in nights])):
        reasons = sum((f.flushed for f in fares), Counter[str]())
        table.add_row(f"flushed{who}", ", ".join(f"{reason} {n}" for reason, n in reasons.most_common()))
        hits, changes = (sum(column) for column in zip(*(f.hits_of_changes for f in fares), strict=True))
        table.add_row(f"batches that changed the decision, hits{who}", f"{hits} of {changes}")
    batches = [b for n in nights for b in n.own.batches]
    table.add_row("batches", str(len(batches)))
    console.print(table)
    return found


def fallen(batches: Sequence[EndedBatch]) -> float:
    """The lowest trust after the trust first sufficed for deployment."""
    first = next((n for n, b in enumerate(batches) if b.bank >= TERMS.least_bank), 0)
    return min(b.bank for b in batches[first:])


def stops_and_recovers(night: ComparedNight) -> bool:
    """Whether drafts were deployed, then no more, and in the end again."""
    deploys = [b.bank >= TERMS.least_bank for b in night.own.batches]
    first = deploys.index(True) if True in deploys else len(deploys)
    return False in deploys[first:] and deploys[-1]


def missed(
    stable: dict[str, Interval],
    flipping: dict[str, Interval],
    flipped: Sequence[ComparedNight],
    console: Console,
) -> list[str]:
    """The targets that were missed."""
    recovered = fmean(stops_and_recovers(night) for night in flipped)
    console.print(f"nights that flip whose deployment stops and recovers: {100 * recovered:.0f} %")
    asked = {
        f"hit rate of stable swarms >= {LEAST_RATE}": stable["hit rate"].found >= LEAST_RATE,
        f"lag of stable swarms <= {MOST_LAG}": stable["lag"].found <= MOST_LAG,
        "flipping swarms flush drafts": flipping["flushes"].low > 0,
        "most flipping swarms stop and recover deployment": recovered > 0.5,
        "flipping: a higher hit rate than no change": flipping["hit rate gained"].low > 0,
        "flipping: a shorter lag than no change": flipping["lag saved"].found > 0,
    }
    return [what for what, is_hit in asked.items() if not is_hit]


@click.command(help=__doc__)
@click.option("--nights", default=SEEDS, show_default=True, type=click.IntRange(1))
@click.option("--results", default=RESULTS, show_default=True, type=click.IntRange(FLIPPED_AT + 100))
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(1), help="Nights at once.")
def main(nights: int, results: int, jobs: int) -> None:
    """Live the nights; exits with 1 if a target is missed."""
    bench, seeds = Bench(), range(1, nights + 1)
    with ProcessPoolExecutor(jobs) as pool:
        stable = list(pool.map(partial(lived, results=results, flipped_at=None), seeds))
        flipped = list(pool.map(partial(lived, results=results, flipped_at=FLIPPED_AT), seeds))
    found = show("the truth stays", stable, bench.console)
    flips = show("the truth flips", flipped, bench.console)
    bench.missed += missed(found, flips, flipped, bench.console)
    bench.end(f"{nights} nights of each kind")


if __name__ == "__main__":
    main()
