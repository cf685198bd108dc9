"""search::adapt moves a tag's strategy after what its last experiments showed."""

from __future__ import annotations

from functions.contract import Command, On, function
from functions.rules.keeps.verdict import near_band
from functions.rules.search.strategy import next_direction
from functions.views.strategies import StrategyView, strategy_view
from state.experiments import Experiments
from state.ids import Tag as TagName
from state.policies import Policies
from state.records import Strategy
from state.tags import Strategies, Tags


class Adapt(Command):
    tag: TagName


class Adapted(StrategyView):
    changed: bool
    """Whether the mode is another one now."""


@function("search::adapt", On("experiment.finished", debounce="tag"), role="agent", writes=True)
async def adapt(
    request: Adapt,
    tags: Tags,
    strategies: Strategies,
    policies: Policies,
    experiments: Experiments,
) -> Adapted:
    """Choose explore, exploit, combine or ablation from the last finished experiments; all who ask agree."""
    policy, _ = await policies.get(request.tag)
    while True:
        tag = await tags.get(request.tag)
        before = await strategies.get(request.tag)
        if tag.total < before.pinned_until or (before.decided_at == tag.total and before.version > 1):
            return Adapted(**strategy_view(before).model_dump(), changed=False)
        recent = await experiments.finished(request.tag, policy.adapt.window)
        best = await experiments.best(request.tag)
        near = 0
        if best is not None:
            band = near_band(best.val_bpb, tag.direction, policy.near_miss_margin)
            _, near = await experiments.near_misses(request.tag, *band, limit=1)
        found = next_direction(recent, tag.total, near, policy.adapt)
        after = Strategy(
            mode=found.mode,
            explore_ratio=found.explore_ratio,
            temperature=found.temperature,
            reason=found.reason,
            decided_at=tag.total,
        )
        if await strategies.replace(request.tag, before, after):
            now = await strategies.get(request.tag)
            return Adapted(**strategy_view(now).model_dump(), changed=after.mode != before.mode)
