"""The HTTP client of every SDK. It limits the size of replies and follows no redirect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import httpx2

MOST_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of a reply; the longest text of a model has a few hundred KiB."""
CONNECT_S: Final = 10.0


class ReplyTooLarge(Exception):
    """A reply is too long, or compressed, which hides its length."""


def bounded_client(timeout_s: float, most_bytes: int = MOST_BYTES) -> httpx2.AsyncClient:
    """A client for one provider. Following a redirect would send the key to another server."""

    async def bound(response: httpx2.Response) -> None:
        packed = response.headers.get("content-encoding", "identity")
        if packed != "identity":
            await response.aclose()
            raise ReplyTooLarge(f"the reply is compressed ({packed[:20]!r}), which was not asked for")
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(stream, most_bytes)

    async def unpacked(request: httpx2.Request) -> None:
        request.headers["accept-encoding"] = "identity"

    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
        follow_redirects=False,
        event_hooks={"request": [unpacked], "response": [bound]},
    )


class _Bounded(httpx2.AsyncByteStream):
    """The bytes of a reply, up to a limit."""

    def __init__(self, inner: httpx2.AsyncByteStream, most_bytes: int) -> None:
        self._inner = inner
        self._left = most_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._left < 0:
                raise ReplyTooLarge("the reply goes on beyond the limit")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
