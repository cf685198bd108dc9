"""The guard before every route: only known Host names, only our own Origin, nothing that another site's page sends.

Bodies are accepted in whatever content type `curl -d` sends, so a web page could post here without a preflight, and
a rebound DNS name could reach the loopback port. Both carry a name that is not ours. A page that another port of this
machine serves carries ours, with its own port, and the browser's word that it belongs to another origin.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from state.errors import Forbidden, NightjarError
from state.settings import Settings
from triggers.http.problems import problem_response

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
PORTS = {"http": 80, "https": 443}
"""Ports that a Host and an Origin leave out."""
OTHERS = frozenset({"cross-site", "same-site"})
"""What a browser says in Sec-Fetch-Site of a page that is not ours."""
_PLAIN = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?")
EVERYWHERE = frozenset({"0.0.0.0", "::", ""})
"""What is bound to listen on every address: no name of its own."""


class Guard:
    """ASGI middleware that refuses foreign Host, Origin and Sec-Fetch-Site headers on every route and method."""

    def __init__(self, app: ASGIApp, *, own: frozenset[str], added: frozenset[str]) -> None:
        self.app = app
        self.served = own | added
        self.added = added
        """Names beside our own. Where a proxy serves them, its port is not ours: any will do."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self.refusal(scope["method"], Headers(scope=scope))):
            await problem_response(refusal)(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def refusal(self, method: str, headers: Headers) -> NightjarError | None:
        """Why a request with these headers is not served; None where it is."""
        hosts = headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else ""
        if _name_of(f"//{host}") not in self.served:
            return Forbidden(
                f"the Host {host[:200]!r} is not served here",
                hint="use 127.0.0.1 or localhost, or add the name to NIGHTJAR_ALLOWED_HOSTS",
            )
        for origin in headers.getlist("origin"):
            if _name_of(origin) not in self.added and not _is_origin_of(host, origin):
                return Forbidden(
                    f"requests from the origin {origin[:200]!r} are not served at {host[:200]!r}",
                    hint="call the API from a program, or add the name to NIGHTJAR_ALLOWED_HOSTS",
                )
        if OTHERS & {*_values(headers, "sec-fetch-site")} and not _is_visit(method, headers):
            return Forbidden(
                "requests from another site's page are not served",
                hint="open the page by its own address; names of a proxy go into NIGHTJAR_ALLOWED_HOSTS",
            )
        return None


@lru_cache
def _name_of(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def url_of(scheme: str, host: str) -> str:
    """The address that a request with this Host was sent to; empty where it has more than a name and a port."""
    return f"{scheme}://{host}" if _PLAIN.fullmatch(host) else ""


def _is_origin_of(host: str, origin: str) -> bool:
    """Whether a page of this origin was served under this Host; behind a proxy that may have been by https."""
    try:
        page, ours = urlsplit(origin), urlsplit(f"//{host}")
        port = PORTS[page.scheme]
        ports = [port if url.port is None else url.port for url in (page, ours)]
        return page.hostname == ours.hostname and ports[0] == ports[1]
    except (KeyError, ValueError):
        return False


def _is_visit(method: str, headers: Headers) -> bool:
    """Whether a person follows a link to here: no script sees the answer."""
    mode, where = ({*_values(headers, f"sec-fetch-{name}")} for name in ("mode", "dest"))
    return method == "GET" and mode == {"navigate"} and where == {"document"}


def _values(headers: Headers, name: str) -> Iterator[str]:
    for line in headers.getlist(name):
        yield line.strip().lower()


def own_hosts(settings: Settings) -> frozenset[str]:
    """The loopback names, and the address that is bound, if it is a single one."""
    return LOOPBACK | (frozenset({settings.host.lower()}) - EVERYWHERE)


def added_hosts(settings: Settings) -> frozenset[str]:
    """The names that the operator added to our own."""
    added = (name.strip().lower() for name in settings.allowed_hosts.split(","))
    return frozenset(name for name in added if name)
