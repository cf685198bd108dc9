"""token::rotate gives a token a new secret."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Call, Command, function
from functions.token.issue import Shown, shown
from state.errors import Forbidden, Invalid
from state.ids import Id
from state.tokens import OVERLAP_MOST_S, Tokens


class Rotate(Command):
    id: Id | None = Field(
        None, description="default: the token that this is asked with", examples=["mfrggzdfmz"]
    )
    overlap_s: float = Field(
        300, ge=0, le=OVERLAP_MOST_S, description="seconds for which the present secret stays good"
    )


@function("token::rotate", role=("viewer", "worker"), writes=True, keeps_answer=False)
async def rotate(request: Rotate, call: Call, tokens: Tokens) -> Shown:
    """A new secret for a token, shown once; the one before stays valid for a while.

    Everybody may rotate their own token. If the answer is lost, ask again with the same token. With overlap_s=0, the
    secret before and all sessions made with it end at once.
    """
    asked = request.id or call.caller.token_id
    if asked is None:
        raise Invalid("no token was sent that could be rotated", hint="name one by its id")
    if asked != call.caller.token_id and not call.caller.may_do_all:
        raise Forbidden("only operators rotate other tokens", hint="leave out the id to rotate your own")
    return shown(await tokens.rotate(await tokens.get(asked), request.overlap_s, call.proof))
