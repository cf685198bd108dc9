"""/api/session: a browser shows a token or a code once and is known by a cookie from then on, until it signs out.

The token stands in the body of one request and nowhere else. The cookie is a random name of the session: no script
can read it, and no other site's page can send it. The page keeps the session's second secret, and writes with it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from functions.contract import Request as Asked
from functions.process.lifecycle import Process
from functions.rules.access import Caller, allows
from functions.validation import invalid
from state.errors import NightjarError, Unauthenticated
from state.token_values import Proof
from state.tokens import SESSION_S
from triggers.http.bodies import read_json
from triggers.http.identity import BY_PAGE, bearer_of, cookie_of, identify, session_of
from triggers.http.problems import problem_response

log = logging.getLogger(__name__)

BODY_LIMIT = 4096
UNKEPT = {"Cache-Control": "no-store"}


class SignIn(Asked):
    """One of the two."""

    token: str | None = Field(None, max_length=200)
    code: str | None = Field(None, max_length=200)

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.token is None) == (self.code is None):
            raise ValueError("send a token or a code")
        return self


def explained(answer: Callable[[Any, Request], Awaitable[Response]]) -> Callable[[Any, Request], Any]:
    """Answer refusals as problem documents."""

    async def explaining(self: Any, request: Request) -> Response:
        try:
            return await answer(self, request)
        except NightjarError as problem:
            request.state.refused = type(problem).__name__
            return problem_response(problem)

    return explaining


class Session(HTTPEndpoint):
    """The session of the browser that asks."""

    @explained
    async def get(self, request: Request) -> Response:
        """Who is signed in."""
        visitor = await identify(request)
        by_session = visitor.proof is not None and visitor.proof.session is not None
        return _told(visitor.caller, signed_in=by_session)

    @explained
    async def post(self, request: Request) -> Response:
        """Sign in; an earlier session of this browser ends."""
        process: Process = request.app.state.process
        before = session_of(request)
        try:
            asked = SignIn.model_validate(await read_json(request, BODY_LIMIT), strict=True)
        except ValidationError as problem:
            raise invalid(problem) from problem
        caller, proof = await _recognised(request, process, asked)
        opened = await process.tokens.open_session(proof)
        if before is not None:
            await process.tokens.close_session(before)
        response = _told(caller, signed_in=True, page=opened.page)
        _set_cookie(response, request, opened.name, SESSION_S)
        return response

    @explained
    async def delete(self, request: Request) -> Response:
        """Sign out; also answered where no session is open."""
        process: Process = request.app.state.process
        response = Response(status_code=204, headers=UNKEPT)
        if (name := session_of(request)) is not None:
            with contextlib.suppress(Unauthenticated):
                await process.tokens.session(name, request.headers.get(BY_PAGE), writes=True)
            await process.tokens.close_session(name)
        _set_cookie(response, request, "", 0)
        return response


async def _recognised(request: Request, process: Process, asked: SignIn) -> tuple[Caller, Proof]:
    """Whose token or code this is.

    Wrong ones are slowed; a right one never is, however many wrong ones came from its address: behind a proxy or a
    tunnel all callers have one address, and wrong tokens of one would shut out the others.
    """
    address = request.client.host if request.client else ""
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


def _told(caller: Caller, *, signed_in: bool, page: str | None = None) -> Response:
    told = {
        "name": caller.name,
        "role": caller.role,
        "tags": sorted(caller.tags) if caller.tags is not None else None,
        "signed_in": signed_in,
        "may_read": allows(("viewer",), caller.role),
    }
    return JSONResponse(told if page is None else {**told, "page": page}, headers=UNKEPT)


def _set_cookie(response: Response, request: Request, name: str, lasts_s: int) -> None:
    """Only for this host, only sent by its own pages, out of reach of scripts; by https only, if it came by that."""
    forwarded = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    by_https = "https" in (request.url.scheme, forwarded)
    response.set_cookie(
        cookie_of(request), name, max_age=lasts_s, path="/", secure=by_https, httponly=True, samesite="strict"
    )
