"""Strategies in answers."""

from __future__ import annotations

from pydantic import BaseModel

from state.records import Strategy, stamp, view_of


class StrategyView(BaseModel):
    """The mode of a search with its parameters and the reason for it."""

    mode: str
    explore_ratio: float
    temperature: float
    reason: str
    updated_at: str
    version: int
    pinned_until: int | None
    """Finished experiments up to which an operator's choice stands; null where none does."""


def strategy_view(found: Strategy) -> StrategyView:
    return view_of(
        StrategyView, found, updated_at=stamp(found.updated_at), pinned_until=found.pinned_until or None
    )
