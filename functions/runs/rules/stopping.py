"""Early stopping: ranks, their trends, the stopping rules, and the answer to a run's first tick in a bucket."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, replace
from hashlib import sha256
from statistics import NormalDist

from state.decisions import Learnt, Rank, Told
from state.facts import NO_TREND, Peers, RankFacts, Trend
from state.policy import BUCKETS, FIFTHS, Stopping, StoppingRule
from state.records import Direction, Experiment, Tag

# -- Ranks: a run's value among the values that its peers had at the same bucket.


@dataclass(frozen=True)
class PeerRank:
    """A run among other runs of its tag, GPU class and bucket: all that a stopping rule may use."""

    better: int
    tied: int
    worse: int
    stopped: int = 0
    """Runs of the same tag and GPU class that were stopped before this bucket."""
    trend: Trend = NO_TREND
    """Ranks here and at the end, of the peers that ended."""
    was_spared: bool = False
    """It had a chance of being stopped at an earlier bucket, and was not."""

    @property
    def peers(self) -> int:
        return self.better + self.tied + self.worse

    @property
    def rank(self) -> float:
        """Percentile: 0 is the worst, 100 the best. A tie counts as half a worse peer.

        If only worse peers counted, every run of a saturated metric would have rank 0.
        """
        return 100 * (self.worse + self.tied / 2) / self.peers if self.peers else 50.0

    @property
    def place(self) -> float:
        """Share of the runs, earlier stopped ones included, that are worse; between 0 and 1."""
        return place_among(self.better, self.tied, self.worse + self.stopped)


def standing(direction: Direction, *, lower: int, equal: int, peers: int) -> PeerRank:
    """Rank of a run, from the number of peers with a lower value and with an equal value."""
    higher = peers - lower - equal
    better, worse = (lower, higher) if direction == "minimize" else (higher, lower)
    return PeerRank(better, equal, worse)


def place_among(better: int, tied: int, worse: int) -> float:
    """Share of the others that are worse, a tie counting for half; above 0 and below 1."""
    return (worse + tied / 2 + 0.5) / (better + tied + worse + 1)


# -- Trends: how well the rank of a run at a bucket has predicted its final rank.

LEAST_RUNS = 15
"""Fewest runs from which a correlation is computed."""
_NORMAL = NormalDist()
_MOST = 0.999
"""Largest correlation: 1 only means too few runs."""


@dataclass(frozen=True)
class Correlation:
    """Bounds of the correlation between the place at a bucket and the final place, among all runs at the bucket."""

    low: float
    high: float


def score_of(place: float) -> float:
    """The normal score of a place: 0 in the middle, positive in the better half."""
    return _NORMAL.inv_cdf(place)


def terms(u: float, v: float) -> Trend:
    """Contribution to a trend of a run with the score `u` at the bucket and `v` at its end."""
    return Trend(1.0, u, v, u * u, v * v, u * v)


def together(first: Trend, second: Trend) -> Trend:
    return Trend(*(a + b for a, b in zip(astuple(first), astuple(second), strict=True)))


def correlation(trend: Trend, *, doubt: float, hope: float) -> Correlation | None:
    """Bounds: `doubt` standard errors (of Fisher's z) below the correlation, `hope` above; None for too few runs.

    Stopped runs have no final rank. So the runs that ended differ less at the bucket than all runs did, and correlate
    less. Thorndike's formula corrects that (Personnel Selection, 1949, case 2). It needs only the variance of the
    runs that ended, because normal scores of all runs have the variance 1.
    """
    n = trend.runs
    if n < LEAST_RUNS:
        return None
    of_u, of_v = trend.uu / n - (trend.u / n) ** 2, trend.vv / n - (trend.v / n) ** 2
    if min(of_u, of_v) < 1e-9:
        return None
    found = (trend.uv / n - trend.u * trend.v / n**2) / math.sqrt(of_u * of_v)
    z, error = math.atanh(max(-_MOST, min(_MOST, found))), 1 / math.sqrt(n - 3)
    low, high = (math.tanh(z + errors * error) for errors in (-doubt, hope))
    narrower = max(1.0, 1 / math.sqrt(of_u))
    return Correlation(*(max(-_MOST, min(_MOST, _of_all(r, narrower))) for r in (low, high)))


def _of_all(r: float, narrower: float) -> float:
    """Correlation among all runs, from that among runs whose spread at the bucket is `narrower` times smaller."""
    return r * narrower / math.sqrt(1 - r * r + r * r * narrower * narrower)


def learnt(e: Experiment, value: float, ends: Peers, direction: Direction) -> Learnt | None:
    """What a trend learns from the end of a run; None if the run was never ranked.

    `value` is what the run is judged by: for an extended run, its value at the end of the normal budget.
    """
    if not e.places:
        return None
    v = score_of(standing(direction, lower=ends.lower, equal=ends.equal, peers=ends.runs).place)
    return Learnt(value, v, told_by(e.places, v))


def told_by(places: Mapping[str, float], v: float) -> Mapping[str, Trend]:
    """Contribution of a run to the trend of each bucket: `places` are its scores there, `v` its final score."""
    return {bucket: terms(u, v) for bucket, u in places.items()}


# -- Stopping rules: each returns the probability with which a run is stopped at a bucket.
#
# `adaptive` cuts harder the better ranks at a bucket have predicted final ranks. It measures that correlation among
# the runs that ended. It bounds a run's chances by Cantelli's inequality, which holds for any distribution: real
# runs recover more often than a normal distribution predicts. Where curves cross until late, the correlation is low
# and stops nothing. There most of the worst third are stopped within the first two fifths: such runs seldom end
# well.

Stopper = Callable[[PeerRank, float, Stopping], float]
"""Takes a run's rank, its bucket and the tag's settings; returns the probability of a stop, 0 to 1."""


def stochastic(standing: PeerRank, bucket: float, settings: Stopping) -> float:
    """Probability that falls linearly from `max_prob` at rank 0 to 0 at the percentile 100 / eta (33.3)."""
    threshold = round(100 / settings.eta, 1)
    return settings.max_prob * max(0.0, threshold - standing.rank) / threshold


def median(standing: PeerRank, bucket: float, settings: Stopping) -> float:
    """The median rule of Google Vizier (Golovin et al. 2017): stop what is worse than half of its peers."""
    return 1.0 if standing.rank < 50 else 0.0


def asha(standing: PeerRank, bucket: float, settings: Stopping) -> float:
    """Asynchronous successive halving (Li et al. 2020): at each rung only the best 1 / eta go on."""
    cut = standing.better >= standing.peers / settings.eta
    return 1.0 if bucket in rungs(settings.eta) and cut else 0.0


def none(standing: PeerRank, bucket: float, settings: Stopping) -> float:
    return 0.0


def rungs(eta: float) -> frozenset[float]:
    """The fifths nearest to the shares 1 / eta, 1 / eta^2, ... of a run, down to the first."""
    found: set[float] = set()
    share = 1 / eta
    while FIFTHS[0] not in found:
        found.add(min(FIFTHS, key=lambda bucket: abs(bucket - share)))
        share /= eta
    return frozenset(found - {FIFTHS[-1]})


TOP = 0.05
"""Share of all runs, the best ones, that shall survive."""
FEW = 10
"""Most runs that shall survive. A search improves: a share alone would spare nearly every late run."""
RISK = 0.741
"""A run is stopped if its bound on the chance to survive is below this share of the bound at correlation 0.

Cantelli's bound is for the worst distribution. For others the chance is at most a tenth of it."""
DOUBT = 1.5
"""Standard errors subtracted from the measured correlation."""
HOPE = 2.0
"""Standard errors added to it, to ask whether a correlation above 0 is possible."""
SURE = 0.98
"""Probability of a stop for a run that will hardly end among the best."""
UNSURE = 0.8
"""Probability of a stop for one of the worst runs where its rank predicts little."""
UNSURE_UNTIL = 0.4
"""Last bucket at which UNSURE applies: later there is less to save."""


def adaptive(standing: PeerRank, bucket: float, settings: Stopping) -> float:
    """Stop runs that will hardly end among the best, by the measured correlation.

    A run that was spared once goes on to its end: the correlation needs final ranks of low runs, too.
    """
    known = correlation(standing.trend, doubt=DOUBT, hope=HOPE)
    top = min(TOP, FEW / (standing.peers + standing.stopped + 1))
    if known is None or standing.was_spared or standing.place > most(bucket, top):
        return 0.0
    if hardly_ends_well(score_of(standing.place), known.low, top):
        return SURE
    is_worst = standing.place < 1 / settings.eta
    return UNSURE if is_worst and bucket <= UNSURE_UNTIL and known.high > 0 else 0.0


def most(bucket: float, top: float = TOP) -> float:
    """Place, 0 (worst) to 1, above which no run is stopped. It rises with the bucket: fewer late bloomers are left.

    `top` is the share of all runs that shall survive.
    """
    return 1 - max(0.475 - 0.75 * bucket, 0.15) * top / TOP


def hardly_ends_well(u: float, r: float, top: float) -> bool:
    """Whether a run of normal score `u` will hardly end among the best, at correlation `r`.

    The final score has the mean r * u and the variance 1 - r * r. The chance that it reaches `aim` is at most
    variance / (variance + distance ** 2): Cantelli, Atti Congr. Int. Mat. 1928. At r = 0 that is 1 / (1 + aim ** 2).
    """
    aim = NormalDist().inv_cdf(1 - top)
    spread, distance, risk = 1 - r * r, aim - r * u, RISK / (1 + aim * aim)
    return r > 0 and distance > 0 and spread < risk * (spread + distance * distance)


STOPPERS: Mapping[StoppingRule, Stopper] = {
    "none": none,
    "stochastic": stochastic,
    "median": median,
    "asha": asha,
    "adaptive": adaptive,
}


def looks_at(rule: StoppingRule, bucket: float) -> bool:
    """Whether runs are ranked at this bucket: the published rules use fifths, `adaptive` an earlier one, too."""
    return rule == "adaptive" or (rule != "none" and bucket in FIFTHS)


# -- Answer to a run's first tick in a bucket: go on, stop, or take more time.

BEST = 11.0
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
    if at.may_extend and at.bucket == settings.extend_at and at.standing.rank >= 100 - BEST:
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
