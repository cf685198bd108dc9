"""Who sends a request: the bearer of a token or of a key of the lab, a browser, or a program on this machine.

`Authorization: Bearer`, else `X-Worker-Token`, else the browser's session cookie, else (for one event stream) a
ticket in the query. A token that is shown counts, right or wrong. A lab whose web process listens on loopback is open
until its first operator's token. In an open lab a program that shows nothing is `local`, and a browser may look. No
address makes an operator.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

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
from state.errors import Forbidden, Unauthenticated
from state.token_values import Proof, Token
from state.tokens import Tokens
from triggers.http.exchange import Exchange
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


@dataclass(frozen=True)
class Visitor:
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
