"""event::ticket opens one event stream where no header can be sent."""

from __future__ import annotations

from functions.contract import Call, Command, Response, function
from state.errors import Conflict
from state.tokens import TICKET_S, Tokens


class OpenTicket(Command):
    """Nothing to ask for."""


class Ticket(Response):
    ticket: str
    """For `GET /api/events?ticket=`, once."""
    expires_in_s: int


@function("event::ticket", role="viewer", writes=True, keeps_answer=False)
async def ticket(request: OpenTicket, call: Call, tokens: Tokens) -> Ticket:
    """A name that opens one event stream within 30 seconds. It keeps tokens out of URLs."""
    if call.proof is None:
        raise Conflict("no token was sent, and none is needed", hint="GET /api/events without a ticket")
    return Ticket(ticket=await tokens.open_ticket(call.proof), expires_in_s=TICKET_S)
