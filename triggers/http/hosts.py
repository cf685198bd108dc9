"""Which addresses the web process binds, and which Host names, origins and pages it serves.

Bodies are accepted in whatever content type `curl -d` sends. So a web page could post here without a preflight, and a
rebound DNS name could reach the loopback port. Both carry a name that is not ours. A page from another port of this
machine carries our name with that port, and its browser sends Sec-Fetch-Site.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import urlsplit

from state.errors import Forbidden, Invalid
from state.settings import Settings
from state.tokens import Tokens
from triggers.http.exchange import Exchange

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
PORTS = {"http": 80, "https": 443}
"""Ports that a Host and an Origin leave out."""
FOREIGN_SITES = frozenset({"cross-site", "same-site"})
"""Values of Sec-Fetch-Site for a page that is not ours."""
_PLAIN = re.compile(r"([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?")
EVERYWHERE = frozenset({"0.0.0.0", "::", ""})
"""Hosts that bind every address: none is a name of this lab."""


async def check_bind(settings: Settings, tokens: Tokens) -> None:
    """Refuse an address beyond this machine before the lab has a token. Raises Invalid: no loopback address."""
    if not is_loopback(settings.host) and not await tokens.are_configured():
        raise Invalid(
            f"refusing to listen on {settings.host!r} without a token: other machines could reach the lab",
            hint="issue the first one, then start again: ./nightjar token issue NAME --role operator --direct"
            f"{settings.options}; or keep NIGHTJAR_HOST=127.0.0.1 and use an SSH tunnel:"
            " ssh -L 3111:127.0.0.1:3111 HOST",
        )


@lru_cache
def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class HostCheck:
    """Refuses foreign Host, Origin and Sec-Fetch-Site headers on every route and method."""

    def __init__(self, settings: Settings) -> None:
        added = (name.strip().lower() for name in settings.allowed_hosts.split(","))
        self._added = frozenset(name for name in added if name)
        """Names that the operator added. Behind a proxy the port is not ours, so any port will do."""
        self._served = self._added | LOOPBACK | (frozenset({settings.host.lower()}) - EVERYWHERE)

    def check(self, exchange: Exchange) -> None:
        """Let this request pass. Raises Forbidden: one of its headers is foreign."""
        hosts = exchange.header_lines("host")
        host = hosts[0] if len(hosts) == 1 else ""
        if _name_of(f"//{host}") not in self._served:
            raise Forbidden(
                f"the Host {host[:200]!r} is not served here",
                hint="use 127.0.0.1 or localhost, or add the name to NIGHTJAR_ALLOWED_HOSTS",
            )
        for origin in exchange.header_lines("origin"):
            if _name_of(origin) not in self._added and not _is_origin_of(host, origin):
                raise Forbidden(
                    f"requests from the origin {origin[:200]!r} are not served at {host[:200]!r}",
                    hint="call the API from a program, or add the name to NIGHTJAR_ALLOWED_HOSTS",
                )
        if not FOREIGN_SITES.isdisjoint(_values(exchange, "sec-fetch-site")) and not _is_visit(exchange):
            raise Forbidden(
                "requests from another site's page are not served",
                hint="open the page by its own address; names of a proxy go into NIGHTJAR_ALLOWED_HOSTS",
            )


@lru_cache
def _name_of(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


@lru_cache
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


def _is_visit(exchange: Exchange) -> bool:
    """Whether a person follows a link to here: no script sees the answer."""
    mode, where = ({*_values(exchange, f"sec-fetch-{name}")} for name in ("mode", "dest"))
    return exchange.method == "GET" and mode == {"navigate"} and where == {"document"}


def _values(exchange: Exchange, name: str) -> Iterator[str]:
    for line in exchange.header_lines(name):
        yield line.strip().lower()
