"""Answer to a run's first tick in a bucket: go on, stop, or take more time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256

from functions.rules.stopping.ranks import PeerRank, standing
from functions.rules.stopping.stoppers import STOPPERS
from functions.rules.stopping.trends import score_of
from state.decisions import Rank, Told
from state.facts import Peers, RankFacts
from state.policy import BUCKETS, Stopping
from state.records import Experiment, Tag

TOP = 11.0
"""Percent of the runs, the best ones, that get more time."""
NEVER_STOPPED = frozenset({"falsify", "validate", "decision_sprint"})
"""Strategies of a swarm that need the final value of every run."""
REASON = "stopped early: its rank among the runs of its tag was too low"
"""It holds no number: published clients read the first number beside the metric's name as the result."""


@dataclass(frozen=True)
class Checkpoint:
    """A run at a bucket, with all that the answer depends on."""

    bucket: float
    standing: PeerRank
    finished: int
    """Runs of the tag that ended with a value or were stopped."""
    strategy: str | None = None
    """Strategy of a swarm's run."""
    may_stop: bool = True
    """False: its final value is needed, whatever the strategy."""
    may_extend: bool = True
    """False: it was extended before, or must take as long as other runs."""


@dataclass(frozen=True)
class TickVerdict:
    """The answer to a tick, and the probability of a stop that led to it."""

    told: Told
    chance: float = 0.0


def judge(at: Checkpoint, draw: float, settings: Stopping) -> TickVerdict:
    """The answer at a bucket; `draw` in [0, 1) is always the same for this run and bucket."""
    is_early = at.finished < settings.warmup_runs or at.standing.peers < settings.min_peers
    if settings.rule == "none" or is_early:
        return TickVerdict("continue")
    chance = STOPPERS[settings.rule](at.standing, at.bucket, settings)
    if not at.may_stop or at.strategy in NEVER_STOPPED or at.bucket == BUCKETS[-1]:
        chance = 0.0
    if draw < chance:
        return TickVerdict("stop", chance)
    if at.may_extend and at.bucket == settings.extend_at and at.standing.rank >= 100 - TOP:
        return TickVerdict("extend", chance)
    return TickVerdict("continue", chance)


def checkpoint(facts: RankFacts, bucket: float, peers: Peers, tag: Tag) -> Checkpoint:
    """A run at a bucket.

    Baselines and runs that are compared for a claim are never stopped: without the bad ones a claim would look
    better than it is, or undecided. A run is extended only if it reports its value at the end of the normal budget
    itself. An evaluator's command would measure the end of the extension. A script that only prints its loss does
    not report, and does not learn of its extension.
    """
    e, policy = facts.experiment, facts.policy
    says_itself = tag.evaluator_command is None and facts.tick_source == "report"
    may_extend = not e.baseline and e.extended_s is None and says_itself
    rank = standing(tag.direction, lower=peers.lower, equal=peers.equal, peers=peers.runs)
    return Checkpoint(
        bucket,
        replace(rank, stopped=peers.stopped, trend=peers.trend, was_spared=was_spared(e, bucket)),
        tag.results,
        strategy=e.population_strategy,
        may_stop=not e.baseline and not e.is_compared,
        may_extend=may_extend and policy.budgets.extend_s > 0,
    )


def was_spared(e: Experiment, bucket: float) -> bool:
    """Whether it had a chance of being stopped at an earlier bucket."""
    return any(chance > 0 and float(at) < bucket for at, (_, chance) in (e.ranked or {}).items())


def rank_of(
    facts: RankFacts,
    bucket: float,
    tick: tuple[float, float],
    value: float,
    at: Checkpoint,
    answer: TickVerdict,
) -> Rank:
    """Record of a run's rank at a bucket. `tick` is (metric, progress); `value` is what it is ranked by."""
    metric, progress = tick
    return Rank(
        facts.rank_class,
        bucket,
        value,
        metric,
        progress,
        answer.told,
        facts.tick_source,
        reason=REASON if answer.told == "stop" else None,
        extra_s=facts.policy.budgets.extend_s if answer.told == "extend" else None,
        place=score_of(at.standing.place) if at.standing.peers >= facts.policy.stopping.min_peers else None,
        facts={"rank": round(at.standing.rank, 1), "peers": at.standing.peers, "chance": answer.chance},
    )


def drawn(run: str, bucket: float) -> float:
    """The number in [0, 1) that decides for this run at this bucket; always the same."""
    digest = sha256(f"{run} {bucket!r}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48
