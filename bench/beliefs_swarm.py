"""Knowledge of a swarm with beliefs after a night, and its cost beside a swarm without.

    .venv/bin/python -P -m bench.beliefs_swarm --nights 4 --only usual

A night is 1,000 runs of 60 simulated workers that ask as they finish. One of eight dimensions changes nothing. Five
ranges and two categoricals matter, and two of the ranges have an interaction. The best values are drawn for each
night. A worker's baseline is the mean of three runs, with their luck. The rules of the server decide everything, in
memory (`bench/_swarm_night.py`): configs, evidence, tests, frozen dimensions and the best config. In the middle of a
night a test of the interaction begins, with cells among the 1,000 runs. The swarm without beliefs has the same truth
and workers, and runs the same number.

The nights are lived under each of the CONDITIONS. In the first, nothing goes wrong. In the others 30 % of the runs
never send a result, and each worker's baseline has a normal error. A further dimension has a weak effect there: its
best and its worst value differ by 2 standard deviations of a run. Only results count towards the 1,000.

A regret is how much worse the tag's best is than the best config that there is, in standard deviations of a run.
Brackets hold 95 % bootstrap intervals over nights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median

import click
import numpy as np
from rich.table import Table

from bench._planted import APART, DIMENSIONS, IRRELEVANT, SIGMA, TOGETHER, WEAK, value_at
from bench._report import Bench, Interval, mean_of
from bench._swarm_night import Conditions, Night
from functions.beliefs.rules.protocols import CellRun, ProtocolResult, RunningTest, missing_cells, verdict
from functions.beliefs.rules.specs import check_spec
from state.records import Value

RESULTS = 1000
SEEDS = 20
FEW = 3
"""Dimensions that most configs vary at most."""
LATE = 200
"""Last runs of a night."""
PLACES = (0.1, 0.5, 0.9)
"""Places of a range that a grid has."""
CELL_RUNS = 4
LEAST_STRENGTH = SIGMA / 2
"""Of an interaction that is one."""
RESAMPLES = 10_000
TRUE = [d.name for d in DIMENSIONS if d.name != IRRELEVANT]
USUAL = "usual"
LOST = 0.3
WORST_RATIO = 1.15
"""Most that the regret may be of that without beliefs; the interval's upper end."""
CONDITIONS = {USUAL: Conditions()} | {
    f"off-by-{error}": Conditions(error, LOST, (*DIMENSIONS, WEAK)) for error in (0, 1, 3)
}
"""By name; a baseline is off by so many standard deviations of a run."""


@dataclass(frozen=True)
class Found:
    """What became of one seed's two swarms."""

    verdicts: Mapping[str, str]
    """By dimension: its verdict, else its status."""
    first: dict[str, int]
    """Results after which a dimension's claim was first said to be what it is in the end."""
    frozen: tuple[str, ...]
    few: float
    """Share of the last configs that vary at most FEW dimensions, without those that another worker had lost."""
    references: float
    """Share of the runs."""
    off_after_a_round: list[int]
    off_when_overtaken: list[int]
    interaction: ProtocolResult
    additive: ProtocolResult
    """The same test of two dimensions without an interaction, made after the night."""
    regret: float
    regret_without: float
    """Of the swarm without beliefs."""
    by_model: float
    """Regret of the config that the search is around in the end, instead of the tag's best."""
    by_model_without: float


def lived(seed: int, results: int, conditions: Conditions = CONDITIONS[USUAL]) -> Found:
    """One night with beliefs, and one without."""
    night, without = (Night(seed, believes=each, conditions=conditions) for each in (True, False))
    night.go_on(results // 2)
    night.test = grid(night, TOGETHER)
    night.go_on(results)
    without.go_on(results)
    claims = {h.dimensions[0]: h for h in night.beliefs.all}
    verdicts = {name: h.settled or h.status for name, h in claims.items()}
    late = [run for run in night.ran[-LATE:] if not run.is_again]
    return Found(
        verdicts=verdicts,
        first={
            name: next(s.results for s in night.said if s.hypothesis_id == h.hypothesis_id and said in s.what)
            for name, h in claims.items()
            if (said := verdicts[name]) != "active"
        },
        frozen=tuple(d.name for d in night.beliefs.dimensions if d.frozen),
        few=fmean(run.varied <= FEW for run in late),
        references=fmean(run.is_reference for run in night.ran),
        off_after_a_round=night.off_after_a_round,
        off_when_overtaken=night.off_when_overtaken,
        interaction=verdict(night.test, [*night.cells.values()]),
        additive=tested_apart(night),
        regret=night.regret(night.best_config),
        regret_without=without.regret(without.best_config),
        by_model=night.regret(night.taken_for_best),
        by_model_without=without.regret(without.taken_for_best),
    )


def grid(night: Night, names: tuple[str, str]) -> RunningTest:
    """A test of whether two ranges have an interaction, around the best config so far."""
    values: dict[str, list[Value]] = {
        d.name: [value_at(d, place) for place in PLACES] for d in DIMENSIONS if d.name in names
    }
    described = {
        "type": "interaction_grid",
        "variables": [*values],
        "grid": values,
        "min_runs_per_cell": CELL_RUNS,
        "decision_rule": {"threshold": LEAST_STRENGTH, "decision": "significant"},
    }
    spec = check_spec(described, night.beliefs.dimensions)
    return RunningTest(spec, night.beliefs.dimensions, night.best_config, {})


def tested_apart(night: Night) -> ProtocolResult:
    """Verdict of the test on two dimensions with additive effects. Its runs are not among the night's."""
    test, runs = grid(night, APART), list[CellRun]()
    for cell in missing_cells(test, runs):
        runs.append(CellRun(cell.config, night.measured(cell.config)))
    return verdict(test, runs)


# -- the report


def show(name: str, found: Sequence[Found], bench: Bench) -> None:
    columns = (
        *("seed", "supported", "undecided or else", "irrelevant", "frozen"),
        *("interaction", "regret", "without"),
    )
    nights = Table(*columns, title=name)
    for seed, one in enumerate(found, 1):
        nights.add_row(
            str(seed),
            " ".join(f"{n} {one.first[n]}" for n in TRUE if one.verdicts[n] == "supported"),
            " ".join(f"{n} {one.verdicts[n]}" for n in TRUE if one.verdicts[n] != "supported"),
            f"{one.verdicts[IRRELEVANT]} {one.first.get(IRRELEVANT, '')}",
            " ".join(one.frozen),
            one.interaction.outcome or "open",
            f"{one.regret:.2f}",
            f"{one.regret_without:.2f}",
        )
    bench.console.print(nights)
    total = Table("what", "found", "asked", title=name)
    row, before = partial(bench.row, total), len(bench.missed)
    wrong = fmean(not {*one.frozen} <= {IRRELEVANT} for one in found)
    row("a dimension that matters is frozen", f"{100 * wrong:.0f} % of nights", "0 %", is_hit=wrong == 0)
    frozen = fmean(IRRELEVANT in one.frozen for one in found)
    told, asked = f"{100 * frozen:.0f} % of nights", "100 %" if name == USUAL else ""
    row("the irrelevant dimension is frozen", told, asked, is_hit=frozen == 1 or name != USUAL)
    at = [one.first[IRRELEVANT] for one in found if one.verdicts[IRRELEVANT] == "irrelevant"]
    row("after results, median of these", f"{median(at):.0f}" if at else "never")
    ends = Counter(one.verdicts[name] for one in found for name in TRUE)
    share = ends["supported"] / ends.total()
    row("true claims that end as supported", f"{100 * share:.1f} %", "100 %", is_hit=share == 1)
    others = ", ".join(
        f"{name} {100 * n / ends.total():.0f} %" for name, n in ends.items() if name != "supported"
    )
    row("the others", others)
    few = min(one.few for one in found)
    row(
        f"the last {LATE} configs vary {FEW} dimensions or fewer, worst night",
        f"{100 * few:.0f} %",
        ">= 80 %",
        is_hit=few >= 0.8,
    )
    rounds = [off for one in found for off in one.off_after_a_round]
    agreed = fmean([off == 0 for off in rounds] or [False])
    row(
        "targets that membership agrees with after a round",
        f"{100 * agreed:.1f} % of {len(rounds)}",
        "100 %",
        is_hit=agreed == 1,
    )
    overtaken = [off for one in found for off in one.off_when_overtaken]
    row(
        "changes before a round was over, workers elsewhere then",
        f"{len(overtaken)}, {fmean(overtaken or [0]):.2f}",
    )
    row("runs of the reference config", f"{100 * fmean(one.references for one in found):.1f} %")
    hit = fmean(one.interaction.outcome == "win" for one in found)
    row("interaction found by its grid", f"{100 * hit:.0f} % of nights", "100 %", is_hit=hit == 1)
    false = fmean(one.additive.outcome == "win" for one in found)
    row("interaction found where there is none", f"{100 * false:.0f} % of nights")
    regrets = [(one.regret, one.regret_without) for one in found]
    ratio, asked = ratio_of(regrets), f"upper bound <= {WORST_RATIO}"
    row("regret, of that without beliefs", f"{ratio:.2f}", asked, is_hit=ratio.high <= WORST_RATIO)
    beyond = mean_of([own - others for own, others in regrets])
    row("regret beyond that without beliefs, in sigmas", f"{beyond:.2f}")
    row("mean regrets in sigmas, with and without", means(regrets))
    of_model = [(one.by_model, one.by_model_without) for one in found]
    row("the same of the config that the search is around", f"{ratio_of(of_model):.2f}")
    row("its mean regrets in sigmas, with and without", means(of_model))
    bench.console.print(total)
    bench.missed[before:] = [f"{name}: {each}" for each in bench.missed[before:]]


def ratio_of(regrets: Sequence[tuple[float, float]]) -> Interval:
    """The mean regret over that of the other swarms, with its interval."""
    pairs, chance = np.array(regrets), np.random.default_rng(0)
    drawn = pairs[chance.integers(0, len(pairs), (RESAMPLES, len(pairs)))].mean(axis=1)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], (0.025, 0.975))
    means = pairs.mean(axis=0)
    return Interval(float(means[0] / means[1]), float(low), float(high))


def means(regrets: Sequence[tuple[float, float]]) -> str:
    """The mean regrets of both swarms."""
    return ", ".join(f"{fmean(each):.2f}" for each in zip(*regrets, strict=True))


@click.command(help=__doc__)
@click.option("--nights", default=SEEDS, show_default=True, type=click.IntRange(1))
@click.option("--results", default=RESULTS, show_default=True, type=click.IntRange(2 * LATE))
@click.option("--only", type=click.Choice([*CONDITIONS]), multiple=True, help="Leave the others out.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(1), help="Nights at once.")
def main(nights: int, results: int, only: Sequence[str], jobs: int) -> None:
    """Live the nights; exits with 1 if a target is missed."""
    bench = Bench(width=150)
    with ProcessPoolExecutor(jobs) as pool:
        for name in only or CONDITIONS:
            live = partial(lived, results=results, conditions=CONDITIONS[name])
            found = list(pool.map(live, range(1, nights + 1)))
            show(name, found, bench)
    bench.end(f"{nights} nights")


if __name__ == "__main__":
    main()
