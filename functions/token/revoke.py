"""token::revoke shuts somebody out."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Command, Response, function
from functions.token._forgetting import forget_gpus_of
from functions.token._stores import Stores
from state.ids import Id
from state.records import stamp
from state.token_values import Token
from state.tokens import Tokens


class Revoke(Command):
    id: Id = Field(description="the token's: token::list shows them", examples=["mfrggzdfmz"])
    descendants: bool = Field(
        False, description="of an enroll token: all that were made with it are revoked too", examples=[True]
    )


class Revoked(Response):
    id: str
    name: str
    revoked_at: str
    descendants: list[str]
    """Names of tokens that were made with it, if these were revoked too."""
    gpus: list[str]
    """GPUs that left the pool because they were registered with these tokens; what ran there waits again."""


@function("token::revoke", role="operator", writes=True)
async def revoke(request: Revoke, stores: Stores) -> Revoked:
    """End a token at once and for good: its calls, its sessions, and within two seconds its open streams.

    The GPUs of its owner leave the pool. If the answer is lost, repeat the call: it does the rest.
    """
    tokens = stores.tokens
    token = await _revoked(request.id, tokens)
    made = [t for t in await tokens.all() if t.enrolled_with == token.id] if request.descendants else []
    ended = [token, *[await _revoked(t.id, tokens) for t in made]]
    gpus = [
        gpu_id
        for one in ended
        if one.kind == "access"
        for gpu_id in await forget_gpus_of(one.name, one.revoked_at or 0.0, stores)
    ]
    return Revoked(
        id=token.id,
        name=token.name,
        revoked_at=stamp(token.revoked_at or 0.0),
        descendants=[t.name for t in made],
        gpus=gpus,
    )


async def _revoked(token_id: str, tokens: Tokens) -> Token:
    return await tokens.revoke(await tokens.get(token_id))
