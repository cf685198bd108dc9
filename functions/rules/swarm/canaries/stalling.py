"""When a search stalls, in cycles that are counted in results, and when dimensions are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from functions.rules.keeps.verdict import TOLERANCE, score
from state.trial_facts import RESULTS, KeptRun, TrialFacts

LEAST_RESULTS = 25
"""Results of a tag before which it does not stall."""
WINDOW = 50
"""Newest results in which the best has to improve."""
LEAST_GAIN = 0.0005
"""By which it has to."""
CYCLE = 25
"""Results of a stall cycle; the next one begins after them, if the search stalls then."""
MOST_TRIALS = 1
"""Dimensions on trial at once: what one gains would be taken for another's, or hide it."""


@dataclass(frozen=True)
class Cycle:
    """A stall cycle: what is proposed twice in it counts once."""

    number: int
    """From 1."""
    at: int
    """Results that the tag had when it began."""


def improvement(facts: TrialFacts) -> float | None:
    """By how much the newest 50 results have improved the best; None: it cannot be told.

    Fewer results are compared with the unchanged train.py. Crashes are no results. A retest may make the best worse:
    then it is below 0.
    """
    opened_at = _window_opened_at(facts)
    before = [k for k in facts.keeps if (k.finished_at or 0.0) < opened_at]
    then = _score(before[0], facts) if before else _unchanged(facts)
    if then is None:
        return None
    return then - _score(facts.keeps[0], facts) if facts.keeps else 0.0


def is_stalled(facts: TrialFacts) -> bool:
    """Whether 25 results are in, and the newest 50 improved the best by less than 0.0005."""
    gain = improvement(facts) if facts.tag.results >= LEAST_RESULTS else None
    return gain is not None and gain < LEAST_GAIN - TOLERANCE


def cycle_of(facts: TrialFacts) -> Cycle | None:
    """The stall cycle that goes on, or begins now; None: the search does not stall.

    A stall that ends and begins again within 25 results is in the same cycle.
    """
    if not is_stalled(facts):
        return None
    if facts.cycle and facts.tag.results - facts.cycle_at < CYCLE:
        return Cycle(facts.cycle, facts.cycle_at)
    return Cycle(facts.cycle + 1, facts.tag.results)


def is_asked_for(facts: TrialFacts) -> Literal["start", "stall"] | None:
    """Whether a language model is to be asked for dimensions now, and why; once at the start, once in a stall cycle.

    Not while as many are on trial as may be, nor where the policy says that none is adopted.
    """
    if facts.policy.canaries == "off" or not facts.dimensions:
        return None
    if sum(p.state == "on_trial" for p in facts.proposals) >= MOST_TRIALS:
        return None
    cycle = cycle_of(facts)
    if cycle is not None and (facts.asked is None or facts.asked < cycle.number):
        return "stall"
    return "start" if facts.asked is None and facts.tag.results < LEAST_RESULTS else None


def _window_opened_at(facts: TrialFacts) -> float:
    """When the oldest of the newest 50 results ended; 0 where there are fewer."""
    ends = sorted((e.finished_at or 0.0 for e in facts.ended if e.status in RESULTS), reverse=True)
    return ends[WINDOW - 1] if len(ends) >= WINDOW else 0.0


def _unchanged(facts: TrialFacts) -> float | None:
    """The score of the unchanged train.py: a delta of 0, or the best baseline that a worker had."""
    if facts.policy.compare_by == "delta":
        return 0.0
    direction = facts.tag.direction
    known = [score(e.baseline_bpb, direction) for e in facts.ended if e.baseline_bpb is not None]
    return min(known, default=None)


def _score(kept: KeptRun, facts: TrialFacts) -> float:
    return score(kept.judged or 0.0, facts.tag.direction)
