"""Settings, finished runs and early-stopping survivors for the rules of evidence. Strategies of populations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from functions.swarm.rules.shapes import NEAR, Shape, SwarmStrategy
from state.records import Dimension, Hypothesis, HypothesisClaim, Value

if TYPE_CHECKING:
    from functions.beliefs.rules.specs import Spec

# -- What the rules of evidence work on: the settings of a tag, a finished run, and the survivors of early stopping.

EvidencePolicy = Literal["matched", "baseline"]
RunEnd = Literal["value", "crash", "stopped", "failed"]
"""value: with a result. crash: by the config's own fault, timeouts included. stopped: early, for its rank. failed: by
the fault of the worker or the lab."""

BANDS = 6
"""Bands of ranks. The rule `stochastic` stops runs in two of them."""
PRIOR = 0.25
"""Win share of a band without runs."""
PRIOR_WEIGHT = 0.5
"""Weight of the prior: about one run, by the weights that runs have under that rule."""


@dataclass(frozen=True)
class Survivors:
    """Runs of a tag that might have been stopped in one band of ranks at one bucket, and went on.

    A draw stops some runs of a rank and lets the others go on. So the survivors estimate how the stopped runs would
    have ended. Leaving stopped runs out would make each claim look better than it is, because losers are missing.
    """

    wins: float = 0.0
    """Sum of their weighted outcomes."""
    weight: float = 0.0
    """Sum of their weights."""

    @property
    def share(self) -> float:
        """Win share of the runs that were stopped there, 0 to 1."""
        return (self.wins + PRIOR * PRIOR_WEIGHT) / (self.weight + PRIOR_WEIGHT)

    def with_(self, outcome: float, chance: float) -> Survivors:
        """With one more survivor, which had this probability of being stopped.

        It stands for chance / (1 - chance) stopped runs, since lower ranks of a band are stopped more often (Horvitz
        and Thompson, J. Am. Stat. Assoc. 47, 1952). `outcome`, 0 to 1, is a share if the run was stopped at a later
        bucket.
        """
        weight = chance / (1 - chance)
        return Survivors(self.wins + weight * outcome, self.weight + weight)


def band_of(rank: float) -> int:
    """The band, 0 to 5, of a rank from 0 (worst) to 100."""
    return min(int(rank * BANDS / 100), BANDS - 1)


@dataclass(frozen=True)
class BeliefTerms:
    """What counts as evidence in a tag."""

    policy: EvidencePolicy = "matched"
    sigma: float | None = None
    """Standard deviation of two runs of one config on one worker; None: not known yet."""
    usual_distance: float | None = None
    """Median distance of two runs of one config on one worker; None: not known yet."""
    repeats: int = 0
    """Degrees of freedom of sigma."""
    dimensions: Sequence[Dimension] = ()
    workers: int = 1


@dataclass(frozen=True)
class FinishedRun:
    """A run of a swarm's worker that has ended."""

    experiment_id: str
    worker_id: str
    config: Mapping[str, Value]
    """The value of every dimension."""
    strategy: SwarmStrategy
    hypothesis_id: str | None
    ended: RunEnd
    judged: float | None = None
    """Its value less its worker's baseline. Lower is better, whatever the metric's direction."""
    key: str = ""
    """Comparability key: runs with equal keys ran under the same conditions."""
    survivors: Survivors = Survivors()
    """Of a stopped run: the survivors of its bucket and rank band."""


# -- Claims of influence: some dimensions matter, whichever of their values are better.
#
# Such a claim names dimensions and has no constraint. With a good reference config, random values of an important
# dimension lose as often as they win. So a pair wins if its two runs differ, in either direction, by more than the
# median distance of two runs of one config. Without an influence that is an even chance.
#
# The verdict against such a claim is irrelevance, not refutation: a win share below one half only says that the
# noise was overestimated. Stopped and crashed runs have no distance and are no evidence.


def is_of_influence(claim: HypothesisClaim) -> bool:
    """Whether it claims that dimensions matter, without a direction."""
    return bool(claim.dimensions) and not claim.config_constraint and claim.test_spec is None


def outcome_of_distance(contrast: float, terms: BeliefTerms) -> float | None:
    """1 where a pair differs by more than the median distance of noise; else 0. None: the noise is not known."""
    if terms.usual_distance is None:
        return None
    return float(abs(contrast) > terms.usual_distance)


# -- The strategy of a population, by its hypothesis' belief, and the configs that the strategy allows.

EXPLOIT_FROM: Final = 0.65
"""P from which workers build on a claim."""
MOONSHOT_BELOW: Final = 0.35
FALSIFY_BELOW: Final = 0.20
"""P below which runs try to refute a claim."""
MOST_VARIED: Final = 3
"""Most dimensions that one config varies, unless the claim itself is about more."""
COMPARED: Final[frozenset[SwarmStrategy]] = frozenset(
    {"investigate", "falsify", "decision_sprint", "validate"}
)
"""Strategies whose runs are compared with reference runs, or, in a test, with other cells."""

REFERENCED: Final = COMPARED - {"validate"}
"""Strategies whose runs are compared with reference runs."""


def strategy_of(hypothesis: Hypothesis, *, converged: bool = False) -> SwarmStrategy:
    """The first strategy that applies.

    | where | strategy |
    |---|---|
    | it has a test to complete | validate |
    | a decision sprint is running | decision_sprint |
    | it has converged | converge |
    | it is supported, or P >= 0.65 | exploit |
    | P < 0.20, and the claim names a dimension or constrains one | falsify |
    | P < 0.35, and it claims an influence: pairs can show irrelevance | falsify |
    | P < 0.35 | moonshot |
    | otherwise | investigate |
    """
    probability = hypothesis.probability
    if hypothesis.phase == "validation":
        return "validate"
    if hypothesis.sprint_left > 0:
        return "decision_sprint"
    if converged:
        return "converge"
    if hypothesis.status == "supported" or probability >= EXPLOIT_FROM:
        return "exploit"
    if probability < FALSIFY_BELOW and (hypothesis.dimensions or hypothesis.config_constraint):
        return "falsify"
    if probability < MOONSHOT_BELOW:
        return "falsify" if is_of_influence(hypothesis) else "moonshot"
    return "investigate"


def shape_of(
    hypothesis: Hypothesis,
    strategy: SwarmStrategy,
    best_config: Mapping[str, Value],
    test: Spec | None = None,
) -> Shape:
    """The dimensions that configs of a strategy vary, and the values of all others.

    A config varies the dimensions of the claim. If these are fewer than 3, dimensions of its constraint make up 3;
    near the best known config any others do, to find good combinations with the claim. A claim about no dimension
    varies 3 of the tag's dimensions in each config. The other values are those of the reference config where runs
    are compared with it, else those of the best known config (empty: none is known).

    Under `validate` each config is a cell of the `test`.
    """
    constraint: Mapping[str, Any] = hypothesis.config_constraint
    own = dict.fromkeys(hypothesis.dimensions)
    others = [name for name in sorted(constraint) if name not in own]
    free = (*own, *others[: max(0, MOST_VARIED - len(own))])
    if strategy == "validate" and test is not None:
        cells = {name: list(values) for name, values in test.axes}
        free, constraint = tuple(cells), {**constraint, **test.fixed, **cells}
    reference: Mapping[str, Value] = hypothesis.reference_config
    center = reference if strategy in COMPARED else best_config
    if strategy in NEAR and hypothesis.dimensions:
        return Shape(
            strategy,
            constraint=constraint,
            center=center or reference,
            at_most=max(MOST_VARIED, len(free)),
            first=free,
        )
    return Shape(
        strategy,
        free=free or None,
        constraint=constraint,
        center=center or reference or best_config,
        at_most=None if free else MOST_VARIED,
        lacking=hypothesis.lacking,
    )
