"""search::set_strategy lets an operator, or the agents of an open lab, choose how a search goes on."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Command, Line, function
from functions.views.strategies import StrategyView, strategy_view
from state.ids import Tag as TagName
from state.records import Mode, Strategy
from state.tags import Strategies, StrategyFacts


class SetStrategy(Command):
    tag: TagName
    mode: Mode = Field(description="how the search goes on")
    reason: Line = Field(description="why, for the agents", examples=["three runs in a row were duplicates"])
    explore_ratio: float = Field(0.7, ge=0, le=1, description="share of ideas that should be new ground")
    temperature: float = Field(1.0, ge=0, le=10, description="how bold ideas should be")
    pin_for: int = Field(
        5,
        ge=0,
        le=100_000,
        description="experiments that finish before adapt may change it",
        examples=[5],
    )


@function("search::set_strategy", role=("local", "operator"), writes=True)
async def set_strategy(request: SetStrategy, strategies: Strategies) -> StrategyView:
    """Set the mode by hand; it stands for the next `pin_for` finished experiments."""

    async def chosen(facts: StrategyFacts) -> Strategy:
        return Strategy(
            mode=request.mode,
            explore_ratio=request.explore_ratio,
            temperature=request.temperature,
            reason=request.reason,
            pinned_until=facts.finished + request.pin_for if request.pin_for else 0,
            decided_at=facts.finished,
        )

    return strategy_view((await strategies.replace(request.tag, chosen))[1])
