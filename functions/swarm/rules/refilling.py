"""Refills the queue of a population: stale configs leave, and the sampler's proposals take their places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from functions.beliefs.rules.protocols import CellRun, missing_cells, running_test
from functions.swarm.rules.handing_out import QueuedConfig, fits
from functions.swarm.rules.populations import LEAST_QUEUED, Population, queue_target
from functions.swarm.rules.proposals import (
    ConfigProposal,
    ConfigSampler,
    Observation,
    RunCounts,
    desired_repeats,
    drawn_proposal,
    fingerprint,
    may_run,
    promoted,
)
from functions.swarm.rules.sampling import sampler_of
from functions.swarm.rules.shapes import NEAR, Shape, SwarmStrategy, near_by, standing_config
from state.policy import Duplicates
from state.records import OPEN, Dimension, Direction, Value, score
from state.swarm_facts import Observed, RefillFacts, Replenishing

if TYPE_CHECKING:
    from random import Random


MOONSHOT_SHARE = 0.05
MIXED: frozenset[SwarmStrategy] = frozenset({"investigate", "exploit"})
"""Strategies that also run neighbours of the best configs. `investigate` runs moonshots, too.

The other strategies test something or stay near the best: other configs would contradict their note. Shapes with
`free` dimensions test a claim and are not mixed, either."""
LEAPS: Mapping[SwarmStrategy, float] = {"exploit": 0.4, "converge": 0.05}
"""Share of configs in which the sampler chooses all dimensions anew, from their whole ranges.

Such leaps combine what was learned of single dimensions, and leave a local optimum, as small steps do not."""
PROMOTION_EVERY = 100
PROMOTION_LASTS = 40
"""Results after each hundred during which half of the configs are neighbours: 20, a fifth of 100 configs."""
PROMOTION_SHARE = 0.5
SamplerOf = Callable[[Shape], ConfigSampler]
USUAL = Duplicates()
WINNER = 0.75
"""Priority of the config that `converge` stays near. It runs 3 times, to average its luck."""
MISSES = 32
"""Draws in a row that may not run, after which a shape counts as used up."""


@dataclass(frozen=True)
class Refilling:
    """What proposals for one population's queue follow from."""

    dimensions: Sequence[Dimension]
    observations: Sequence[Observation]
    shape: Shape
    sampler_of: SamplerOf
    rng: Random
    tried: Mapping[str, RunCounts] = field(default_factory=dict)
    duplicates: Duplicates = USUAL
    ended: int | None = None
    """Ended runs of the tag, where the observations are fewer."""

    def refilled(self, count: int) -> list[ConfigProposal]:
        """Up to `count` proposals; at least one, unless `count` is 0.

        The sampler, the moonshots and the promotion propose first. Places of configs that may not run go to random
        draws within the shape, then to moonshots, then to repeats. If nothing is left, for example because every
        dimension is frozen, the least-run config runs once more beyond the limits.
        """
        batch = _Batch(self, count)
        batch.take(self._planned(count), self.shape.strategy)
        batch.take(self._draws(self.shape, "drawn at random"), self.shape.strategy)
        batch.take(self._draws(self._moonshot, "moonshot"), "moonshot")
        batch.repeat()
        return batch.proposals

    def _planned(self, count: int) -> list[ConfigProposal]:
        """One proposal for each place: leaps or moonshots, neighbours of the best, the rest from the sampler."""
        shape, rng, seen, found = self.shape, self.rng, self.observations, list[ConfigProposal]()
        is_mixed = shape.strategy in MIXED and shape.free is None
        if shape.strategy in NEAR:
            everything = replace(shape, strategy="investigate", at_most=None)
            leaps = _some(LEAPS[shape.strategy], count, rng)
            leapt = self.sampler_of(everything).propose(self.dimensions, seen, everything, leaps, rng)
            found += [replace(p, why=f"all dimensions anew, {p.why}") for p in leapt]
            seen = [*seen, *(Observation(p.config, None, pending=True) for p in leapt)]
            if shape.strategy == "converge" and shape.center and len(found) < count:
                best = standing_config(self.dimensions, shape)
                found.append(ConfigProposal(best, WINNER, "presumed best config"))
        elif is_mixed:
            shots = _some(MOONSHOT_SHARE, count, rng)
            found += islice(self._draws(self._moonshot, "moonshot"), shots)
        ended = sum(not one.pending for one in seen) if self.ended is None else self.ended
        if is_mixed and ended >= PROMOTION_EVERY and ended % PROMOTION_EVERY < PROMOTION_LASTS:
            near = _some(PROMOTION_SHARE, count - len(found), rng)
            found += promoted(seen, self.dimensions, rng, shape, near)
        return found + self.sampler_of(shape).propose(self.dimensions, seen, shape, count - len(found), rng)

    @property
    def _moonshot(self) -> Shape:
        return replace(self.shape, strategy="moonshot")

    def _draws(self, shape: Shape, why: str) -> Iterator[ConfigProposal]:
        while True:
            yield drawn_proposal(self.dimensions, shape, self.rng, why)


def _some(share: float, count: int, rng: Random) -> int:
    """How many of `count` places are drawn, each with the probability `share`."""
    return sum(rng.random() < share for _ in range(count))


@dataclass
class _Batch:
    """Proposals that fill the places. Each counts as a run in flight for the next ones."""

    search: Refilling
    count: int
    proposals: list[ConfigProposal] = field(default_factory=list)
    added: dict[str, int] = field(default_factory=dict)
    """Number of proposals in the batch, by fingerprint."""
    known: dict[str, tuple[ConfigProposal, SwarmStrategy]] = field(default_factory=dict)
    """Every proposed config, by fingerprint."""

    @property
    def missing(self) -> int:
        return self.count - len(self.proposals)

    def take(self, proposed: Iterable[ConfigProposal], strategy: SwarmStrategy) -> None:
        """Take what may run, each as often as its priority is worth, until the places or the configs are used up."""
        misses = 0
        for proposal in proposed if self.missing > 0 else ():
            key = fingerprint(proposal.config, self.search.dimensions)
            self.known.setdefault(key, (proposal, strategy))
            taken = self._add(key, proposal, proposal.priority, strategy)
            misses = 0 if taken else misses + 1
            if misses == MISSES or self.missing <= 0:
                return

    def repeat(self) -> None:
        """Fill up with repeats, the least-run configs first; if none may run, with one beyond the limits."""
        if self.missing <= 0:
            return
        least_first = sorted(self.known, key=lambda key: self._tried(key).all)
        for key in least_first:
            proposal, strategy = self.known[key]
            self._add(key, replace(proposal, why=f"{proposal.why}, again"), 1.0, strategy)
        if not self.proposals:
            proposal, _ = self.known[least_first[0]]
            self.proposals.append(replace(proposal, why="nothing else is left to run"))

    def _add(self, key: str, proposal: ConfigProposal, worth: float, strategy: SwarmStrategy) -> bool:
        """Add a proposal as often as a priority of `worth` deserves; False if not at all."""
        before, is_of_claim = len(self.proposals), self.search.shape.is_of_claim
        for _ in range(desired_repeats(worth)):
            tried, limits = self._tried(key), self.search.duplicates
            if self.missing <= 0 or not may_run(tried, worth, strategy, limits, is_of_claim=is_of_claim):
                break
            self.proposals.append(proposal)
            self.added[key] = self.added.get(key, 0) + 1
        return len(self.proposals) > before

    def _tried(self, key: str) -> RunCounts:
        known = self.search.tried.get(key, RunCounts())
        return replace(known, in_flight=known.in_flight + self.added.get(key, 0))


AT_ONCE = 100
"""Most configs that are proposed at once."""


def replenished(facts: RefillFacts, population: Population, rng: Random) -> Replenishing:
    """Changes of a population's queue.

    A config is stale once more results have come in since its proposal than workers are active: its model knew none
    of them. A config near a former best is stale, too, unless the best moved less than the strategy's step. The
    config of a lost run is never stale: its run was due before.
    """
    results, observed = facts.tag.results, observations_of(facts)[::-1]
    around = presumed_best(facts, observed) if population.queued.strategy in NEAR else None
    waiting = {text: QueuedConfig.read(text) for text in facts.waiting[population.population_id]}
    workers = population.target or facts.active_workers
    lasts = max(LEAST_QUEUED, facts.active_workers)
    dropped = [
        text
        for text, one in waiting.items()
        if not fits(one.config, facts.dimensions)
        or (one.results is not None and results - one.results > lasts)
        or (one.around is not None and not _is_close(one.around, around, facts.dimensions, population))
    ]
    stay = [one for text, one in waiting.items() if text not in set(dropped)]
    count = min(max(0, queue_target(facts.policy, workers) - len(stay)), AT_ONCE)
    if not count or not facts.dimensions:
        return Replenishing(dropped, [])
    if population.test_spec is not None:
        return Replenishing(dropped, _cells(facts, population, stay, rng)[:AT_ONCE])
    search = Refilling(
        facts.dimensions,
        [*observed, *(Observation(one.config, None, pending=True) for one in stay)],
        population.shape_around(around or facts.best_config),
        partial(sampler_of, facts.policy.sampler),
        rng,
        _tried(facts, stay),
        facts.policy.duplicates,
        ended=results,
    )
    proposals = search.refilled(count)
    added = [
        QueuedConfig(p.config, p.priority, p.why, results, around).text(rng.getrandbits(48))
        for p in proposals
    ]
    return Replenishing(dropped, [(text, p.priority) for text, p in zip(added, proposals, strict=True)])


def presumed_best(facts: RefillFacts, observed: Sequence[Observation]) -> Mapping[str, Value] | None:
    """The config near which `exploit` and `converge` search; None if none is known.

    It is the sampler's estimate from all runs, if there is one: the tag's best is the luckiest of many similar runs.
    """
    sampler = sampler_of(facts.policy.sampler, Shape("exploit"))
    return sampler.believed_best(facts.dimensions, observed) or facts.best_config or None


def _is_close(
    before: Mapping[str, Value],
    now: Mapping[str, Value] | None,
    dimensions: Sequence[Dimension],
    population: Population,
) -> bool:
    """Whether two presumed best configs are so close that a config proposed near one may run near the other."""
    if now is None:
        return False
    strategy = population.queued.strategy
    return strategy in NEAR and all(
        near_by(d, before.get(d.name), now.get(d.name), strategy) for d in dimensions
    )


def _cells(
    facts: RefillFacts, population: Population, stay: list[QueuedConfig], rng: Random
) -> list[tuple[str, float]]:
    """The runs that a population's test still needs; they never become stale."""
    shape = population.shape
    test = running_test(population.test_spec, shape.center, population.constraint, facts.dimensions)
    if test is None:
        return []
    runs = [
        CellRun(run.config_delta, run.delta_bpb, pending=run.status in OPEN)
        for run in facts.observed
        if run.population_id == population.population_id
    ]
    waiting = [CellRun(one.config, None, pending=True) for one in stay]
    return [
        (QueuedConfig(p.config, p.priority, p.why, results=None).text(rng.getrandbits(48)), p.priority)
        for p in missing_cells(test, [*runs, *waiting])
    ]


def observations_of(facts: RefillFacts) -> list[Observation]:
    """The runs for the sampler, lower = better, without stopped ones.

    The last report of a stopped run is earlier, and so worse, than a result: near the best config it would look like
    one of the worst results.
    """
    return [observation_of(run, facts.tag.direction) for run in facts.observed if run.status != "stopped"]


def observation_of(run: Observed, direction: Direction) -> Observation:
    """A run for the sampler; not a stopped one."""
    if run.status in OPEN:
        return Observation(run.config_delta, None, pending=True)
    return Observation(run.config_delta, None if run.delta_bpb is None else score(run.delta_bpb, direction))


def _tried(facts: RefillFacts, waiting: list[QueuedConfig]) -> Mapping[str, RunCounts]:
    """Number of recent runs of each config, by fingerprint; a queued one counts as in flight."""
    ended = Counter(run.fingerprint for run in facts.observed if run.fingerprint and run.status not in OPEN)
    out = Counter(run.fingerprint for run in facts.observed if run.fingerprint and run.status in OPEN)
    out.update(fingerprint(one.config, facts.dimensions) for one in waiting)
    return {name: RunCounts(ended[name], out[name]) for name in {*ended, *out}}
