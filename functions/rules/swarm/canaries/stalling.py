"""Stall cycles of a search, and when a language model is asked for dimensions. Time is counted in results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from functions.rules.keeps.verdict import TOLERANCE, score
from state.trial_facts import RESULTS, KeptRun, TrialFacts

LEAST_RESULTS = 25
"""Results before which no search stalls."""
WINDOW = 50
"""Number of newest results in which the best has to improve."""
LEAST_GAIN = 0.0005
"""Improvement below which the search stalls."""
CYCLE = 25
"""Length of a stall cycle in results."""
MOST_TRIALS = 1
"""Dimensions on trial at once. With several, a gain could not be attributed to one of them."""


@dataclass(frozen=True)
class Cycle:
    """A stall cycle: several proposals of one dimension in it count once."""

    number: int
    """From 1."""
    at: int
    """Results that the tag had when it began."""


def improvement(facts: TrialFacts) -> float | None:
    """Improvement of the best by the newest 50 results; None if unknown.

    With fewer results the unchanged train.py is the baseline. Crashes are not results. The value is negative where a
    retest made the best worse.
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
    """The current stall cycle, which may begin now; None if the search does not stall.

    A stall that ends and begins again within 25 results belongs to the same cycle.
    """
    if not is_stalled(facts):
        return None
    if facts.cycle and facts.tag.results - facts.cycle_at < CYCLE:
        return Cycle(facts.cycle, facts.cycle_at)
    return Cycle(facts.cycle + 1, facts.tag.results)


def newest_cycle(facts: TrialFacts) -> Cycle:
    """The current stall cycle, else the last one; number 0 before the first."""
    return cycle_of(facts) or Cycle(facts.cycle, facts.cycle_at)


def is_asked_for(facts: TrialFacts) -> Literal["start", "stall"] | None:
    """Why a language model is asked for dimensions now; None if it is not.

    It is asked once at the start and once in each stall cycle. It is not asked while a trial runs, or if the policy
    adopts no dimensions.
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
    """End of the oldest of the newest 50 results; 0 with fewer results."""
    ends = sorted((e.finished_at or 0.0 for e in facts.ended if e.status in RESULTS), reverse=True)
    return ends[WINDOW - 1] if len(ends) >= WINDOW else 0.0


def _unchanged(facts: TrialFacts) -> float | None:
    """Score of the unchanged train.py: a delta of 0, or the best baseline of a worker."""
    if facts.policy.compare_by == "delta":
        return 0.0
    direction = facts.tag.direction
    known = [score(e.baseline_bpb, direction) for e in facts.ended if e.baseline_bpb is not None]
    return min(known, default=None)


def _score(kept: KeptRun, facts: TrialFacts) -> float:
    return score(kept.judged or 0.0, facts.tag.direction)
