"""token::enroll makes an access token of an enroll token."""

from __future__ import annotations

from pydantic import Field

from functions.contract import Command, function
from functions.token.issue import Shown, shown
from state.errors import Forbidden
from state.ids import Id
from state.quota import Quota, counting
from state.settings import Settings
from state.tokens import Tokens

BODY_LIMIT = 4096
"""Bytes: strangers send it."""


class Enroll(Command):
    enroll_token: str = Field(
        max_length=200,
        description="what token::issue answered with kind=enroll",
        examples=["nj_mfrggzdfmz_..."],
    )
    name: Id = Field(description="the name of the new token's owner; a new one", examples=["agent-1"])


@function("token::enroll", role="anyone", writes=True, keeps_answer=False, body_limit=BODY_LIMIT)
async def enroll(request: Enroll, tokens: Tokens, settings: Settings) -> Shown:
    """Join with an enroll token: a token of your own, shown this once.

    The name is yours from then on. Where the answer is lost, so is the name: take another one, or ask an operator.
    """
    enrolling, proof = await tokens.recognise(request.enroll_token)
    if enrolling.kind != "enroll":
        raise Forbidden(
            "this is an access token: it opens the lab by itself", hint="send it as Authorization: Bearer"
        )
    await tokens.take(proof, settings.rate_per_s)
    with counting(Quota(enrolling.name, settings.stored_bytes_a_day)):
        return shown(await tokens.enroll(enrolling, request.name))
