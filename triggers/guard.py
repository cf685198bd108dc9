"""The guard before every route: only known Host names, only our own Origin.

Bodies are accepted in whatever content type `curl -d` sends, so a web page could post here without a preflight, and
a rebound DNS name could reach the loopback port. Both carry a name that is not ours.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from state.errors import Forbidden, Invalid, NightjarError
from state.settings import Settings
from state.tokens import Tokens
from triggers.problems import problem_response

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard:
    """ASGI middleware that refuses foreign Host and Origin headers on every route and method."""

    def __init__(self, app: ASGIApp, *, allowed: frozenset[str]) -> None:
        self.app = app
        self.allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self.refusal(Headers(scope=scope))):
            await problem_response(refusal)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def refusal(self, headers: Headers) -> NightjarError | None:
        """Why a request with these headers is not served; None where it is."""
        host = headers.get("host", "")
        if _name_of(f"//{host}") not in self.allowed:
            return Forbidden(
                f"the Host {host[:200]!r} is not served here",
                hint="use 127.0.0.1 or localhost, or add the name to NIGHTJAR_ALLOWED_HOSTS",
            )
        origins = headers.getlist("origin")
        if any(_name_of(origin) not in self.allowed for origin in origins):
            return Forbidden(
                f"requests from the origin {origins[0][:200]!r} are not served",
                hint="call the API from a program, or add the name to NIGHTJAR_ALLOWED_HOSTS",
            )
        return None


def _name_of(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def allowed_hosts(settings: Settings) -> frozenset[str]:
    """Loopback and the names that the operator added."""
    added = (name.strip().lower() for name in settings.allowed_hosts.split(","))
    return LOOPBACK | frozenset(name for name in added if name)


async def check_bind(settings: Settings, tokens: Tokens) -> None:
    """Refuse an address that strangers can reach while the lab has no tokens: every caller is an operator then.

    Raises:
        Invalid: the host is not a loopback address.
    """
    if not is_loopback(settings.host) and not await tokens.are_configured():
        raise Invalid(
            f"refusing to listen on {settings.host!r}: without tokens every caller would be an operator",
            hint="issue the first one: ./nightjar token issue NAME --role operator --direct; or keep"
            " NIGHTJAR_HOST=127.0.0.1 and use an SSH tunnel: ssh -L 3111:127.0.0.1:3111 HOST",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
