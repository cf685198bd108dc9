"""Which configs wait for the workers of a swarm: those that no longer fit leave, and the sampler fills the places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from functions.rules.beliefs.protocols import CellRun, missing_cells
from functions.rules.beliefs.testing import running_test
from functions.rules.keeps.verdict import score
from functions.rules.swarm.duplicates import Tried
from functions.rules.swarm.fingerprints import fingerprint
from functions.rules.swarm.handing_out import Waiting, fits
from functions.rules.swarm.observations import Observation
from functions.rules.swarm.populations import Population
from functions.rules.swarm.refilling import LEAST_TARGET, refilled, wanted
from functions.rules.swarm.sampling import sampler_of
from functions.rules.swarm.shapes import NEAR, Shape, near_by
from state.records import OPEN, Dimension, Direction, Value
from state.swarm_facts import Observed, RefillFacts, Replenishing

if TYPE_CHECKING:
    from random import Random

AT_ONCE = 100
"""Configs that are proposed in one go."""


def replenished(facts: RefillFacts, population: Population, rng: Random) -> Replenishing:
    """What leaves and joins the configs that wait.

    A config is stale once so many results came in after it was proposed as workers are active: it was made by a model
    that knew none of them. So is one near a config that is no longer taken for the best, unless that one has moved
    so little that the strategy's configs include it. One that a worker has lost is never stale: it was to be run
    already.
    """
    results, observed = facts.tag.results, observations_of(facts)[::-1]
    around = taken_for_best(facts, observed) if population.queued.strategy in NEAR else None
    waiting = {text: Waiting.read(text) for text in facts.waiting[population.population_id]}
    workers = population.target or facts.active_workers
    lasts = max(LEAST_TARGET, facts.active_workers)
    dropped = [
        text
        for text, one in waiting.items()
        if not fits(one.config, facts.dimensions)
        or (one.results is not None and results - one.results > lasts)
        or (one.around is not None and not is_beside(one.around, around, facts.dimensions, population))
    ]
    stay = [one for text, one in waiting.items() if text not in set(dropped)]
    count = min(wanted(facts.policy, workers, len(stay)), AT_ONCE)
    if not count or not facts.dimensions:
        return Replenishing(dropped, [])
    if population.test_spec is not None:
        return Replenishing(dropped, _cells(facts, population, stay, rng)[:AT_ONCE])
    proposals = refilled(
        facts.dimensions,
        [*observed, *(_waiting(one) for one in stay)],
        population.shape_around(around or facts.best_config),
        partial(sampler_of, facts.policy.sampler),
        _tried(facts, stay),
        count,
        rng,
        facts.policy.duplicates,
        ended=results,
    )
    added = [
        Waiting(p.config, p.priority, p.why, results, around).text(rng.getrandbits(48)) for p in proposals
    ]
    return Replenishing(dropped, [(text, p.priority) for text, p in zip(added, proposals, strict=True)])


def taken_for_best(facts: RefillFacts, observed: Sequence[Observation]) -> Mapping[str, Value] | None:
    """The config that a search near the best is around; None: none is known.

    Rather the one that all runs together speak for than the tag's best, which is the luckiest of many like it.
    """
    sampler = sampler_of(facts.policy.sampler, Shape("exploit"))
    return sampler.believed_best(facts.dimensions, observed) or facts.best_config or None


def is_beside(
    before: Mapping[str, Value],
    now: Mapping[str, Value] | None,
    dimensions: Sequence[Dimension],
    population: Population,
) -> bool:
    """Whether a search near one config goes as far as the other: what was to be run near that may still be run."""
    if now is None:
        return False
    strategy = population.queued.strategy
    return strategy in NEAR and all(
        near_by(d, before.get(d.name), now.get(d.name), strategy) for d in dimensions
    )


def _cells(
    facts: RefillFacts, population: Population, stay: list[Waiting], rng: Random
) -> list[tuple[str, float]]:
    """The runs that a population's test still needs; they wait as long as it goes on."""
    shape = population.shape
    test = running_test(
        population.test_spec, shape.center, population.constraint, facts.dimensions, facts.policy
    )
    if test is None:
        return []
    runs = [_cell_run(run) for run in facts.observed if run.population_id == population.population_id]
    waiting = [CellRun(one.config, None, pending=True) for one in stay]
    return [
        (Waiting(p.config, p.priority, p.why, results=None).text(rng.getrandbits(48)), p.priority)
        for p in missing_cells(test, [*runs, *waiting])
    ]


def _cell_run(run: Observed) -> CellRun:
    return CellRun(run.config_delta, run.delta_bpb, pending=run.status in OPEN)


def observations_of(facts: RefillFacts) -> list[Observation]:
    """The runs as the sampler sees them, with lower = better, without those that were stopped.

    A last report is of an earlier time than a result, and mostly worse than any: near the best config it would pass
    for one of the worst results.
    """
    return [observation_of(run, facts.tag.direction) for run in facts.observed if run.status != "stopped"]


def observation_of(run: Observed, direction: Direction) -> Observation:
    """A run that goes on, or has ended by itself."""
    if run.status in OPEN:
        return Observation(run.config_delta, None, pending=True)
    return Observation(run.config_delta, None if run.delta_bpb is None else score(run.delta_bpb, direction))


def _waiting(one: Waiting) -> Observation:
    """A config that waits, which is as good as out."""
    return Observation(one.config, None, pending=True)


def _tried(facts: RefillFacts, waiting: list[Waiting]) -> Mapping[str, Tried]:
    """How often each config was run lately; one that waits counts as in flight."""
    ended = Counter(run.fingerprint for run in facts.observed if run.fingerprint and run.status not in OPEN)
    out = Counter(run.fingerprint for run in facts.observed if run.fingerprint and run.status in OPEN)
    out.update(fingerprint(one.config, facts.dimensions) for one in waiting)
    return {name: Tried(ended[name], out[name]) for name in {*ended, *out}}
