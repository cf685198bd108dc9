"""Measures when and how often a swarm tries proposed dimensions, and which of them it keeps.

    .venv/bin/python -P -m bench.canaries

A night is a swarm of 8 simulated workers on its own Redis, through the functions of the server. Workers ask for
configs and send results, and functions that follow from events are called as by the events process. Runs have the
metric and noise of `./nightjar simulate` with its mnist profile. A scripted author proposes four further dimensions
whenever the lab wants some, and again 20 results later, when many searches do not stall. One of the four helps, one
helps a little, one has no effect, and one always hurts.

Brackets hold 95 % intervals: exact binomial ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from random import Random
from statistics import fmean, median
from typing import Any, Final

import click
from rich.table import Table

from bench._report import Bench, Interval, call, private_redis, share
from functions.kernel.process.lifecycle import Process, opened
from functions.kernel.table import table
from functions.swarm.rules.sampling import SAMPLERS
from functions.swarm.rules.shapes import CANARY_SHARE
from functions.swarm.rules.simulating import DOES_NOTHING, HELPS, Hidden, metric_with
from functions.swarm.rules.trial_proposals import LEAST_GAIN, LEAST_RESULTS, WINDOW
from functions.swarm.rules.trial_verdicts import JUDGED_AFTER, JUDGED_BY, LEAST_VARIED
from state.events import Event
from state.experiments import Experiments
from triggers.events import bindings

TAG: Final = "night"
SEEDS, RESULTS, WORKERS = 20, 900, 8
BASELINES = 3
"""Runs of the unchanged train.py; the baseline is their mean."""
AGAIN_AFTER = 20
"""Results after which the author proposes again, unasked."""
SERVED = (
    "experiment::judge_retests",
    "hypothesis::bootstrap",
    "hypothesis::learn",
    "dimension::freeze_irrelevant",
    "dimension::follow_trials",
    "swarm::refill",
)
"""Functions that follow from events."""


HELPS_LITTLE = Hidden(
    "TOTAL_BATCH_SIZE", "helps, by 0.003", {"dtype": "float_log", "min": 1e4, "max": 1e6}, 2.62e5
)
HURTS = Hidden("DEPTH", "hurts", {"dtype": "int", "min": 4, "max": 32}, 12)
PROPOSED: Final = (HELPS, HELPS_LITTLE, DOES_NOTHING, HURTS)
BOUNDS: Final[Mapping[str, tuple[float, float]]] = {
    HELPS.name: (0.95, 1),
    HELPS_LITTLE.name: (0, 1),
    DOES_NOTHING.name: (0, 0.05),
    HURTS.name: (0, 0),
}
"""Bounds of the share of trials that promote it. The share's interval must overlap them."""


@dataclass
class ProposalCounts:
    """Counts of a night's proposals."""

    proposals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By name, as `GET /dimension_proposals` shows them."""
    runs: int = 0
    """Runs without retests, counted once for each dimension on trial at the time."""
    tried: int = 0
    """Of these, the runs that varied the dimension."""
    counted: int = 0
    """Proposals that counted. `counted_wrongly`: those that came while the best was improving."""
    counted_wrongly: int = 0
    rejected: int = 0
    """Proposals that did not count."""
    wanted: int = 0


class ProposalNight:
    """One swarm, on a lab of its own."""

    def __init__(self, process: Process, seed: int, sampler: str) -> None:
        self.process = process
        self.found = ProposalCounts()
        self._sampler = sampler
        self._chance = Random(f"night {seed}")
        self._seen = "0-0"
        self._results = 0
        self._ended: list[str] = []
        """The best run after each result, retests aside."""
        self._bindings = {b.name: b for b in bindings(table(), process) if b.name in SERVED}
        self._unasked_at: int | None = None
        self._on_trial: set[str] = set()

    async def live(self, results: int) -> ProposalCounts:
        """Open the swarm, and run until so many results are in."""
        await self._call("dimension::define", tag=TAG, profile="mnist")
        policy = {"sampler": self._sampler, "stopping.rule": "none"}
        await self._call("search::set_policy", tag=TAG, policy=policy)
        names = [f"w{n}" for n in range(1, WORKERS + 1)]
        for name in names:
            baseline = fmean(self._measured({}) for _ in range(BASELINES))
            joins = {"worker_id": name, "gpu_type": "Simulated", "baseline_bpb": baseline}
            await self._call("swarm::register", **joins, tag=TAG)
        await self._follow()
        going = [(name, await self._ask(name)) for name in names]
        while self._results < results:
            name, given = going.pop(0)
            ran = {"worker_id": name, "exp_id": given["run_id"], "duration_seconds": 300.0}
            value = self._measured(given["config_delta"])
            taken = await self._call("swarm::result", **ran, val_bpb=value)
            self._results = taken["total_experiments"]
            if "." not in given["run_id"]:  # no retest
                self._ended.append(given["run_id"])
            await self._follow()
            if self._results == self._unasked_at:
                await self._propose()
            going.append((name, await self._ask(name)))
        listed = (await self._call("dimension::proposals", tag=TAG))["proposals"]
        self.found.proposals = {each["name"]: each for each in listed}
        return self.found

    def _measured(self, config: Mapping[str, Any]) -> float:
        """The metric of a run. Constants that its config omits have their defaults."""
        return metric_with(PROPOSED, config, 1.0, self._chance)

    async def _ask(self, name: str) -> dict[str, Any]:
        given = await self._call("swarm::next_config", worker_id=name)
        if "." not in given["run_id"]:
            self.found.runs += len(self._on_trial)
            self.found.tried += len(self._on_trial & given["config_delta"].keys())
        return given

    async def _propose(self) -> None:
        """The author's four proposals."""
        for each in self._chance.sample(PROPOSED, len(PROPOSED)):
            answer = await self._call("dimension::propose", tag=TAG, **each.proposal)
            if answer["proposal"]["state"] != "listed":
                continue
            self.found.counted += answer["counted"]
            self.found.rejected += not answer["counted"]
            self.found.counted_wrongly += answer["counted"] and await self._is_improving()
        await self._follow()

    async def _is_improving(self) -> bool:
        """Whether a keep of the newest runs beats all before; an older best by retests does not count."""
        if len(self._ended) < LEAST_RESULTS:
            return True
        return await self._lowest(self._ended[:-WINDOW]) - await self._lowest(self._ended) >= LEAST_GAIN

    async def _lowest(self, names: Sequence[str]) -> float:
        """Lowest value of the keeps among these runs, or of the unchanged train.py."""
        runs = [await Experiments(self.process.lab).get(name) for name in names]
        return min([0.0, *(e.judged for e in runs if e.status == "keep" and e.judged is not None)])

    async def _follow(self) -> None:
        """Call the functions that follow from new events, as the events process does."""
        key = self.process.lab.keys("events")
        while rows := await self.process.lab.command("XRANGE", key, f"({self._seen}", "+"):
            events = [Event.parse(self.process.lab.name, *row) for row in rows]
            self._seen = events[-1].id
            for event in events:
                self._hear(event)
            for binding in self._bindings.values():
                for bundle in binding.bundles(filter(binding.concerns, events)):
                    await binding.fire(bundle)
            if any(event.type == "dimension.wanted" for event in events):
                self.found.wanted += 1
                self._unasked_at = self._results + AGAIN_AFTER
                await self._propose()

    def _hear(self, event: Event) -> None:
        if event.type == "dimension.adopted":
            self._on_trial.add(event.subject)
        if event.type in ("dimension.promoted", "dimension.reverted"):
            self._on_trial.discard(event.subject)

    async def _call(self, name: str, /, **body: Any) -> dict[str, Any]:
        return await call(self.process, name, **body)


def lived(seed: int, results: int, sampler: str) -> ProposalCounts:
    async def live() -> ProposalCounts:
        with private_redis() as settings:
            async with opened("web", settings) as process:
                return await ProposalNight(process, seed, sampler).live(results)

    return asyncio.run(live())


# -- the report


def told(hits: int, of: int) -> str:
    """A share with its interval, in percent."""
    if not of:
        return "none"
    found = share(hits, of)
    return f"{hits} of {of}: {found.found:.1f} % [{found.low:.1f}, {found.high:.1f}]"


def show(found: Sequence[ProposalCounts], bench: Bench) -> None:
    console = bench.console
    each = Table("proposed, truth", "on trial at", "judged after", "varied", "promoted", "reverted", "asked")
    for proposed in PROPOSED:
        least, most = BOUNDS[proposed.name]
        rows = [one.proposals[proposed.name] for one in found if proposed.name in one.proposals]
        judged = [row for row in rows if row["state"] in ("promoted", "reverted")]
        promoted = sum(row["state"] == "promoted" for row in judged)
        found_share = share(promoted, len(judged)) if judged else None
        is_hit = found_share is not None and found_share.low <= 100 * most and 100 * least <= found_share.high
        each.add_row(
            f"{proposed.name} {proposed.does}",
            _middle([row["adopted_results"] for row in rows if row["adopted_results"] is not None]),
            _middle([row["judged_results"] - row["adopted_results"] for row in judged]),
            _middle([row["varied"] for row in judged]),
            bench.marked(told(promoted, len(judged)), is_hit, proposed.name),
            str(len(judged) - promoted),
            f"{100 * least:.0f} to {100 * most:.0f} % promoted",
        )
    console.print(each)
    total = Table("what", "found", "asked")
    tried, runs = sum(one.tried for one in found), sum(one.runs for one in found)
    varied = share(tried, runs, 0.999) if runs else Interval(0.0, 0.0, 0.0)
    bench.row(
        total,
        "configs that vary a dimension on trial",
        told(tried, runs),
        f"{100 * CANARY_SHARE:.0f} % in that of 99.9 %",
        is_hit=varied.low <= 100 * CANARY_SHARE <= varied.high,
    )
    early = [
        row
        for one in found
        for row in one.proposals.values()
        if row["judged_results"] is not None
        and (
            row["judged_results"] - row["adopted_results"] < JUDGED_AFTER
            or (row["varied"] < LEAST_VARIED and row["judged_results"] - row["adopted_results"] < JUDGED_BY)
        )
    ]
    bench.row(total, "trials that were judged too early", str(len(early)), "0", is_hit=not early)
    wrongly, counted = sum(one.counted_wrongly for one in found), sum(one.counted for one in found)
    bench.row(
        total,
        "proposals that counted, of these while the best improved",
        f"{counted}, {wrongly}",
        "0",
        is_hit=not wrongly,
    )
    rejected = sum(one.rejected for one in found)
    bench.row(total, "proposals that did not count", str(rejected), "> 0", is_hit=rejected > 0)
    console.print(total)


def _middle(values: Sequence[float]) -> str:
    return f"{median(values):.0f} ({min(values):.0f} to {max(values):.0f})" if values else "none"


@click.command(help=__doc__)
@click.option("--nights", default=SEEDS, show_default=True, type=click.IntRange(1))
@click.option(
    "--first", default=1, show_default=True, type=click.IntRange(1), help="Seed of the first night."
)
@click.option("--results", default=RESULTS, show_default=True, type=click.IntRange(100))
@click.option("--sampler", default="thompson", show_default=True, type=click.Choice([*SAMPLERS]))
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(1), help="Nights at once.")
def main(nights: int, first: int, results: int, sampler: str, jobs: int) -> None:
    """Live the nights; exits with 1 if a target is missed."""
    bench = Bench(width=160)
    with ProcessPoolExecutor(jobs) as pool:
        found = list(pool.map(partial(lived, results=results, sampler=sampler), range(first, first + nights)))
    show(found, bench)
    bench.end(f"{nights} nights")


if __name__ == "__main__":
    main()
