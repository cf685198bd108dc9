"""Refilling the queue of a population: how many configs it lacks, and which ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from functions.rules.swarm.duplicates import Tried, desired_repeats, may_run
from functions.rules.swarm.fingerprints import fingerprint
from functions.rules.swarm.observations import Observation
from functions.rules.swarm.promoting import promoted
from functions.rules.swarm.proposals import Proposal, Sampler, drawn_proposal
from functions.rules.swarm.shapes import NEAR, Shape, SwarmStrategy, standing_config
from state.policy import Duplicates, Policy
from state.records import Dimension

if TYPE_CHECKING:
    from random import Random

LEAST_TARGET = 8
"""Configs that wait where fewer workers are active."""
MOONSHOT_SHARE = 0.05
MIXED: frozenset[SwarmStrategy] = frozenset({"investigate", "exploit"})
"""Strategies whose places include neighbours of the best configs; those of `investigate` moonshots, too. The others
test something, or stay near the winner: a config from elsewhere would not be what their note says. Nor are those of a
claim about some dimensions mixed."""
LEAPS: Mapping[SwarmStrategy, float] = {"exploit": 0.4, "converge": 0.05}
"""Share of the places near the best known config at which the sampler chooses all dimensions anew, from their whole
ranges. It puts together what was learned of each alone, and leads out of a local optimum, as small steps do not."""
PROMOTION_EVERY = 100
PROMOTION_LASTS = 40
"""Results after each hundred during which half of the places are neighbours: 20 in all, a fifth of 100 configs."""
PROMOTION_SHARE = 0.5
SamplerOf = Callable[[Shape], Sampler]
"""What proposes configs within a shape."""
USUAL = Duplicates()
WINNER = 0.75
"""Priority of the config that `converge` is around: it is run 3 times, so that neither its own luck decides nor that
of its neighbours."""
MISSES = 32
"""Draws in a row that may not run; then the shape is used up."""


def wanted(policy: Policy, active_workers: int, waiting: int) -> int:
    """How many configs a population's queue lacks."""
    return max(0, _target(policy, active_workers) - waiting)


def few(policy: Policy, active_workers: int) -> int:
    """How many configs of a population still wait when more are asked for: half of what it is to have."""
    return _target(policy, active_workers) // 2


def _target(policy: Policy, active_workers: int) -> int:
    return max(LEAST_TARGET, active_workers) if policy.queue_target is None else policy.queue_target


def refilled(
    dimensions: Sequence[Dimension],
    observations: Sequence[Observation],
    shape: Shape,
    sampler_of: SamplerOf,
    tried: Mapping[str, Tried],
    count: int,
    rng: Random,
    duplicates: Duplicates = USUAL,
    ended: int | None = None,
) -> list[Proposal]:
    """Proposals for `count` places of a population's queue, 1 at least where `count` is.

    `ended` is how many runs of the tag have ended, where the observations are not all of them.

    `sampler_of` tells what proposes within a shape.

    `tried` says by fingerprint how often a config was run; those without an entry never were. The sampler, the
    moonshots and the promotion propose. What may not run makes place for random draws within the shape, then for
    moonshots, then for further repeats. Where all of that is used up, because every dimension is frozen, say, the
    config that was run least is run once more, beyond the limits: the swarm goes on.
    """
    batch = _Batch(dimensions, tried, duplicates, count, is_of_claim=shape.is_of_claim)
    known = sum(not seen.pending for seen in observations) if ended is None else ended
    batch.take(_planned(dimensions, observations, shape, sampler_of, count, rng, known), shape.strategy)
    batch.take(_draws(dimensions, shape, rng, "drawn at random"), shape.strategy)
    moonshot = replace(shape, strategy="moonshot")
    batch.take(_draws(dimensions, moonshot, rng, "moonshot"), "moonshot")
    batch.repeat()
    return batch.proposals


def is_promoting(ended: int) -> bool:
    """Whether the last hundred was reached lately by the runs that ended, whichever way."""
    return ended >= PROMOTION_EVERY and ended % PROMOTION_EVERY < PROMOTION_LASTS


def _planned(
    dimensions: Sequence[Dimension],
    observations: Sequence[Observation],
    shape: Shape,
    sampler_of: SamplerOf,
    count: int,
    rng: Random,
    ended: int,
) -> list[Proposal]:
    """A proposal for every place: some leaps or moonshots, some neighbours of the best configs, the rest from the
    sampler."""
    found: list[Proposal] = []
    is_mixed = shape.strategy in MIXED and shape.free is None
    if shape.strategy in NEAR:
        everything = replace(shape, strategy="investigate", at_most=None)
        leaps = _some(LEAPS[shape.strategy], count, rng)
        leapt = sampler_of(everything).propose(dimensions, observations, everything, leaps, rng)
        found += [replace(p, why=f"all dimensions anew, {p.why}") for p in leapt]
        observations = [*observations, *(Observation(p.config, None, pending=True) for p in leapt)]
        if shape.strategy == "converge" and shape.center and len(found) < count:
            found.append(Proposal(standing_config(dimensions, shape), WINNER, "what is taken for the best"))
    elif is_mixed:
        moonshot = replace(shape, strategy="moonshot")
        shots = _some(MOONSHOT_SHARE, count, rng)
        found += [drawn_proposal(dimensions, moonshot, rng, "moonshot") for _ in range(shots)]
    if is_mixed and is_promoting(ended):
        near = _some(PROMOTION_SHARE, count - len(found), rng)
        found += promoted(observations, dimensions, rng, shape, near)
    return found + sampler_of(shape).propose(dimensions, observations, shape, count - len(found), rng)


def _some(share: float, count: int, rng: Random) -> int:
    """How many of so many places, each with this chance."""
    return sum(rng.random() < share for _ in range(count))


def _draws(dimensions: Sequence[Dimension], shape: Shape, rng: Random, why: str) -> Iterator[Proposal]:
    while True:
        yield drawn_proposal(dimensions, shape, rng, why)


@dataclass
class _Batch:
    """The proposals that fill the places; each counts for the next ones as a run in flight."""

    dimensions: Sequence[Dimension]
    tried: Mapping[str, Tried]
    duplicates: Duplicates
    count: int
    proposals: list[Proposal] = field(default_factory=list)
    added: dict[str, int] = field(default_factory=dict)
    """How often each fingerprint stands in the batch."""
    is_of_claim: bool = False
    """The configs test a claim."""
    known: dict[str, tuple[Proposal, SwarmStrategy]] = field(default_factory=dict)
    """Every config that was proposed, by its fingerprint."""

    @property
    def missing(self) -> int:
        return self.count - len(self.proposals)

    def take(self, proposed: Iterable[Proposal], strategy: SwarmStrategy) -> None:
        """Take what may run, each as often as its priority is worth, until the places or the configs are used up."""
        misses = 0
        for proposal in proposed if self.missing > 0 else ():
            key = fingerprint(proposal.config, self.dimensions)
            self.known.setdefault(key, (proposal, strategy))
            taken = self._add(key, proposal, proposal.priority, strategy)
            misses = 0 if taken else misses + 1
            if misses == MISSES or self.missing <= 0:
                return

    def repeat(self) -> None:
        """Fill up with repeats, those run least first; where none may run, one beyond the limits."""
        if self.missing <= 0:
            return
        least_first = sorted(self.known, key=lambda key: self._tried(key).all)
        for key in least_first:
            proposal, strategy = self.known[key]
            self._add(key, replace(proposal, why=f"{proposal.why}, again"), 1.0, strategy)
        if not self.proposals:
            proposal, _ = self.known[least_first[0]]
            self.proposals.append(replace(proposal, why="nothing else is left to run"))

    def _add(self, key: str, proposal: Proposal, worth: float, strategy: SwarmStrategy) -> bool:
        """Whether it was added; as often as a priority of `worth` desires."""
        before = len(self.proposals)
        for _ in range(desired_repeats(worth)):
            if self.missing <= 0 or not self._may_run(key, worth, strategy):
                break
            self.proposals.append(proposal)
            self.added[key] = self.added.get(key, 0) + 1
        return len(self.proposals) > before

    def _may_run(self, key: str, worth: float, strategy: SwarmStrategy) -> bool:
        return may_run(self._tried(key), worth, strategy, self.duplicates, is_of_claim=self.is_of_claim)

    def _tried(self, key: str) -> Tried:
        known = self.tried.get(key, Tried())
        return replace(known, in_flight=known.in_flight + self.added.get(key, 0))
