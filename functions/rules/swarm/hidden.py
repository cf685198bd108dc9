"""Constants that a simulated train.py has and its swarm does not vary, until an author proposes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from functions.rules.swarm.simulating import PLANTED, simulate_metric

if TYPE_CHECKING:
    from random import Random


@dataclass(frozen=True)
class Hidden:
    """A constant that stands at its default in every run whose config does not name it."""

    name: str
    does: str
    """What it truly does, in words."""
    space: Mapping[str, Any]
    """Its dtype and range."""
    default: float | int

    def effect(self, config: Mapping[str, Any]) -> float:
        """What a run ends with more, or less, than at the default."""
        planted = PLANTED[self.name]
        return planted.effect(config.get(self.name, self.default)) - planted.effect(self.default)

    @property
    def proposal(self) -> dict[str, Any]:
        """The fields of `dimension::propose`, but for the tag."""
        rationale = "a scripted author tries what it does"
        return {"name": self.name, **self.space, "default_value": self.default, "rationale": rationale}


HELPS = Hidden("muon_lr", "helps, by 0.011", {"dtype": "float_log", "min": 1e-4, "max": 1e-1}, 1e-2)
HELPS_LITTLE = Hidden(
    "TOTAL_BATCH_SIZE", "helps, by 0.003", {"dtype": "float_log", "min": 1e4, "max": 1e6}, 2.62e5
)
DOES_NOTHING = Hidden("head_dim", "does nothing", {"dtype": "int", "min": 16, "max": 256}, 64)
HURTS = Hidden("DEPTH", "hurts", {"dtype": "int", "min": 4, "max": 32}, 12)


def metric_with(
    hidden: Sequence[Hidden], config: Mapping[str, Any], progress: float, rng: Random | None = None
) -> float:
    """The metric of a run whose train.py has these constants, too; see `simulate_metric`.

    Their effect grows in proportion to the progress.
    """
    names = {each.name for each in hidden}
    told = {name: value for name, value in config.items() if name not in names}
    effect = sum(each.effect(config) for each in hidden)
    return simulate_metric(told, progress, rng) + min(progress, 1.0) * effect
