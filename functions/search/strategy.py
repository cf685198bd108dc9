"""search::strategy shows how a tag's search goes on."""

from __future__ import annotations

from functions.contract import Request, function
from functions.views.strategies import StrategyView, strategy_view
from state.ids import Tag
from state.tags import Strategies


class ReadStrategy(Request):
    tag: Tag


@function("search::strategy", role="viewer")
async def strategy(request: ReadStrategy, strategies: Strategies) -> StrategyView:
    """The current mode with its parameters and the reason for it."""
    return strategy_view(await strategies.get(request.tag))
