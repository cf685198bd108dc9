"""The strategy of a population, by its hypothesis' belief, and the configs that the strategy allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from functions.beliefs.rules.terms import is_of_influence
from functions.swarm.rules.shapes import NEAR, Shape, SwarmStrategy
from state.records import Hypothesis, Value

if TYPE_CHECKING:
    from functions.beliefs.rules.specs import Spec

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
