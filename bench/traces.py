"""Measures the fairness of the trace schedulers, the spread of simultaneous selections, and the cost of a selection.

    .venv/bin/python -P -m bench.traces

The first two tables use simulated traces in memory. Some traces find better values than others. The schedulers
(`functions/branches/rules/schedulers.py`) rank them, and selections are opened and committed as in a lab. Spread: the
largest difference between the selections of two traces at any time, if no trace is ever busy. Passed over: most
selections in a row that went to other traces while a trace was free. There each trace has at most one open selection,
and a random number of agents works. Only round_robin has bounds for both. In the second table eight agents select at
once, with and without counting open selections.

The third table is measured on a private Redis (append-only file, as `up` starts it). Agents of one process select,
register and complete as fast as they can, without HTTP. Agents without traces are shown for comparison.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from statistics import fmean, median
from typing import Any

import click
from rich.table import Table

from bench._report import Bench, call, idea, private_redis
from functions.branches.rules.schedulers import (
    SCHEDULERS,
    ForestView,
    TraceView,
    checked_params,
    ranking,
    turn_taken,
)
from functions.kernel.process.lifecycle import Process, opened

MEAN, AMONG, WITHIN = 0.97, 0.002, 0.0006
"""Bits per byte: mean value of traces, standard deviation among traces, and within one trace."""
CRASHES = 0.1
TRACES = (2, 3, 5, 8)
AGENTS = 8
REMEMBERED = 30
"""Number of newest scores that a scheduler sees."""


class Simulated:
    """A simulated tag in multi mode: its traces, and their selections and commits."""

    def __init__(
        self, scheduler: str, traces: int, chance: Random, *, most_in_flight: float = math.inf
    ) -> None:
        self.scheduler = scheduler
        self.chance = chance
        self.most_in_flight = most_in_flight
        params = checked_params(scheduler, SCHEDULERS[scheduler], {})
        views = [TraceView(f"t{n}", n) for n in range(traces)]
        self.forest = ForestView("bench", 1, views, params=params)
        self.found = {t.trace_id: chance.gauss(MEAN, AMONG) for t in views}

    @property
    def free(self) -> set[str]:
        return {t.trace_id for t in self.forest.traces if t.in_flight < self.most_in_flight}

    @property
    def open(self) -> list[str]:
        return [t.trace_id for t in self.forest.traces for _ in range(t.in_flight)]

    def choice(self, *, counted: bool = True) -> str:
        """The trace that is selected next, with or without counting open selections."""
        seen = self.forest
        if not counted:
            seen = replace(seen, traces=[replace(t, in_flight=0) for t in seen.traces])
        ranked = ranking(self.scheduler, SCHEDULERS[self.scheduler], seen)
        return next(r.trace_id for r in ranked if r.trace_id in self.free)

    def select(self, trace_id: str) -> None:
        def selected(t: TraceView) -> TraceView:
            own, _ = turn_taken(t, self.forest)
            seq = self.forest.select_seq
            return replace(t, virtual_time=own, last_selected=seq, in_flight=t.in_flight + 1)

        _, whole = turn_taken(self._view(trace_id), self.forest)
        self._change(trace_id, selected)
        self.forest = replace(self.forest, select_seq=self.forest.select_seq + 1, virtual_time=whole)

    def commit(self, trace_id: str) -> None:
        crashed = self.chance.random() < CRASHES
        score = None if crashed else self.chance.gauss(self.found[trace_id], WITHIN)

        def committed(t: TraceView) -> TraceView:
            better = score is not None and (t.best_score is None or score < t.best_score)
            return replace(
                t,
                length=t.length + 1,
                children=t.children + 1,
                in_flight=t.in_flight - 1,
                kept=t.kept + better,
                scores=(*t.scores[-REMEMBERED + 1 :], score),
                best_score=score if better else t.best_score,
            )

        self._change(trace_id, committed)

    def _view(self, trace_id: str) -> TraceView:
        return next(t for t in self.forest.traces if t.trace_id == trace_id)

    def _change(self, trace_id: str, change: Callable[[TraceView], TraceView]) -> None:
        traces = [change(t) if t.trace_id == trace_id else t for t in self.forest.traces]
        self.forest = replace(self.forest, traces=traces)


def spread(scheduler: str, traces: int, selections: int) -> int:
    """The largest difference between the selections of two traces at any time."""
    tag = Simulated(scheduler, traces, Random(traces))
    picks = Counter({t.trace_id: 0 for t in tag.forest.traces})
    most = 0
    for _ in range(selections):
        chosen = tag.choice()
        tag.select(chosen)
        tag.commit(chosen)
        picks[chosen] += 1
        most = max(most, max(picks.values()) - min(picks.values()))
    return most


def passed_over(scheduler: str, traces: int, selections: int) -> int:
    """The largest number of selections in a row that other traces got while a trace was free."""
    tag = Simulated(scheduler, traces, Random(traces), most_in_flight=1)
    waited = Counter[str]()
    most = 0
    for _ in range(selections):
        still_open = tag.chance.randrange(traces)
        for done in tag.chance.sample(tag.open, max(0, len(tag.open) - still_open)):
            tag.commit(done)
        chosen = tag.choice()
        free = tag.free - {chosen}
        tag.select(chosen)
        waited = Counter({name: waited[name] + 1 for name in free})
        most = max(most, *waited.values(), 0)
    return most


def together(scheduler: str, traces: int, seed: int, *, counted: bool) -> Counter[str]:
    """The selections of eight agents at once, of traces with some history."""
    tag = Simulated(scheduler, traces, Random(seed))
    for _ in range(4 * traces):
        chosen = tag.choice()
        tag.select(chosen)
        tag.commit(chosen)
    picks = Counter[str]()
    for _ in range(AGENTS):
        chosen = tag.choice(counted=counted)
        tag.select(chosen)
        picks[chosen] += 1
    return picks


def rank_us(scheduler: str, traces: int) -> float:
    """Median microseconds of one ranking of traces with full histories."""
    tag = Simulated(scheduler, traces, Random(0))
    for name in [t.trace_id for t in tag.forest.traces] * REMEMBERED:
        tag.select(name)
        tag.commit(name)
    times = []
    for _ in range(200):
        begun = time.perf_counter()
        tag.choice()
        times.append((time.perf_counter() - begun) * 1e6)
    return median(times)


def shown(bench: Bench, what: str, figure: float, most: float | None) -> str:
    """A figure beside its bound. It is marked and collected if it misses the bound."""
    if most is None:
        return f"{figure:g}"
    if figure <= most:
        return f"{figure:g} (<= {most:g})"
    return bench.marked(f"{figure:g}", False, f"{what}: {figure:g}, at most {most:g}")


def turns_table(bench: Bench, selections: int) -> Table:
    table = Table("scheduler", title=f"{selections} selections")
    for traces in TRACES:
        table.add_column(f"{traces} traces: spread", justify="right")
        table.add_column("passed over", justify="right")
    table.add_column(f"rank of {TRACES[-1]}, us", justify="right")
    for name in SCHEDULERS:
        cells = []
        for traces in TRACES:
            fair = name == "round_robin"
            where = f"{name}, {traces} traces"
            cells += [
                shown(bench, f"spread, {where}", spread(name, traces, selections), 1 if fair else None),
                shown(
                    bench,
                    f"passed over, {where}",
                    passed_over(name, traces, selections),
                    traces - 1 if fair else None,
                ),
            ]
        table.add_row(name, *cells, f"{rank_us(name, TRACES[-1]):.0f}")
    return table


def together_table(bench: Bench, nights: int) -> Table:
    table = Table(
        *("traces", "open selections", "different traces selected", "most on one trace"),
        title=f"uct, {AGENTS} selections at once, mean of {nights}",
    )
    for traces in (4, 8, 16):
        spreads = {}
        for counted in (True, False):
            picks = [together("uct", traces, seed, counted=counted) for seed in range(nights)]
            spreads[counted] = fmean(len(each) for each in picks)
            most = fmean(max(each.values()) for each in picks)
            table.add_row(
                str(traces), "counted" if counted else "not", f"{spreads[counted]:.2f}", f"{most:.2f}"
            )
        if spreads[True] <= spreads[False]:
            bench.missed.append(f"counting open selections does not spread them over {traces} traces")
    return table


async def committed(
    process: Process, tag: str, scheduler: str | None, agents: int, seconds: float
) -> list[float]:
    """Milliseconds of each experiment that these agents select, register and complete."""
    policy: dict[str, Any] = {}
    if scheduler is not None:
        shape = {"target_traces": agents, "max_parallel": agents, "stale_after": 10**6}
        policy = {"traces": {"mode": "multi", "scheduler": scheduler, **shape}}
    await call(process, "experiment::setup", tag=tag, policy=policy)
    commits, chance, times = itertools.count(0x1000000), Random(0), list[float]()
    end = time.perf_counter() + seconds

    async def agent() -> None:
        while time.perf_counter() < end:
            begun = time.perf_counter()
            made_from = {}
            if scheduler is not None:
                selected = await call(process, "trace::select", tag=tag, wait=50)
                made_from = {"selection_id": selected["selection_id"]}
            new = await call(process, "experiment::register", **idea(tag, next(commits), **made_from))
            value = chance.gauss(MEAN, AMONG)
            await call(process, "experiment::complete", experiment_id=new["experiment_id"], val_bpb=value)
            times.append((time.perf_counter() - begun) * 1e3)

    await asyncio.gather(*(agent() for _ in range(agents)))
    return times


async def costs_table(seconds: float) -> Table:
    table = Table(
        *("agents", "scheduler", "experiments/s", "ms each", "ms each, last quarter"),
        title=f"select + register + complete on Redis, {seconds:g} s each",
    )
    with private_redis() as settings:
        async with opened("web", settings) as process:
            for agents, scheduler in itertools.product((1, AGENTS), (None, "round_robin", "uct")):
                times = await committed(process, f"a{agents}-{scheduler}", scheduler, agents, seconds)
                table.add_row(
                    *(str(agents), scheduler or "none: no traces", f"{len(times) / seconds:.0f}"),
                    *(f"{median(times):.1f}", f"{median(times[-len(times) // 4 :]):.1f}"),
                )
    return table


@click.command()
@click.option("--selections", default=2000, show_default=True, type=click.IntRange(10))
@click.option(
    "--nights", default=200, show_default=True, type=click.IntRange(1), help="forests of eight agents"
)
@click.option(
    "--seconds", default=10.0, show_default=True, type=click.FloatRange(1), help="seconds per row on Redis"
)
def main(selections: int, nights: int, seconds: float) -> None:
    """Compare the schedulers; exits with 1 if round_robin is not fair, or counting does not spread selections."""
    bench = Bench(width=180)
    bench.console.print(turns_table(bench, selections))
    bench.console.print(together_table(bench, nights))
    bench.console.print(asyncio.run(costs_table(seconds)))
    bench.end()


if __name__ == "__main__":
    main()
