"""What a population does about its hypothesis: the strategy that its belief calls for, and the configs of that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from functions.rules.beliefs.influence import is_of_influence
from functions.rules.swarm.shapes import NEAR, Shape, SwarmStrategy
from state.records import Hypothesis, Value

EXPLOIT_FROM: Final = 0.65
"""P from which a claim is built on."""
MOONSHOT_BELOW: Final = 0.35
FALSIFY_BELOW: Final = 0.20
"""P below which a claim is tested to be given up."""
MOST_VARIED: Final = 3
"""Dimensions that one config varies at most, unless the claim itself is about more."""
COMPARED: Final[frozenset[SwarmStrategy]] = frozenset(
    {"investigate", "falsify", "decision_sprint", "validate"}
)
"""Strategies whose runs are compared with others for a claim: with runs of its reference config, or the
cells of a test with each other."""

REFERENCED: Final = COMPARED - {"validate"}
"""Those whose runs are compared with runs of the reference config."""


def strategy_of(hypothesis: Hypothesis, *, converged: bool = False) -> SwarmStrategy:
    """The first that applies.

    | where | strategy |
    |---|---|
    | a test is to be completed | validate |
    | its decision sprint goes on | decision_sprint |
    | it has converged | converge |
    | it is supported, or P >= 0.65 | exploit |
    | P < 0.20, and the claim names a dimension or constrains one | falsify |
    | P < 0.35, and it claims an influence: pairs are to show that it is irrelevant | falsify |
    | P < 0.35 | moonshot |
    | otherwise | investigate |
    """
    probability = hypothesis.alpha / (hypothesis.alpha + hypothesis.beta)
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
    test: tuple[Sequence[str], Mapping[str, Any]] | None = None,
) -> Shape:
    """What the configs of a hypothesis vary under a strategy, and where all else stands.

    A config varies the dimensions that the claim is about. Where these are fewer than 3, dimensions that its
    constraint names make up 3; near the best known config, any others do: what builds on the claim is to find what
    goes with it. A claim about no dimension varies 3 of the tag's in each config. The rest stands as in the reference
    config where runs are compared with it, else as in the best known config (empty: none is known).

    `test` are the dimensions that a test varies, and its values in these and in others; each config under `validate`
    is one of its cells.
    """
    constraint: Mapping[str, Any] = hypothesis.config_constraint
    free = varied_dimensions(hypothesis)
    if strategy == "validate" and test is not None:
        free, constraint = tuple(test[0]), {**constraint, **test[1]}
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
    )


def varied_dimensions(hypothesis: Hypothesis) -> tuple[str, ...]:
    """The dimensions that the claim is about, and of those that its constraint names as many as make 3 in all."""
    own = dict.fromkeys(hypothesis.dimensions)
    others = [name for name in sorted(hypothesis.config_constraint) if name not in own]
    return (*own, *others[: max(0, MOST_VARIED - len(own))])


def moonshot_shape(best_config: Mapping[str, Value]) -> Shape:
    """What workers run that test no hypothesis: 3 dimensions at the ends of their ranges, the rest at the best."""
    return Shape("moonshot", center=best_config, at_most=MOST_VARIED)
