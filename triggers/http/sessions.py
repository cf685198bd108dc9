"""/api/session: a browser shows a token or a code once and is known by a cookie from then on, until it signs out.

The token stands in the body of one request and nowhere else. The cookie is a random name of the session: no script
can read it, and no other site's page can send it. The page keeps the session's second secret, and writes with it.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Self

from pydantic import Field, ValidationError, model_validator
from starlette.responses import JSONResponse, Response

from functions.kernel.contract import Request
from functions.kernel.rules.access import Caller, allows
from functions.kernel.validation import invalid
from state.errors import Unauthenticated
from state.token_values import Proof
from state.tokens import SESSION_S
from triggers.http.bodies import parsed, read_body
from triggers.http.exchange import Endpoint, Exchange
from triggers.http.identity import BY_PAGE, bearer_of, cookie_of, identify, session_of

log = logging.getLogger(__name__)

BODY_LIMIT = 4096
UNKEPT = {"Cache-Control": "no-store"}


class SignIn(Request):
    """One of the two."""

    token: str | None = Field(None, max_length=200)
    code: str | None = Field(None, max_length=200)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.token is None) == (self.code is None):
            raise ValueError("send a token or a code")
        return self


async def show(exchange: Exchange) -> Response:
    visitor = await identify(exchange)
    by_session = visitor.proof is not None and visitor.proof.session is not None
    return _described(visitor.caller, signed_in=by_session)


async def sign_in(exchange: Exchange) -> Response:
    """Sign in; an earlier session of this browser ends."""
    tokens = exchange.process.tokens
    before = session_of(exchange)
    try:
        asked = SignIn.model_validate(parsed(await read_body(exchange, BODY_LIMIT)), strict=True)
    except ValidationError as problem:
        raise invalid(problem) from problem
    caller, proof = await _recognised(exchange, asked)
    opened = await tokens.open_session(proof)
    if before is not None:
        await tokens.close_session(before)
    response = _described(caller, signed_in=True, page=opened.page)
    _set_cookie(response, exchange, opened.name, SESSION_S)
    return response


async def sign_out(exchange: Exchange) -> Response:
    """Sign out; also answered where no session is open."""
    tokens = exchange.process.tokens
    response = Response(status_code=204, headers=UNKEPT)
    if (name := session_of(exchange)) is not None:
        with contextlib.suppress(Unauthenticated):
            await tokens.session(name, exchange.header(BY_PAGE), writes=True)
        await tokens.close_session(name)
    _set_cookie(response, exchange, "", 0)
    return response


SESSION: dict[str, Endpoint] = {"GET": show, "POST": sign_in, "DELETE": sign_out}
"""The session of the browser that asks, by HTTP method."""


async def _recognised(exchange: Exchange, asked: SignIn) -> tuple[Caller, Proof]:
    """Whose token or code this is.

    Wrong ones are slowed; a right one never is, however many wrong ones came from its address: behind a proxy or a
    tunnel all callers have one address, and wrong tokens of one would shut out the others.
    """
    process = exchange.process
    address = exchange.client.host if exchange.client else ""
    try:
        if asked.code is not None:
            token, proof = await process.tokens.code(asked.code.strip())
        else:
            token, proof = await process.tokens.recognise((asked.token or "").strip())
    except Unauthenticated as problem:
        await process.tokens.take_try(address)
        log.warning("somebody at %s could not sign in: %s", address[:60], problem.detail)
        raise
    return await bearer_of(token, proof, process), proof


def _described(caller: Caller, *, signed_in: bool, page: str | None = None) -> Response:
    facts = {
        "name": caller.name,
        "role": caller.role,
        "tags": sorted(caller.tags) if caller.tags is not None else None,
        "signed_in": signed_in,
        "may_read": allows(("viewer",), caller.role),
    }
    return JSONResponse(facts if page is None else {**facts, "page": page}, headers=UNKEPT)


def _set_cookie(response: Response, exchange: Exchange, name: str, lasts_s: int) -> None:
    """Only for this host, only sent by its own pages, out of reach of scripts; by https only, if it came by that."""
    forwarded = (exchange.header("x-forwarded-proto") or "").partition(",")[0].strip().lower()
    by_https = "https" in (exchange.url.scheme, forwarded)
    response.set_cookie(
        cookie_of(exchange),
        name,
        max_age=lasts_s,
        path="/",
        secure=by_https,
        httponly=True,
        samesite="strict",
    )
