"""The receivers of webhooks: HTTP to addresses that are public, and to no other.

A name is resolved, every one of its addresses is checked, and the connection goes to an address that was checked: a
name that resolves to something else a moment later gets nothing. Redirects are not followed, proxies of the
environment are not asked, and of an answer only the status is read.
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
"""For a whole delivery, from the name to the status."""
MOST_ADDRESSES = 4
LONGEST_RETRY_AFTER_S = 300.0
NAT64 = IPv6Network("64:ff9b::/96")
GLOBAL_UNICAST = IPv6Network("2000::/3")
"""All that is given out of IPv6; `is_global` alone takes the old site-local addresses for public."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host name, for a port."""


@dataclass(frozen=True)
class Reply:
    """What became of one delivery."""

    status: int | None
    """The HTTP status; None where none came."""
    error: str = ""
    """What went wrong, without the URL; empty where it was taken."""
    retry_after_s: float = 0.0
    """For how long the receiver wants to be left alone."""


async def resolve(host: str, port: int) -> list[str]:
    """Ask the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class Receivers:
    """Sends to receivers; `private` allows addresses that are not public."""

    def __init__(self, *, private: bool, resolve: Resolve = resolve, timeout_s: float = TIMEOUT_S) -> None:
        self._private = private
        self._resolve = resolve
        self._timeout_s = timeout_s

    async def check(self, url: str) -> None:
        """Refuse a URL that nothing may be sent to.

        Raises:
            Invalid: no plain http(s) URL, a name that does not resolve, or an address that is not public.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._addresses(parsed(url))
        except TimeoutError as problem:
            raise Invalid("the host's name did not resolve in time", hint="check the URL") from problem

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """POST once."""
        import httpx  # here and below, since it takes a tenth of a second that few processes need

        try:
            async with asyncio.timeout(self._timeout_s):
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
            return Reply(None, f"no answer within {self._timeout_s:.0f} s")
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            return Reply(None, f"the connection failed: {type(problem).__name__}")
        raise AssertionError("a name that resolves has an address")

    async def _addresses(self, url: httpx.URL) -> Sequence[str]:
        host = url.raw_host.decode("ascii")
        try:
            found = await self._resolve(host, url.port or (443 if url.scheme == "https" else 80))
        except (OSError, UnicodeError) as problem:  # the latter where a label is empty or too long
            raise Invalid("the host's name does not resolve", hint="check the URL") from problem
        if not found:
            raise Invalid("the host's name has no address", hint="check the URL")
        if not self._private and not all(is_public(address) for address in found):
            raise Invalid(
                "the host's address is not public",
                hint="NIGHTJAR_WEBHOOK_PRIVATE=true allows private addresses, to all callers who may add webhooks",
            )
        return found[:MOST_ADDRESSES]

    async def _post(self, url: httpx.URL, address: str, headers: Mapping[str, str], body: bytes) -> Reply:
        import httpx

        name = url.raw_host.decode("ascii")
        # One client per delivery: connections to one address are never shared between two names.
        async with (
            httpx.AsyncClient(verify=self._tls, trust_env=False, timeout=self._timeout_s / 2) as http,
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
    """What a status means: only 2xx is a delivery."""
    if 200 <= status < 300:
        return Reply(status)
    what = ": redirects are not followed" if 300 <= status < 400 else ""
    busy = status in (429, 503)
    return Reply(status, f"the receiver answered {status}{what}", seconds(retry_after) if busy else 0.0)


def seconds(retry_after: str | None) -> float:
    """A Retry-After header in seconds, bounded; 0 where it says nothing."""
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
    """A URL that something can be sent to.

    Raises:
        Invalid: it is none.
    """
    import httpx

    try:
        found = httpx.URL(url)
        host = found.host  # decodes an international name
    except (httpx.InvalidURL, UnicodeError) as problem:
        raise Invalid("this is no URL", hint="send https://host/path") from problem
    if found.scheme not in ("http", "https") or not host:
        raise Invalid("a webhook's URL begins with https:// or http://", hint="send https://host/path")
    if found.userinfo:
        raise Invalid(
            "a webhook's URL holds no user name and no password", hint="check the signature instead"
        )
    return found


def shown(url: str) -> str:
    """A URL without its path, which for some receivers is a secret."""
    import httpx

    found = httpx.URL(url)
    return f"{found.scheme}://{found.netloc.decode('ascii')}/..."


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet, also where it only wraps an IPv4 address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = _wrapped(found)
    if isinstance(found, IPv6Address) and not inner and found not in GLOBAL_UNICAST:
        return False
    return all(ip.is_global and not ip.is_multicast and not ip.is_reserved for ip in (inner or (found,)))


def _wrapped(address: IPv4Address | IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that an IPv6 address leads to."""
    if isinstance(address, IPv4Address):
        return ()
    if address.ipv4_mapped:
        return (address.ipv4_mapped,)
    if address.sixtofour:
        return (address.sixtofour,)
    if address.teredo:
        return address.teredo
    return (IPv4Address(int(address) & 0xFFFFFFFF),) if address in NAT64 else ()
