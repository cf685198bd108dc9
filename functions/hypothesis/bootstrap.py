"""hypothesis::bootstrap adapts a tag's hypotheses to its dimensions; each dimension gets a first one."""

from __future__ import annotations

from functions.contract import Command, On, Response, function
from functions.rules.beliefs.dimension_claims import adapted, begun
from functions.rules.beliefs.sharing import shared_out, texts
from state.change import Change
from state.hypotheses import Hypotheses
from state.ids import Tag as TagName


class Bootstrap(Command):
    tag: TagName


class Bootstrapped(Response):
    added: list[str]
    """Ids of the new hypotheses."""


@function(
    "hypothesis::bootstrap",
    On("dimension.defined", "dimension.frozen", "dimension.unfrozen"),
    role="operator",
    writes=True,
)
async def bootstrap(request: Bootstrap, hypotheses: Hypotheses) -> Bootstrapped:
    """Add "<DIM> matters" for each dimension without a hypothesis, and renew invalid reference configs."""

    async def decide(change: Change) -> Bootstrapped:
        facts = await hypotheses.all(request.tag, change)
        new, changed = begun(facts), adapted(facts)
        if not new and not changed:
            return change.idle(Bootstrapped(added=[]))
        after = {h.hypothesis_id: h for h in (*facts.open, *changed, *new)}
        populations = texts(shared_out(facts, [*after.values()], facts.best_config))
        hypotheses.propose(change, facts, new, populations, changed=changed)
        return Bootstrapped(added=[h.hypothesis_id for h in new])

    return await hypotheses.change(decide, in_turn=request.tag)
