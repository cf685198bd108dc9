"""hypothesis::propose adds a hypothesis, if it passes the gate."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Call, Command, function
from functions.hypothesis._entering import entered
from functions.hypothesis.gate import EXAMPLE, PROPOSED, GateView, Proposal
from state.hypotheses import Hypotheses
from state.ids import Tag as TagName
from state.records.hypotheses import HypothesisSource


class ProposeHypothesis(Command):
    tag: TagName
    proposal: Proposal = Field(max_length=20, description=PROPOSED, examples=[EXAMPLE])


@function("hypothesis::propose", role="agent", writes=True)
async def propose(request: ProposeHypothesis, call: Call, hypotheses: Hypotheses) -> GateView:
    """Add a hypothesis at P = 0.5 if the gate accepts it. It gets workers from the next allocation.

    An agent's proposal is as credible as a language model's: at first a quarter of an operator's.
    """
    source: HypothesisSource = "operator" if call.caller.may_do_all else "llm_proposed"
    return await entered(request.tag, request.proposal, source, hypotheses)
