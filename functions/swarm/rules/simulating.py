"""Simulated runs: learning curves with planted effects of constants, hidden constants, and faults of workers.

A lower value is better. The unchanged train.py ends at `UNTUNED`. The effects of a config add up, so a search can
find each of them. A found effect that was not planted is an error of the search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from random import Random


START = 1.6
"""The metric before the first step, whatever the config."""
UNTUNED = 1.0
"""The value of the unchanged train.py."""
NOISE = 0.002
"""Standard deviation between two runs of one config, at their end."""
NOISE_BEFORE = 4.0
"""Additional noise at the beginning, in units of `NOISE`. It falls as the run learns."""
FARTHEST = 2.0
"""Widths beyond which a constant does no more harm."""
DIVERGES_BEYOND = 1.8
"""Widths above the best learning rate from which training diverges."""
DIVERGED = 1.0
"""Value that is added to a diverged run."""
UNKNOWN = 0.02
"""Largest effect of a constant that has no planted one: its name decides which values are good."""

LATE_BY = (0.4, 1.2)
"""Delay of a late result: least and most, as shares of the time after which a silent run is lost."""

Shape = Literal["quick", "steady", "late", "slow", "diverging"]
CONVERGING: tuple[Shape, ...] = ("quick", "steady", "late", "slow")


@dataclass(frozen=True)
class Peak:
    """A number whose effect is best at one value: -`gain` there, 0 one `width` away, in factors of ten."""

    best: float
    width: float
    gain: float

    def distance(self, value: float) -> float:
        """Widths above the best value; below 0 under it."""
        return math.log10(value / self.best) / self.width if value > 0 else -FARTHEST

    def effect(self, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return 0.0
        return self.gain * (min(abs(self.distance(float(value))), FARTHEST) ** 2 - 1)


@dataclass(frozen=True)
class Choices:
    """Effect of each category; others have none."""

    effects: Mapping[Any, float] = field(default_factory=dict)

    def effect(self, value: Any) -> float:
        return self.effects.get(value, 0.0)


Effect = Peak | Choices
LEARNING_RATE = Peak(3e-3, 0.6, 0.040)
NONE = Choices()
PLANTED: Mapping[str, Effect] = {
    # the profile mnist
    "LR": LEARNING_RATE,
    "HIDDEN_SIZE": Peak(256, 0.5, 0.020),
    "N_LAYERS": Peak(2, 0.5, 0.010),
    "OPTIMIZER": Choices({"adam": -0.010, "sgd": 0.010}),
    "BATCH_SIZE": Peak(64, 0.8, 0.004),
    "WEIGHT_DECAY": NONE,
    # the profile nanochat
    "learning_rate": LEARNING_RATE,
    "muon_lr": Peak(2e-3, 0.8, 0.015),
    "DEPTH": Peak(12, 0.3, 0.020),
    "TOTAL_BATCH_SIZE": Peak(65536, 0.8, 0.006),
    "WINDOW_PATTERN": Choices({"SSL": -0.006, "L": 0.006}),
    "weight_decay": Peak(1e-2, 1.5, 0.003),
    "DEVICE_BATCH_SIZE": NONE,
    "head_dim": NONE,
}
"""The true effect of each constant of the two profiles; `NONE`: it is irrelevant."""


def simulate_metric(config: Mapping[str, Any], progress: float, rng: Random | None = None) -> float:
    """The metric of a run at a share of its budget: 0 to 1, or more where it was extended.

    Without `rng` it is the mean of many runs; with one, that of a run, whose noise falls on the way.
    """
    shape = shape_of(config)
    left = _left(shape, progress)
    value = final(config) + (START - final(config)) * left
    return value if rng is None else value + rng.gauss(0.0, NOISE * (1 + NOISE_BEFORE * max(0.0, left)))


def is_planted(name: str) -> bool:
    """Whether this constant matters in the simulation, or one that it does not know, by a little."""
    return PLANTED.get(name) is not NONE


def final(config: Mapping[str, Any]) -> float:
    """Where a run ends at the end of its budget, without noise."""
    value = UNTUNED + sum(_effect(name, given) for name, given in config.items())
    return value + DIVERGED if _diverges(config) else value


def shape_of(config: Mapping[str, Any]) -> Shape:
    """How the metric falls: the same config always learns in the same way."""
    if _diverges(config):
        return "diverging"
    return CONVERGING[int(_drawn(sorted(config.items()), "shape") * len(CONVERGING))]


def _diverges(config: Mapping[str, Any]) -> bool:
    rates = [v for name, v in config.items() if PLANTED.get(name) is LEARNING_RATE]
    return any(isinstance(v, int | float) and LEARNING_RATE.distance(v) > DIVERGES_BEYOND for v in rates)


def _left(shape: Shape, progress: float) -> float:
    """The share of its way that is still to come: 1 at the start, 0 at the end of the budget."""
    match shape:
        case "quick":
            return (math.exp(-6 * progress) - math.exp(-6)) / (1 - math.exp(-6))
        case "slow":
            return (1 / math.sqrt(1 + 9 * progress) - 1 / math.sqrt(10)) / (1 - 1 / math.sqrt(10))
        case "late":
            return (_logistic(progress) - _logistic(1.0)) / (_logistic(0.0) - _logistic(1.0))
        case "steady":
            return (math.exp(-2 * progress) - math.exp(-2)) / (1 - math.exp(-2))
        case "diverging":  # its end lies above its start
            return (1 - progress) ** 2


def _logistic(progress: float) -> float:
    return 1 / (1 + math.exp(12 * (progress - 0.5)))


def _effect(name: str, value: Any) -> float:
    known = PLANTED.get(name)
    if known is not None:
        return known.effect(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return UNKNOWN * (2 * _drawn(name, value) - 1)
    return -UNKNOWN * math.cos(2 * math.pi * (math.log10(float(value)) / 3 - _drawn(name, "best")))


def _drawn(*of: Any) -> float:
    """A number of [0, 1) that is always the same for the same values."""
    return int.from_bytes(sha256(repr(of).encode()).digest()[:6], "big") / 2**48


@dataclass(frozen=True)
class Hidden:
    """A constant that no dimension varies at first. Configs without it run with its default."""

    name: str
    does: str
    """Its true effect, in words."""
    space: Mapping[str, Any]
    default: float | int

    def effect(self, config: Mapping[str, Any]) -> float:
        """Difference of the final value from that at the default."""
        planted = PLANTED[self.name]
        return planted.effect(config.get(self.name, self.default)) - planted.effect(self.default)

    @property
    def proposal(self) -> dict[str, Any]:
        """The fields of `dimension::propose`, but for the tag."""
        rationale = "a scripted author tries what it does"
        return {"name": self.name, **self.space, "default_value": self.default, "rationale": rationale}


HELPS = Hidden("muon_lr", "helps, by 0.011", {"dtype": "float_log", "min": 1e-4, "max": 1e-1}, 1e-2)
DOES_NOTHING = Hidden("head_dim", "does nothing", {"dtype": "int", "min": 16, "max": 256}, 64)


def metric_with(
    hidden: Sequence[Hidden], config: Mapping[str, Any], progress: float, rng: Random | None = None
) -> float:
    """As `simulate_metric`, of a train.py with these constants too, whose effect grows with the progress."""
    names = {each.name for each in hidden}
    told = {name: value for name, value in config.items() if name not in names}
    effect = sum(each.effect(config) for each in hidden)
    return simulate_metric(told, progress, rng) + min(progress, 1.0) * effect


@dataclass(frozen=True)
class Faults:
    """Shares of runs, of workers and of requests with which something goes wrong."""

    crashes: float = 0.03
    """Share of runs."""
    stragglers: float = 0.05
    """Share of runs with a late result."""
    deaths: float = 0.10
    """Share of workers that die in the middle of a run."""
    duplicates: float = 0.05
    """Share of requests that are sent twice at once."""
    reordered: float = 0.05
    """Share of ticks that are sent after the next one."""
    repeats: float = 0.05
    """Share of results that are sent again after their acknowledgement, with another tick."""
    losses: float = 0.0
    """Share of answers that get lost. The request is repeated."""


@dataclass(frozen=True)
class Fate:
    crashes_at: float | None = None
    """Share of its budget."""
    is_late: bool = False
    late_by: float = 0.0
    """Delay of the result, as a share of the time after which a silent run is lost."""


@dataclass(frozen=True)
class Death:
    """Where a worker dies."""

    nth: int
    """Of its runs, from 0."""
    progress: float
    """After the last tick up to this share of it."""


def fate(faults: Faults, rng: Random) -> Fate:
    """What goes wrong with the next run; a crash is not late, too."""
    crash, straggle = rng.random() < faults.crashes, rng.random() < faults.stragglers
    at, by = rng.uniform(0.05, 0.95), rng.uniform(*LATE_BY)
    if crash:
        return Fate(crashes_at=at)
    return Fate(is_late=True, late_by=by) if straggle else Fate()


def deaths(faults: Faults, workers: int, rounds: int, rng: Random) -> Mapping[int, Death]:
    """Which workers die, by their number from 0: exactly the share that was asked for, rounded up."""
    dying = rng.sample(range(workers), min(workers, math.ceil(faults.deaths * workers)))
    return {n: Death(rng.randrange(rounds), rng.uniform(0.05, 0.95)) for n in sorted(dying)}
