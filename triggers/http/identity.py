"""Who sends a request: the bearer of a token or of a key of the lab, a browser, or a program on this machine.

`Authorization: Bearer`, else `X-Worker-Token`, else the browser's session cookie, else (for one event stream) a
ticket in the query. A token that is shown counts, right or wrong. A lab whose web process listens on loopback is open
until its first operator's token. In an open lab a program that shows nothing is `local`, and a browser may look. No
address makes an operator.

At /api/session a browser shows a token or a code once and is known by a cookie from then on, until it signs out. The
token stands in the body of one request and nowhere else. The cookie is a random name of the session: no script can
read it, and no other site's page can send it. The page keeps the session's second secret, and writes with it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection
from typing import NamedTuple, Self

from pydantic import Field, ValidationError, model_validator
from starlette.responses import JSONResponse, Response

from functions.kernel.contract import Request
from functions.kernel.process.lifecycle import Process
from functions.kernel.rules.access import (
    LOCAL,
    OPERATOR,
    OWN_WORKER,
    STRANGER,
    VISITOR,
    Audience,
    Caller,
    allows,
)
from functions.kernel.validation import invalid
from state.errors import Forbidden, Unauthenticated
from state.token_values import Proof, Token
from state.tokens import SESSION_S, Tokens
from triggers.http.bodies import parsed, read_body
from triggers.http.exchange import Endpoint, Exchange
from triggers.http.hosts import is_loopback

COOKIE = "nightjar_session"
"""Begins the name of the session's cookie; the port ends it."""
BY_PAGE = "x-nightjar-page"
"""A page of ours sends its second secret in this header with every write."""
SAFE = frozenset({"GET", "HEAD"})
LOOK_AGAIN_S = 1.0
"""Seconds between two looks at who still may wait or read."""
FORWARDED = frozenset(
    {
        b"forwarded",
        b"via",
        b"x-real-ip",
        b"x-client-ip",
        b"true-client-ip",
        b"cf-connecting-ip",
        b"x-cluster-client-ip",
    }
)
"""Headers of proxies, beside those that begin with x-forwarded."""


class Visitor(NamedTuple):
    """The sender of a request, and the proof that was shown."""

    caller: Caller
    proof: Proof | None = None


async def identify(
    exchange: Exchange, *, ticket: bool = False, writes: bool | None = None, strangers: bool = False
) -> Visitor:
    """Who sends this request; with `ticket`, one in the query is taken for proof and used up.

    `writes`: whether the request changes something; None: its method decides. `strangers`: a sender who shows nothing
    and is not let in becomes `STRANGER`.

    Raises:
        Unauthenticated: an unknown caller. Forbidden: a signed-in browser writes without the page's secret.
        TooManyRequests: the token is used more often than it may be.
    """
    shown = await _shown(exchange, ticket=ticket, writes=writes)
    if shown is not None:
        token, proof = shown
        return Visitor(await bearer_of(token, proof, exchange.process), proof)
    try:
        return await _local(exchange)
    except Unauthenticated:
        if strangers:
            return Visitor(STRANGER)
        raise


async def bearer_of(token: Token, proof: Proof, process: Process) -> Caller:
    """Whom a living token stands for; counts the request. Raises Forbidden: an enroll token. TooManyRequests."""
    if proof.is_key:
        return OPERATOR if token.role == "operator" else OWN_WORKER
    if token.kind == "enroll":
        raise Forbidden(
            "an enroll token opens nothing but POST /api/token/enroll",
            hint="send it there as enroll_token, with a name; the answer has your token",
        )
    await process.tokens.take(proof, process.settings.rate_per_s)
    tags = frozenset(token.tags) if token.tags is not None else None
    return Caller(token.name, token.role, token.id, tags)


async def admit(exchange: Exchange, *audience: Audience, ticket: bool = False) -> Visitor:
    """Who sends this request, if it is meant for them. Raises as `identify`, Forbidden: another's role."""
    visitor = await identify(exchange, ticket=ticket)
    if not allows(audience, visitor.caller.role):
        raise Forbidden(
            f"{exchange.url.path} needs the role {' or '.join(audience)}, {visitor.caller.described}",
            hint=visitor.caller.remedy,
        )
    return visitor


def cookie_of(exchange: Exchange) -> str:
    """The name of the session's cookie: browsers send it to every port of a host, so each port has its own."""
    return COOKIE if exchange.url.port is None else f"{COOKIE}_{exchange.url.port}"


def session_of(exchange: Exchange) -> str | None:
    """The session that a browser's cookie names; the last, where there are several.

    It is taken from the header as it stands: Python's own reading of cookies takes eight seconds for the backslashes
    that fit into one head (CVE-2024-7592), and no cookie of ours is quoted.
    """
    if (sent := exchange.header("cookie")) is None:
        return None
    found, wanted = None, cookie_of(exchange)
    for pair in sent.split(";"):
        name, _, value = pair.strip().partition("=")
        if name == wanted:
            found = value
    return found


async def still_admitted(tokens: Tokens, proofs: Collection[Proof | None]) -> set[Proof | None]:
    """Those of them who would be let in again; None is a caller without one."""
    holding: set[Proof | None] = {*await tokens.holding({p for p in proofs if p is not None})}
    if None in proofs and not await tokens.are_configured():
        holding.add(None)
    return holding


def check_no_visit(exchange: Exchange) -> None:
    """Refuse a write by GET for which a browser followed a link. Raises Forbidden: it did."""
    if (exchange.header("sec-fetch-mode") or "").strip().lower() == "navigate":
        raise Forbidden(
            f"{exchange.url.path} changes something: no link opens it",
            hint="call it from a program; it takes POST, too",
        )


async def _shown(exchange: Exchange, *, ticket: bool, writes: bool | None) -> tuple[Token, Proof] | None:
    tokens = exchange.process.tokens
    if (bearer := _bearer(exchange)) is not None:
        return await tokens.admit(bearer)
    if ticket and (name := exchange.query_params.get("ticket")) is not None:
        return await tokens.ticket(name)
    if (session := session_of(exchange)) is not None:
        changes = exchange.method not in SAFE if writes is None else writes
        return await tokens.session(session, exchange.header(BY_PAGE), writes=changes)
    return None


def _bearer(exchange: Exchange) -> str | None:
    header = exchange.header("authorization")
    if header is None:
        return exchange.header("x-worker-token")
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "bearer":
        raise Unauthenticated(
            f"the scheme {scheme[:20]!r} opens nothing here", hint="send Authorization: Bearer TOKEN"
        )
    return text.strip()


async def _local(exchange: Exchange) -> Visitor:
    """The caller of an open lab who shows nothing: browsers look, programs work. Raises Unauthenticated: not open."""
    if await exchange.process.tokens.are_configured():
        raise Unauthenticated(
            "this lab asks for a token", hint="send Authorization: Bearer TOKEN; an operator issues them"
        )
    if not is_loopback(exchange.process.settings.host):
        raise _needs_token("this lab listens on more than its own machine")
    if any(name in FORWARDED or name.startswith(b"x-forwarded") for name, _ in exchange.scope["headers"]):
        raise _needs_token("a proxy has forwarded this")
    return Visitor(VISITOR if exchange.header("sec-fetch-site") is not None else LOCAL)


def _needs_token(why: str) -> Unauthenticated:
    return Unauthenticated(
        f"{why}, so it asks for a token",
        hint="an operator issues the first one: ./nightjar token issue NAME --role operator",
    )


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
