"""Measures how many keeps of a night hold at a false discovery rate of 10 %, and what further runs for that cost.

    .venv/bin/python -P -m bench.fdr

Nights, proposals and noise are those of `bench.keeps`, with the policy's default rule.
`functions/trust/rules/discoveries.py` makes the lab's statement: each keep that holds is better than the last one
that held. The other statement compares each with the code that it replaced. Further runs are pairs, and count among
the night's 300 runs. They go to the best and the last keep that holds, first among the last runs of the night. Or
they go to each confirmed keep and the code that it replaced, as it is confirmed. No pair is run for a keep that
holds already.

False: mean over nights of the share of false ones among the keeps that hold. Worst look: the largest share after any
run. Parent: the share that is no better than the code it replaced. Gains are divided by that of greedy keeping.
Brackets hold 95 % bootstrap intervals over nights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import click
import numpy as np
from rich.table import Table

from bench._report import Bench
from bench._tag import SimulatedRetest
from bench.keeps import (
    BASELINE,
    GAIN,
    PAIRED,
    POLICY,
    RESAMPLES,
    RUNS,
    Floats,
    KeepingNight,
    Rule,
    RuleFigures,
    SimulatedLab,
    lived,
    shown,
)
from functions.experiments.rules.gains import Gain
from functions.trust.rules.discoveries import RATE, discoveries, e_value

MOST = 12
"""Most further runs of one experiment."""
FROM = str(BASELINE)
HEAVY = "unpaired, heavy tails"


def longer(night: KeepingNight, seed: int, paired: float) -> KeepingNight:
    """The night with noise for MOST further runs of each proposal."""
    chance = np.random.default_rng((seed, 1))
    more = MOST + 1 - night.noise.shape[1]
    own, shared = chance.normal(size=(RUNS + 1, more)), chance.normal(size=more)
    noise = np.hstack([night.noise, math.sqrt(1 - paired) * own + math.sqrt(paired) * shared])
    return replace(night, noise=noise)


def heavy_tailed(night: KeepingNight, seed: int) -> KeepingNight:
    """The night with noise like Student's t with 3 degrees of freedom, of the same variance."""
    chance = np.random.default_rng((seed, 2))
    return replace(night, noise=chance.standard_t(3, night.noise.shape) / math.sqrt(3))


@dataclass(frozen=True)
class Stating:
    """What the statement compares, and the further runs for it."""

    by_parent: bool = False
    """Compare with the code that was replaced."""
    last: int = 0
    """Among so many last runs of the night, pairs for the statement go first."""
    each: int = 0
    """Most further runs of each confirmed keep."""
    workers: int = 1


class StatingLab(SimulatedLab):
    """A lab that makes a statement about its keeps."""

    def __init__(self, night: KeepingNight, sigma: float, stating: Stating) -> None:
        super().__init__(night, sigma, Rule(POLICY.keep_rule, stating.workers))
        self.stating = stating
        self.worst = 0.0

    def round(self, workers: int) -> None:
        while len(self.tag.waiting) < workers and (name := self._wanted()) is not None:
            its = self.tag.tried[name].retests
            its.append(SimulatedRetest(name, len(its)))
            self.tag.waiting.append(its[-1])
        super().round(workers)
        held = self.held()
        self.worst = max(self.worst, self._false(held) / max(1, len(held)))

    def held(self) -> list[tuple[str, str]]:
        """Each keep that holds, with what it is better than."""
        noise = self.tag.own_noise
        if noise is None:
            return []
        under = dict(self.tag.replaced())
        tested = sorted(
            int(name) for name, its in self.tag.tried.items() if name != FROM and (its.trust or its.retests)
        )
        keeps = [(str(row), place) for place, row in enumerate(tested, 1) if str(row) in under]

        def over(last: str, name: str) -> Gain | None:
            return self._gain(under[name] if self.stating.by_parent else last, name)

        found = discoveries(FROM, keeps, over, noise)
        return [
            (o, under[o] if self.stating.by_parent else u)
            for u, o in zip([FROM, *found], found, strict=False)
        ]

    def outcome(self) -> list[float]:
        """The night's results, in the order of the columns."""
        held, under = self.held(), dict(self.tag.replaced())
        assert self.tag.best is not None
        best, newest = self.tag.best.experiment_id, held[-1][0] if held else FROM
        parents = sum(self.truths[name] >= self.truths[under[name]] for name, _ in held)
        return [
            len(under),
            len(held),
            self._false(held) / max(1, len(held)),
            self.worst,
            parents / max(1, len(held)),
            self.truths[FROM] - self.truths[best],
            self.truths[FROM] - self.truths[newest],
            self.again / self.used,
        ]

    def null_e_values(self) -> list[float]:
        """E-values of all that were run again, against the baseline. All are the same code as the baseline."""
        gains = [
            self._gain(FROM, name) for name, its in self.tag.tried.items() if its.retests and name != FROM
        ]
        noise = self.tag.own_noise
        return [e_value(g.by, g.runs, noise) for g in gains if g is not None and noise is not None]

    def _false(self, held: Sequence[tuple[str, str]]) -> int:
        return sum(self.truths[over] >= self.truths[under] for over, under in held)

    def _gain(self, before: str, after: str) -> Gain | None:
        was, now = self.tag.trial(before).fresh, self.tag.trial(after).fresh
        if not (pairs := min(len(was), len(now))):
            return None
        before_mean, after_mean = (math.fsum(runs[:pairs]) / pairs for runs in (was, now))
        return Gain(before_mean, after_mean, before_mean - after_mean, pairs)

    def _wanted(self) -> str | None:
        """The next experiment to run again for the statement."""
        if not self.stating.each and self.used < RUNS - self.stating.last:
            return None
        assert self.tag.best is not None
        held = [over for over, _ in self.held()]
        if self.stating.each:
            pairs = [(over, under) for over, under in self.tag.judged if over not in held]
        else:
            newest, best = held[-1] if held else FROM, self.tag.best.experiment_id
            pairs = [] if newest == best else [(best, newest)]
        most = self.stating.each or MOST
        begun = {name: len(self.tag.tried[name].retests) for pair in pairs for name in pair}
        return next((min(p, key=begun.__getitem__) for p in pairs if min(begun[n] for n in p) < most), None)


STATINGS: Mapping[str, Stating] = {
    "each over its parent": Stating(by_parent=True),
    "its parent, 4 runs each": Stating(by_parent=True, each=4),
    "its parent, 8 runs each": Stating(by_parent=True, each=8),
    "over the last that holds": Stating(),
    "pairs in the last 8 runs": Stating(last=8),
    "pairs in the last 16 runs": Stating(last=16),
    "pairs in the last 32 runs": Stating(last=32),
    "8 workers": Stating(workers=8),
    "8 workers, the last 16": Stating(last=16, workers=8),
    "8 workers, the last 32": Stating(last=32, workers=8),
}
BOUND = 0.93
"""Least gain of the newest keep that holds, by greedy's, with pairs in the last 16 runs."""
KEPT, HELD, FALSE, WORST, PARENT, BEST, NEWEST, AGAIN = range(8)


def stated(stating: Stating, night: KeepingNight, sigma: float) -> StatingLab:
    """A night that is over."""
    lab = StatingLab(night, sigma, stating)
    while lab.used < RUNS:
        lab.round(stating.workers)
    return lab


def nights_table(bench: Bench, seeds_of_nights: range) -> Table:
    table = Table(
        *("sigma", "seeds", "statement", "keeps", "hold", "false %", "worst look %", "parent %"),
        *("best x greedy", "holds x greedy", "again %"),
    )
    picks = np.random.default_rng(1).integers(0, len(seeds_of_nights), (RESAMPLES, len(seeds_of_nights)))
    for sigma in (0.0006, 0.0012):
        for seeds, paired in (("unpaired", 0.0), ("paired", PAIRED)):
            nights = [
                longer(KeepingNight.drawn(seed, paired, False), seed, paired) for seed in seeds_of_nights
            ]
            greedy: dict[int, Floats] = {}
            for name, stating in STATINGS.items():
                n = stating.workers
                if n not in greedy:
                    its = np.array([lived(Rule("strict", n), night, sigma) for night in nights])
                    greedy[n] = RuleFigures(its, picks).mean(GAIN)
                found = RuleFigures(
                    np.array([stated(stating, night, sigma).outcome() for night in nights]), picks
                )
                where = f"{name}, sigma {sigma}, {seeds} seeds"
                least = BOUND if stating.last == 16 and stating.workers == 1 else None
                newest = found.mean(NEWEST) / greedy[n]
                table.add_row(
                    *(str(sigma), seeds, name, f"{found.mean(KEPT)[0]:.1f}"),
                    shown(bench, "", found.mean(HELD), 1),
                    shown(bench, f"false: {where}", found.mean(FALSE), 100, None, RATE),
                    shown(bench, f"false at the worst look: {where}", found.mean(WORST), 100, None, RATE),
                    shown(bench, "", found.mean(PARENT), 100),
                    shown(bench, "", found.mean(BEST) / greedy[n], 1),
                    shown(bench, f"gain that holds: {where}", newest, 1, least),
                    shown(bench, "", found.mean(AGAIN), 100),
                )
            table.add_section()
    return table


def same_code_table(bench: Bench, seeds_of_tags: range) -> Table:
    """All proposals are the same code, so each keep that holds is false. Heavy tails break the e-value's mean."""
    table = Table("seeds", "statement", "tags where a keep ever holds %", "mean e-value against the baseline")
    picks = np.random.default_rng(1).integers(0, len(seeds_of_tags), (RESAMPLES, len(seeds_of_tags)))
    for seeds, paired in (("unpaired", 0.0), ("paired", PAIRED), (HEAVY, 0.0)):
        nights = [longer(KeepingNight.drawn(seed, paired, True), seed, paired) for seed in seeds_of_tags]
        if seeds == HEAVY:
            nights = [heavy_tailed(night, seed) for seed, night in zip(seeds_of_tags, nights, strict=True)]
        for name in ("over the last that holds", "pairs in the last 32 runs", "its parent, 4 runs each"):
            labs = [stated(STATINGS[name], night, 0.0006) for night in nights]
            values = [(lab.worst, math.fsum(its), len(its)) for lab in labs for its in [lab.null_e_values()]]
            found = RuleFigures(np.array(values, dtype=float), picks)
            where = f"{name}, identical code, {seeds} seeds"
            table.add_row(
                *(seeds, name),
                shown(bench, f"ever holds: {where}", found.mean(0), 100, None, RATE),
                shown(
                    bench,
                    f"mean e-value: {where}",
                    found.rate(1, 2),
                    1,
                    None,
                    None if seeds == HEAVY else 1.0,
                ),
            )
    return table


@click.command()
@click.option("--repeats", default=100, show_default=True, type=click.IntRange(2), help="simulated nights")
@click.option("--tags", default=200, show_default=True, type=click.IntRange(2), help="tags of identical code")
@click.option(
    "--seed", default=0, show_default=True, type=click.IntRange(0), help="seed of the first night and tag"
)
def main(repeats: int, tags: int, seed: int) -> None:
    """Simulate nights and their statements; exits with 1 if one is false more often than it says."""
    bench = Bench(width=200)
    bench.console.print(nights_table(bench, range(seed, seed + repeats)))
    bench.console.print(f"{tags} tags of identical code, {RUNS} runs each, sigma 0.0006")
    bench.console.print(same_code_table(bench, range(seed, seed + tags)))
    bench.end(f"{repeats} nights of {RUNS} runs for each row")


if __name__ == "__main__":
    main()
