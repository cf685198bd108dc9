"""search::adapt moves a tag's strategy after what its last experiments showed."""

from __future__ import annotations

from functions.contract import Command, On, function
from functions.rules.keeps.noise import near_scores
from functions.rules.search.strategy import is_due, next_strategy
from functions.views.strategies import StrategyView, strategy_view
from state.experiments import Experiments
from state.ids import Tag as TagName
from state.records import Strategy
from state.tags import Strategies, StrategyFacts


class AdaptStrategy(Command):
    tag: TagName


class Adapted(StrategyView):
    changed: bool
    """Whether the mode is another one now."""


@function("search::adapt", On("experiment.finished", debounce="tag"), role="agent", writes=True)
async def adapt(request: AdaptStrategy, strategies: Strategies, experiments: Experiments) -> Adapted:
    """Choose explore, exploit, combine or ablation from the last finished experiments; all who ask agree."""

    async def due(facts: StrategyFacts) -> Strategy | None:
        if not is_due(facts.strategy, facts.finished):
            return None
        band, policy = None, facts.policy
        if facts.best is not None:
            band = near_scores(facts.best, facts.direction, policy.near_miss_margin, facts.noise)
        recent, near = await experiments.ends(request.tag, policy.adapt.ends_read, band)
        return next_strategy(recent, facts.finished, near, policy.adapt)

    before, now = await strategies.replace(request.tag, due)
    return Adapted(**strategy_view(now).model_dump(), changed=now.mode != before.mode)
