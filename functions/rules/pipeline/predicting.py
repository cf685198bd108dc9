"""What a batch will decide, from how its runs stand on their way, drawn to their ends by the rules of belief.

A run that has not ended is taken to end as one of those finished runs did that were tested alike and stood at the
same rank at the same bucket. Each resample draws such an end for every run that is to end within the batch, learns
from them in the order in which they began, and shares the workers out where that is due. What most resamples decide
is predicted, and their share is the confidence: the less the early ticks tell, and the nearer two decisions lie, the
lower it is (a bootstrap, Efron, Ann. Statist. 7, 1979, over nearest neighbours).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from functions.rules.beliefs.concluding import belief_state, finished_run, references_of, terms_of
from functions.rules.beliefs.evidence import part_of
from functions.rules.beliefs.learning import BeliefState, after_run
from functions.rules.beliefs.sharing import is_due, is_over, shared_out, texts
from functions.rules.beliefs.terms import FinishedRun
from functions.rules.beliefs.testing import is_test
from functions.rules.pipeline.deciding import decided
from functions.rules.swarm.populations import Population
from state.pipeline_facts import EarlyFacts
from state.records import Decision, Experiment

if TYPE_CHECKING:
    from random import Random

RESAMPLES: Final = 32
NEIGHBOURS: Final = 5
"""Finished runs that a run's end is drawn from."""
TELLING: Final = ("keep", "discard", "measured", "crash", "timeout", "invalid")
"""Statuses of runs that ended by themselves."""


@dataclass(frozen=True)
class Prediction:
    """What a batch is to decide."""

    decision: Decision
    confidence: float
    """Share of the resamples that decide so, 0 to 1."""


def predicted(
    facts: EarlyFacts, left: int, before: Decision | None, rng: Random, resamples: int = RESAMPLES
) -> Prediction | None:
    """What the batch decides whose end is `left` results away; None: nothing is under way, or no hypothesis is open.

    `before` is what stands now: it stays where others come level with it.
    """
    running = [e for e in facts.running if e.worker_id is not None and not e.is_extra]
    if not running or left < 1:
        return None
    references = references_of(facts)
    begun = {h.hypothesis_id: belief_state(h, facts.kept[h.hypothesis_id], references) for h in facts.open}
    ends = {e.experiment_id: alike(e, facts.ended) for e in running}
    votes = Counter(_resampled(facts, begun, running, ends, left, before, rng) for _ in range(resamples))
    found, share = votes.most_common(1)[0]
    return (
        None
        if found is None
        else Prediction(Decision(hypothesis_id=found[0], strategy=found[1]), share / resamples)
    )


def alike(e: Experiment, ended: Sequence[Experiment]) -> list[Experiment]:
    """The finished runs that a run may end like: those that were tested alike, the nearest in rank.

    The rank is that at the last bucket that it has passed. Where it has passed none, or they have not, all count.
    """
    telling = [o for o in ended if o.status in TELLING and o.retest_of is None]
    same = [o for o in telling if o.hypothesis_id == e.hypothesis_id and o.is_reference == e.is_reference]
    pool = same if len(same) >= NEIGHBOURS else telling
    bucket = max(e.ranked or {}, key=float, default=None)
    near = [o for o in pool if bucket in (o.ranked or {})]
    if bucket is None or len(near) < NEIGHBOURS:
        return pool
    own = _rank(e, bucket)
    return sorted(near, key=lambda o: (abs(_rank(o, bucket) - own), o.experiment_id))[:NEIGHBOURS]


def _rank(e: Experiment, bucket: str) -> float:
    return (e.ranked or {})[bucket][0]


def _resampled(
    facts: EarlyFacts,
    begun: Mapping[str, BeliefState],
    running: Sequence[Experiment],
    ends: Mapping[str, Sequence[Experiment]],
    left: int,
    before: Decision | None,
    rng: Random,
) -> tuple[str, str] | None:
    """What one drawn end of the batch decides: a hypothesis and its strategy."""
    terms, beliefs, now = terms_of(facts), dict(begun), facts
    for e in _to_end(running, left, rng):
        if (run := _drawn(e, ends[e.experiment_id], facts, rng)) is not None:
            for name, belief in beliefs.items():
                h = belief.hypothesis
                if is_test(h) or is_over(h) or (part := part_of(run, h, terms)) == "none":
                    continue
                if part == "reference":
                    belief = replace(belief, unused=[*belief.unused, run])
                beliefs[name] = after_run(run, belief, terms, facts.now)
        now = _learned(now, beliefs)
    opened = {name: belief.hypothesis for name, belief in beliefs.items()}
    found = decided(map(Population.read, now.populations.values()), opened, before)
    return None if found is None else (found.hypothesis_id, found.strategy)


def _to_end(running: Sequence[Experiment], left: int, rng: Random) -> list[Experiment]:
    """The runs that end within the batch: those that began first, and then more like them."""
    return [*islice(running, left), *rng.choices(running, k=max(0, left - len(running)))]


def _drawn(e: Experiment, ends: Sequence[Experiment], facts: EarlyFacts, rng: Random) -> FinishedRun | None:
    """A run with the end of another one; None: there is none that tells, or nothing is learned from it."""
    if not ends:
        return None
    end = rng.choice(ends)
    return finished_run(e.model_copy(update={"status": end.status, "delta_bpb": end.delta_bpb}), facts)


def _learned(facts: EarlyFacts, beliefs: Mapping[str, BeliefState]) -> EarlyFacts:
    """The tag after one more result, its workers shared out anew where that is due."""
    opened = [b.hypothesis for b in beliefs.values()]
    if not is_due(facts, opened):
        return replace(facts, results=facts.results + 1)
    return replace(
        facts,
        results=facts.results + 1,
        populations=texts(shared_out(facts, opened, facts.best_config)),
        allocated_at=facts.results + 1,
        allocations=facts.allocations + 1,
    )
