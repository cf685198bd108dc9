"""Sends webhooks over HTTP, to public addresses only.

All addresses of a name are checked, and the connection goes to a checked address. A later change of the name has no
effect.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING

from state.errors import Invalid

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 10.0
"""For a whole delivery, from resolving the name to reading the status."""
MOST_ADDRESSES = 4
LONGEST_RETRY_AFTER_S = 300.0
NAT64 = IPv6Network("64:ff9b::/96")
GLOBAL_UNICAST = IPv6Network("2000::/3")
"""The assigned public IPv6 addresses; `is_global` is also true for the old site-local ones."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host name, for a port."""


@dataclass(frozen=True)
class Reply:
    """The result of one delivery."""

    status: int | None
    """The HTTP status; None if there was no answer."""
    error: str = ""
    """The error, without the URL; empty if the event was delivered."""
    retry_after_s: float = 0.0
    """Seconds that the receiver asks us to wait."""


async def resolve(host: str, port: int) -> list[str]:
    """Ask the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Receivers:
    """Sends to receivers; `private` allows addresses that are not public."""

    def __init__(self, *, private: bool, resolve: Resolve = resolve) -> None:
        self._private = private
        self._resolve = resolve

    async def check(self, url: str) -> None:
        """Check that events may be sent to this URL.

        Raises:
            Invalid: it is not a plain http(s) URL, its name does not resolve, or an address is not public.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._addresses(parsed(url))
        except TimeoutError as problem:
            raise Invalid("the host's name did not resolve in time", hint="check the URL") from problem

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """POST once."""
        import httpx  # imported late, here and below: it takes a tenth of a second, and few processes need it

        try:
            async with asyncio.timeout(TIMEOUT_S):
                target = parsed(url)
                for address in (found := await self._addresses(target)):
                    try:
                        return await self._post(target, address, headers, body)
                    except (httpx.ConnectError, httpx.ConnectTimeout):
                        if address == found[-1]:
                            raise
        except Invalid as problem:
            return Reply(None, problem.detail)
        except (TimeoutError, httpx.TimeoutException):
            return Reply(None, f"no answer within {TIMEOUT_S:.0f} s")
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            return Reply(None, f"the connection failed: {type(problem).__name__}")
        raise AssertionError("a name that resolves has an address")

    async def _addresses(self, url: httpx.URL) -> Sequence[str]:
        host = url.raw_host.decode("ascii")
        try:
            found = await self._resolve(host, url.port or (443 if url.scheme == "https" else 80))
        except (OSError, UnicodeError) as problem:  # UnicodeError: a label is empty or too long
            raise Invalid("the host's name does not resolve", hint="check the URL") from problem
        if not found:
            raise Invalid("the host's name has no address", hint="check the URL")
        if not self._private and not all(is_public(address) for address in found):
            raise Invalid(
                "the host's address is not public",
                hint="NIGHTJAR_WEBHOOK_PRIVATE=true allows private addresses, for all callers who may add webhooks",
            )
        return found[:MOST_ADDRESSES]

    async def _post(self, url: httpx.URL, address: str, headers: Mapping[str, str], body: bytes) -> Reply:
        import httpx

        name = url.raw_host.decode("ascii")
        # one client per delivery, so that two names with one address never share a connection
        async with (
            httpx.AsyncClient(verify=self._tls, trust_env=False, timeout=TIMEOUT_S / 2) as http,
            http.stream(
                "POST",
                url.copy_with(host=address),
                headers={**headers, "host": url.netloc.decode("ascii")},
                content=body,
                extensions={"sni_hostname": name},
                follow_redirects=False,
            ) as response,
        ):
            return reply(response.status_code, response.headers.get("retry-after"))

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        import httpx

        return httpx.create_ssl_context(trust_env=False)


def reply(status: int, retry_after: str | None) -> Reply:
    """The result for a status: only 2xx is a delivery."""
    if 200 <= status < 300:
        return Reply(status)
    what = ": redirects are not followed" if 300 <= status < 400 else ""
    busy = status in (429, 503)
    return Reply(status, f"the receiver answered {status}{what}", seconds(retry_after) if busy else 0.0)


def seconds(retry_after: str | None) -> float:
    """A Retry-After header in seconds, at most LONGEST_RETRY_AFTER_S; 0 if it is empty or not valid."""
    if not retry_after:
        return 0.0
    try:
        if retry_after.strip().isdecimal():
            wanted = float(retry_after)
        else:
            wanted = parsedate_to_datetime(retry_after).timestamp() - time.time()
    except (ValueError, OverflowError):
        return 0.0
    return min(max(wanted, 0.0), LONGEST_RETRY_AFTER_S)


def parsed(url: str) -> httpx.URL:
    """Parse a webhook's URL. Raises Invalid: no URL, not http(s), or it holds a user name or password."""
    import httpx

    try:
        found = httpx.URL(url)
        host = found.host  # decodes an international name
    except (httpx.InvalidURL, UnicodeError) as problem:
        raise Invalid("this is not a URL", hint="send https://host/path") from problem
    if found.scheme not in ("http", "https") or not host:
        raise Invalid("a webhook's URL begins with https:// or http://", hint="send https://host/path")
    if found.userinfo:
        raise Invalid(
            "a webhook's URL must not hold a user name or password", hint="check the signature instead"
        )
    return found


def shown(url: str) -> str:
    """A URL without its path, which may hold a receiver's secret."""
    import httpx

    found = httpx.URL(url)
    return f"{found.scheme}://{found.netloc.decode('ascii')}/..."


def is_public(address: str) -> bool:
    """Whether an address and any IPv4 address inside it are public."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = _wrapped(found)
    if isinstance(found, IPv6Address) and not inner and found not in GLOBAL_UNICAST:
        return False
    return all(ip.is_global and not ip.is_multicast and not ip.is_reserved for ip in (inner or (found,)))


def _wrapped(address: IPv4Address | IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses inside an IPv6 address (mapped, 6to4, Teredo, NAT64)."""
    if isinstance(address, IPv4Address):
        return ()
    if address.ipv4_mapped:
        return (address.ipv4_mapped,)
    if address.sixtofour:
        return (address.sixtofour,)
    if address.teredo:
        return address.teredo
    return (IPv4Address(int(address) & 0xFFFFFFFF),) if address in NAT64 else ()
