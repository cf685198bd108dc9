"""Configs that are proposed and their results; neighbours of the best. How often a config may run."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TYPE_CHECKING

from functions.swarm.rules.rooms import Room
from functions.swarm.rules.shapes import Shape, SwarmStrategy, drawn_config, freedoms_of, varied_names
from state.records import Dimension, Value

if TYPE_CHECKING:
    from random import Random
import hashlib
import json

from functions.swarm.rules.dimensions import LARGEST_INT, same
from state.policy import Duplicates

# -- Observations of a tag's runs as robust scores: no single result decides.

SPREAD = 0.02
"""Robust standard deviation of the scores for any metric; about that of val_bpb between configs."""
MOST_APART = 3.0
LIMIT = SPREAD * MOST_APART
"""Largest distance of a score from 0. A result of 1e300 is one bad result."""
LARGEST = 1e300
"""Limit of results: differences stay finite."""
NORMAL = 1.4826
"""A normal distribution's standard deviation over its median absolute deviation."""


@dataclass(frozen=True)
class Observation:
    config: Mapping[str, Value]
    value: float | None
    """The judged delta, lower is better, finite; None: it crashed or is pending."""
    pending: bool = False


History = Sequence[Observation]
"""Runs of a tag. Pending ones come oldest first, and what waits for a worker behind them."""


@dataclass(frozen=True)
class Scores:
    """Runs as scores: 0 is the median result, lower is better."""

    each: Sequence[float]
    """In the order of the observations."""
    mean: float
    """Of the runs that ended."""


def value_in(config: Mapping[str, Value], dimension: Dimension) -> Value | None:
    """A run's value of a dimension: from its config, else the default; None if unknown."""
    return config.get(dimension.name, dimension.default_value)


def scored(observations: History) -> Scores:
    """The score of each observation, from -LIMIT to LIMIT.

    A crash is as bad as a score can be. A pending run counts as the mean of those that ended (constant liar;
    Ginsbourger et al. 2010), so that the next proposals look elsewhere.
    """
    scale = Scale.of([o.value for o in observations if is_finished(o) and o.value is not None])
    ended = {
        n: LIMIT if seen.value is None else scale.score(seen.value)
        for n, seen in enumerate(observations)
        if not seen.pending
    }
    mean = fmean(ended.values()) if ended else 0.0
    return Scores([ended.get(n, mean) for n in range(len(observations))], mean)


def is_finished(seen: Observation) -> bool:
    return seen.value is not None and not seen.pending


def shrunk(total: float, n: int, mean: float, weight: float) -> float:
    """Mean of `n` scores with this sum, shrunk to the overall mean as if `weight` more runs had it."""
    return (total + weight * mean) / (n + weight)


@dataclass(frozen=True)
class Scale:
    """Centre and spread of results."""

    middle: float
    spread: float
    """Robust standard deviation; 0: all results are equal."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Scale:
        """Median and median absolute deviation; of the deviations that are not 0, where most results are equal."""
        if not values:
            return cls(0.0, 0.0)
        bounded = [_bounded(value) for value in values]
        middle = median(bounded)
        apart = [abs(value - middle) for value in bounded]
        usual = median(apart) or median([a for a in apart if a] or [0.0])
        return cls(middle, NORMAL * usual)

    def score(self, value: float) -> float:
        return SPREAD * self.apart(value, MOST_APART)

    def apart(self, value: float, most: float) -> float:
        """How many spreads a value lies above the middle, from `-most` to `most`."""
        if not self.spread:
            return 0.0 if value == self.middle else most if value > self.middle else -most
        return min(max((_bounded(value) - self.middle) / self.spread, -most), most)


def _bounded(value: float) -> float:
    return min(max(value, -LARGEST), LARGEST)


# -- What samplers propose: configs to run, with how much their results matter.

LEAST: Mapping[SwarmStrategy, float] = {
    "moonshot": 0.1,
    "investigate": 0.3,
    "exploit": 0.4,
    "converge": 0.5,
    "falsify": 0.6,
    "validate": 0.6,
    "decision_sprint": 0.75,
}
"""Lowest priority of a strategy's proposals."""
PROMISING = 0.2
"""What the most promising proposal of a strategy has above its least."""


@dataclass(frozen=True)
class ConfigProposal:
    config: Mapping[str, Value]
    priority: float
    """0 to 1: how much its result matters; see `priority_of`."""
    why: str
    """A few words for people."""


class ConfigSampler(ABC):
    """Proposes configs; it keeps nothing between two calls."""

    @abstractmethod
    def propose(
        self, dimensions: Sequence[Dimension], observations: History, shape: Shape, count: int, rng: Random
    ) -> list[ConfigProposal]:
        """`count` configs within the shape, each valid and with every dimension; some may be equal."""

    def believed_best(
        self, dimensions: Sequence[Dimension], observations: History
    ) -> Mapping[str, Value] | None:
        """The presumed best config, which may never have run; None: the tag's best."""
        return None


def priority_of(least: float, promise: float) -> float:
    """least + 0.2 x promise, with the promise from 0 to 1: the chance to beat the mean, or the place in a ranking.

    `least`: see `LEAST` and `NEIGHBOUR`. So only a sprint is worth 4 repeats, and configs that explore get 1.
    """
    return min(1.0, least + PROMISING * promise)


def drawn_proposal(dimensions: Sequence[Dimension], shape: Shape, rng: Random, why: str) -> ConfigProposal:
    """A config at random within a shape, at its strategy's least priority; no model is asked."""
    return ConfigProposal(drawn_config(dimensions, shape, rng), LEAST[shape.strategy], why)


class AtRandom(ConfigSampler):
    """Draws configs at random within a shape, whatever was measured. It knows no best config.

    What looks for good values would seldom draw where they are bad, and a claim could not be judged there.
    """

    def propose(
        self, dimensions: Sequence[Dimension], observations: History, shape: Shape, count: int, rng: Random
    ) -> list[ConfigProposal]:
        return [drawn_proposal(dimensions, shape, rng, "drawn at random") for _ in range(count)]


# -- Promotion: neighbours of the configs that are best by the mean of their runs.

TOP = 0.2
"""Share of the configs that get neighbours."""
PRIOR_RUNS = 2.0
"""Weight of the overall mean in a config's mean, in runs: it pulls one lucky run more than four good ones."""
NEIGHBOUR = 0.6
"""Lowest priority of a neighbour."""
STEP = 1 / 10
"""Largest distance of a neighbour from its config, as a share of the range."""
OTHER_CATEGORY = 0.3
"""Share of the neighbours for which a categorical is among the dimensions that may differ."""
TRIES = 8
"""Draws until a value differs from the config's own; a short range has few others."""
ANYWHERE = Shape("investigate")


@dataclass
class _Seen:
    config: Mapping[str, Value]
    total: float = 0.0
    runs: int = 0
    finished: bool = False


def promoted(
    observations: History,
    dimensions: Sequence[Dimension],
    rng: Random,
    shape: Shape = ANYWHERE,
    count: int | None = None,
) -> list[ConfigProposal]:
    """One neighbour of each of the best configs, or of `count` random ones of them; the best config's comes first.

    A neighbour differs in one or two free dimensions of the shape, and honours the shape's constraint.
    """
    best = top_configs(observations, dimensions)
    places: Sequence[int] = range(len(best))
    if count is not None and count < len(best):
        places = sorted(rng.sample(places, count))
    return [
        ConfigProposal(
            _neighbour(best[place], dimensions, shape, rng),
            priority_of(NEIGHBOUR, 1 - place / len(best)),
            f"near the config that is number {place + 1} by its mean",
        )
        for place in places
    ]


def top_configs(observations: History, dimensions: Sequence[Dimension]) -> list[Mapping[str, Value]]:
    """The best fifth of the configs that finished a run, by their shrunken mean score; the best first."""
    scores = scored(observations)
    found: dict[str, _Seen] = {}
    for seen, score in zip(observations, scores.each, strict=True):
        if not seen.pending:
            config = normalised(seen.config, dimensions)
            one = found.setdefault(canonical(config), _Seen(config))
            one.total, one.runs = one.total + score, one.runs + 1
            one.finished = one.finished or is_finished(seen)
    finished = [one for one in found.values() if one.finished]
    finished.sort(key=lambda one: shrunk(one.total, one.runs, scores.mean, PRIOR_RUNS))
    return [one.config for one in finished[: math.ceil(TOP * len(finished))]]


def _neighbour(
    config: Mapping[str, Value], dimensions: Sequence[Dimension], shape: Shape, rng: Random
) -> dict[str, Value]:
    wide = replace(shape, strategy="investigate", center=config)
    freedoms = freedoms_of(dimensions, wide)
    varied = varied_names(freedoms, wide, rng)
    ranges = [f.dimension.name for f in freedoms if f.dimension.name in varied and f.room.spans]
    others = [f.dimension.name for f in freedoms if f.dimension.name in varied and f.room.choices]
    may_move = ranges + [name for name in others if not ranges or rng.random() < OTHER_CATEGORY]
    moved = rng.sample(may_move, min(len(may_move), rng.choice((1, 2))))
    return {
        f.dimension.name: _moved(f.room, f.fixed, rng) if f.dimension.name in moved else f.fixed
        for f in freedoms
    }


def _moved(room: Room, value: Value, rng: Random) -> Value:
    """Another value near this one, or any other value of a choice."""
    near = room if room.choices or isinstance(value, bool | str) else room.near(value, STEP)
    drawn = value
    for _ in range(TRIES):
        drawn = near.drawn(rng)
        if drawn != value or type(drawn) is not type(value):
            break
    return drawn


# -- How often a config may run, and its fingerprint: equal for configs that set a train.py to the same values.

REPEATS = ((0.85, 4), (0.70, 3), (0.55, 2))
"""Lowest priority for a number of runs; 1 run below them all."""
REPEATING: frozenset[SwarmStrategy] = frozenset({"falsify", "validate", "decision_sprint"})
"""Strategies that compare means of few configs, and so need repeats."""


@dataclass(frozen=True)
class RunCounts:
    trials: int = 0
    """Runs that ended in any way."""
    in_flight: int = 0
    """Runs that have not ended, and queued proposals."""

    @property
    def all(self) -> int:
        return self.trials + self.in_flight


def desired_repeats(priority: float) -> int:
    """Number of runs that a priority (0 to 1) deserves."""
    return next((repeats for least, repeats in REPEATS if priority >= least), 1)


def may_run(
    tried: RunCounts,
    priority: float,
    strategy: SwarmStrategy,
    duplicates: Duplicates,
    *,
    is_of_claim: bool = False,
) -> bool:
    """Whether a config may run once more.

    `max_trials` holds under every strategy and counts runs in flight, too. It is the only limit of a repeating
    strategy: workers would be idle if one repeat waited for another. Other strategies run a config as often as its
    priority deserves, and at most `max_inflight` times at once.

    `is_of_claim`: no limit holds for configs that test a claim beside reference runs. A dimension with few values has
    few configs, and limits would run its worst values as often as its best.
    """
    if is_of_claim:
        return True
    if tried.all >= duplicates.max_trials:
        return False
    if strategy in REPEATING:
        return True
    return tried.in_flight < duplicates.max_inflight and tried.all < desired_repeats(priority)


def canonical(config: Mapping[str, Value]) -> str:
    """A config as JSON: names sorted, no spaces, floats as `repr`, 0.0 for -0.0. 1 and 1.0 differ here."""
    plain = {name: value + 0.0 if type(value) is float else value for name, value in config.items()}
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)


def normalised(config: Mapping[str, Value], dimensions: Sequence[Dimension]) -> dict[str, Value]:
    """A config with numbers in the types of its dimensions: 1.0 for a float, 2 for an int.

    Values outside a range and names without a dimension stay as they are: a tag's dimensions may have changed.
    """
    known = {d.name: d for d in dimensions}
    return {
        name: _typed(known[name], value) if name in known else value  # true is never 1
        for name, value in config.items()
    }


def fingerprint(config: Mapping[str, Value], dimensions: Sequence[Dimension]) -> str:
    """SHA-256 of the normalised config's canonical text, 64 hexadecimal digits."""
    return hashlib.sha256(canonical(normalised(config, dimensions)).encode()).hexdigest()


def _typed(dimension: Dimension, value: Value) -> Value:
    if dimension.categories is not None:
        return next((category for category in dimension.categories if same(category, value)), value)
    if isinstance(value, bool | str) or abs(value) > LARGEST_INT:
        return value
    if dimension.dtype != "int":
        return float(value)
    return int(value) if value == int(value) else value
