"""token::revoke shuts somebody out."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Command, Response, function
from state.ids import Id
from state.records import stamp
from state.tokens import Tokens


class Revoke(Command):
    id: Id = Field(description="the token's: token::list shows them", examples=["mfrggzdfmz"])


class Revoked(Response):
    id: str
    name: str
    revoked_at: str


@function("token::revoke", role="operator", writes=True)
async def revoke(request: Revoke, tokens: Tokens) -> Revoked:
    """End a token at once and for good: its calls, its sessions, and within two seconds its open streams."""
    await tokens.revoke(await tokens.get(request.id))
    token = await tokens.get(request.id)
    return Revoked(id=token.id, name=token.name, revoked_at=stamp(token.revoked_at or 0.0))
