"""Decisions of a batch of results: the leading hypothesis and its strategy, and a prediction of both.

The prediction is a bootstrap (Efron, Ann. Statist. 7, 1979) over nearest neighbours. A running run is given the end
of a finished run that was tested alike and had a similar rank at the same bucket. Each resample draws such an end for
every run that will end within the batch. It updates the beliefs in the order of the runs' starts, and reallocates
workers where that is due. The most frequent decision is predicted. Its share of the resamples is the confidence,
which is low where early ranks say little or two decisions are close.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from functions.beliefs.rules.allocation import information_value
from functions.beliefs.rules.concluding import belief_state, finished_run, references_of, terms_of
from functions.beliefs.rules.evidence import part_of
from functions.beliefs.rules.learning import BeliefState, after_run
from functions.beliefs.rules.protocols import is_test
from functions.beliefs.rules.sharing import is_due, is_over, shared_out, texts
from functions.beliefs.rules.terms import FinishedRun
from functions.swarm.rules.populations import Population
from state.program_facts import EarlyFacts
from state.records import BatchDecision, Experiment, Hypothesis

if TYPE_CHECKING:
    from random import Random


RESAMPLES: Final = 32
NEIGHBOURS: Final = 5
"""Finished runs from which a run's end is drawn."""
TELLING: Final = ("keep", "discard", "measured", "crash", "timeout", "invalid")
"""Statuses of runs that ended by themselves."""


@dataclass(frozen=True)
class Prediction:
    """A predicted decision of a batch."""

    decision: BatchDecision
    confidence: float
    """Share of the resamples with this decision, 0 to 1."""


def decided(
    populations: Iterable[Population], opened: Mapping[str, Hypothesis], before: BatchDecision | None
) -> BatchDecision | None:
    """The leading hypothesis and its strategy; None: no population tests a hypothesis.

    The population with the largest target leads. Ties go to the hypothesis that led `before`, so that no program
    changes without need. Then the higher information value decides, then the lower id.
    """

    def rank(p: Population) -> tuple[int, bool, float, str]:
        h = opened.get(p.hypothesis_id or "")
        has_led = before is not None and p.hypothesis_id == before.hypothesis_id
        return -p.target, not has_led, -information_value(h) if h else 0.0, p.hypothesis_id or ""

    found = min((p for p in populations if p.hypothesis_id is not None), key=rank, default=None)
    if found is None:
        return None
    return BatchDecision(hypothesis_id=found.hypothesis_id or "", strategy=found.strategy)


def predicted(
    facts: EarlyFacts, left: int, before: BatchDecision | None, rng: Random, resamples: int = RESAMPLES
) -> Prediction | None:
    """The predicted decision of a batch that ends after `left` more results.

    None: nothing runs, or no hypothesis is open. `before` is the decision in force, which wins ties.
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
        else Prediction(BatchDecision(hypothesis_id=found[0], strategy=found[1]), share / resamples)
    )


def alike(e: Experiment, ended: Sequence[Experiment]) -> list[Experiment]:
    """The finished runs whose end a run may have: tested alike, and nearest in rank at the last bucket it has passed.

    Where ranks are missing, all of them count.
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
    before: BatchDecision | None,
    rng: Random,
) -> tuple[str, str] | None:
    """The decision of one resample: a hypothesis and its strategy."""
    terms, beliefs, now = terms_of(facts), dict(begun), facts
    # those that will end within the batch: the oldest first, then copies of drawn ones
    for e in (*islice(running, left), *rng.choices(running, k=max(0, left - len(running)))):
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


def _drawn(e: Experiment, ends: Sequence[Experiment], facts: EarlyFacts, rng: Random) -> FinishedRun | None:
    """A run with the end of a drawn one; None: there is none, or it is no evidence."""
    if not ends:
        return None
    end = rng.choice(ends)
    return finished_run(e.model_copy(update={"status": end.status, "delta_bpb": end.delta_bpb}), facts)


def _learned(facts: EarlyFacts, beliefs: Mapping[str, BeliefState]) -> EarlyFacts:
    """The tag after one more result, with workers reallocated where that is due."""
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
