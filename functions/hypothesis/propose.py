"""hypothesis::propose adds a hypothesis, if it passes the gate."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Call, Command, function
from functions.hypothesis.gate import EXAMPLE, PROPOSED, GateView, Proposal, gate_view, looked_at
from state.errors import Conflict
from state.hypotheses import Hypotheses
from state.ids import Tag as TagName
from state.records.hypotheses import HypothesisSource

MOST = 1000
"""Hypotheses of a tag, archived ones too: all of them are compared with what is proposed."""


class ProposeHypothesis(Command):
    tag: TagName
    proposal: Proposal = Field(max_length=20, description=PROPOSED, examples=[EXAMPLE])


@function("hypothesis::propose", role="agent", writes=True)
async def propose(request: ProposeHypothesis, call: Call, hypotheses: Hypotheses) -> GateView:
    """Add a hypothesis at P = 0.5; it has workers from the next allocation. What the gate refuses changes nothing.

    An agent's proposal is as credible as a model's: at first it counts a quarter of an operator's.
    """
    source: HypothesisSource = "operator" if call.caller.may_do_all else "llm_proposed"
    while True:
        facts = await hypotheses.all(request.tag)
        if len(facts.open) + len(facts.archived) >= MOST:
            raise Conflict(f"{request.tag!r} has {MOST} hypotheses", hint="open another tag for further ones")
        found = await looked_at(request.proposal, facts, source)
        if found.hypothesis is None:
            return gate_view(found.answer)
        if await hypotheses.propose(facts, [found.hypothesis]):
            return gate_view(found.answer, found.hypothesis.hypothesis_id)
