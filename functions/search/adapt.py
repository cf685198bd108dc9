"""search::adapt moves a tag's strategy after what its last experiments showed."""

from __future__ import annotations

from functions.contract import Command, On, function
from functions.rules.keeps.noise import near_scores
from functions.rules.search.strategy import is_due, next_strategy
from functions.views.strategies import StrategyView, strategy_view
from state.experiments import Experiments
from state.ids import Tag as TagName
from state.tags import Strategies


class AdaptStrategy(Command):
    tag: TagName


class Adapted(StrategyView):
    changed: bool
    """Whether the mode is another one now."""


@function("search::adapt", On("experiment.finished", debounce="tag"), role="agent", writes=True)
async def adapt(request: AdaptStrategy, strategies: Strategies, experiments: Experiments) -> Adapted:
    """Choose explore, exploit, combine or ablation from the last finished experiments; all who ask agree."""
    while True:
        facts = await strategies.facts(request.tag)
        before, finished, policy = facts.strategy, facts.finished, facts.policy
        if not is_due(before, finished):
            return Adapted(**strategy_view(before).model_dump(), changed=False)
        band = None
        if facts.best is not None:
            band = near_scores(facts.best, facts.direction, policy.near_miss_margin, facts.noise)
        recent, near = await experiments.ends(request.tag, policy.adapt.ends_read, band)
        after = next_strategy(recent, finished, near, policy.adapt)
        if (now := await strategies.replace(request.tag, before, after)) is not None:
            return Adapted(**strategy_view(now).model_dump(), changed=after.mode != before.mode)
