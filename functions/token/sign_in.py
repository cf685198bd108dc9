"""token::sign_in makes what signs a browser in."""

from __future__ import annotations

from functions.contract import Call, Command, Response, function
from state.errors import Conflict
from state.tokens import CODE_S, Tokens


class OpenCode(Command):
    """Nothing to ask for."""


class SignInCode(Response):
    code: str
    """For the page's address, behind `#sign-in=`: it opens one session, once."""
    expires_in_s: int


@function("token::sign_in", role=("viewer", "worker"), writes=True, keeps_answer=False)
async def sign_in(request: OpenCode, call: Call, tokens: Tokens) -> SignInCode:
    """A code that signs one browser in as its caller, once, within 10 minutes."""
    if call.proof is None:
        raise Conflict("no token was sent, so there is nobody to sign in", hint=call.caller.remedy)
    return SignInCode(code=await tokens.open_code(call.proof), expires_in_s=CODE_S)
