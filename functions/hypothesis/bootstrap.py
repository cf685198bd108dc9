"""hypothesis::bootstrap has a tag begin with one hypothesis for each of its dimensions."""

from __future__ import annotations

from functions.contract import Command, On, Response, function
from functions.rules.beliefs.bootstrap import bootstrapped
from functions.rules.beliefs.sharing import reference_config, shared_out, texts
from state.hypotheses import Hypotheses
from state.ids import Tag as TagName


class Bootstrap(Command):
    tag: TagName


class Bootstrapped(Response):
    added: list[str]
    """Ids of the hypotheses that are new."""


@function(
    "hypothesis::bootstrap", On("dimension.defined", "dimension.unfrozen"), role="operator", writes=True
)
async def bootstrap(request: Bootstrap, hypotheses: Hypotheses) -> Bootstrapped:
    """Claim of every dimension that has no hypothesis that it matters; safe to run twice."""
    while True:
        facts = await hypotheses.all(request.tag)
        known = {h.hypothesis_id: h.statement for h in (*facts.open, *facts.archived)}
        reference = reference_config(facts.dimensions, facts.best_config)
        new = bootstrapped(request.tag, facts.dimensions, known, reference, facts.now)
        if not new:
            return Bootstrapped(added=[])
        populations = texts(shared_out(facts, [*facts.open, *new], facts.best_config))
        if await hypotheses.propose(facts, new, populations):
            return Bootstrapped(added=[h.hypothesis_id for h in new])
