"""Requests to a provider of a language model, and their possible replies and failures.

The HTTP client of every SDK limits the size of replies and follows no redirect.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from typing import Any, Final, Protocol

import httpx2

from functions.kernel.process.redaction import presentable
from functions.pi.rules.authoring import UsedTokens

MOST_WRITTEN: Final = 16_000
"""Most tokens of one reply, thinking included; a filled-in form has a few thousand."""


@dataclass(frozen=True)
class FormRequest:
    system: str
    """Equal for all requests of one form, so that providers can cache it."""
    prompt: str
    form: str
    about: str
    """Purpose of the form, in a sentence."""
    schema: Mapping[str, Any]
    """JSON Schema without references."""


@dataclass(frozen=True)
class Filled:
    """The form came back. It is not validated yet."""

    fields: object
    """The model's text: an object, or JSON text."""
    used: UsedTokens | None


@dataclass(frozen=True)
class Garbled:
    """The reply cannot be read as a form."""

    problem: str
    used: UsedTokens | None = None


@dataclass(frozen=True)
class ModelRefused:
    """The model, or the provider's filter, refuses the task."""

    reason: str
    used: UsedTokens | None = None


@dataclass(frozen=True)
class ProviderBusy:
    """The provider's rate limit is reached; the request was free."""

    detail: str
    asked_s: float | None
    """Seconds that the provider asks to wait."""


@dataclass(frozen=True)
class ProviderFailed:
    """The provider could not be reached, or could not answer."""

    detail: str
    may_pass: bool
    """Whether it may succeed if it is sent again."""
    is_free: bool
    """Whether the request certainly was free."""
    asked_s: float | None = None
    status: int | None = None
    """Status of the HTTP response, if there was one."""


Reply = Filled | Garbled | ModelRefused | ProviderBusy | ProviderFailed


class Provider(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    async def ask(self, request: FormRequest) -> Reply:
        """Send the request once; errors of the provider are replies, not exceptions."""
        ...


MOST_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of a reply; the longest text of a model has a few hundred KiB."""
CONNECT_S: Final = 10.0


class ReplyTooLarge(Exception):
    """A reply is too long, or compressed, which hides its length."""


def bounded_client(timeout_s: float) -> httpx2.AsyncClient:
    """A client for one provider. Following a redirect would send the key to another server."""

    async def bound(response: httpx2.Response) -> None:
        packed = response.headers.get("content-encoding", "identity")
        if packed != "identity":
            await response.aclose()
            raise ReplyTooLarge(f"the reply is compressed ({packed[:20]!r}), which was not asked for")
        stream = response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        response.stream = _Bounded(stream)

    async def unpacked(request: httpx2.Request) -> None:
        request.headers["accept-encoding"] = "identity"

    return httpx2.AsyncClient(
        timeout=httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
        follow_redirects=False,
        event_hooks={"request": [unpacked], "response": [bound]},
    )


class _Bounded(httpx2.AsyncByteStream):
    """The bytes of a reply, up to MOST_BYTES."""

    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner
        self._left = MOST_BYTES

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self._left -= len(chunk)
            if self._left < 0:
                raise ReplyTooLarge("the reply goes on beyond the limit")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


FLAGGED = frozenset({"invalid_prompt", "content_filter", "content_policy_violation"})
"""OpenAI's error codes for a refused task."""
LONGEST_DETAIL = 300
"""Characters."""


def failure(problem: Exception) -> ProviderBusy | ProviderFailed | Garbled | ModelRefused:
    """The reply for an exception of any SDK. They name exceptions differently, but chain the same causes."""
    status, detail = _status(problem), _told(problem)
    if status is not None and status >= 300:
        return _answered(problem, status, detail)
    causes = list(_causes(problem))
    if any(isinstance(cause, ReplyTooLarge) for cause in causes):
        return Garbled(f"it is longer than a form can be: {detail}")
    if any(isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout) for cause in causes):
        return ProviderFailed(f"cannot be reached: {detail}", may_pass=True, is_free=True)
    if any(isinstance(cause, httpx2.TransportError) for cause in causes):
        return ProviderFailed(f"broke off: {detail}", may_pass=True, is_free=False)
    if status is not None or any(isinstance(cause, json.JSONDecodeError) for cause in causes):
        return Garbled(f"it is no answer of this API: {detail}")
    return Garbled(f"it cannot be read: {type(problem).__name__}: {detail}")


def _answered(problem: Exception, status: int, detail: str) -> ProviderBusy | ProviderFailed | ModelRefused:
    if status == 429:
        return ProviderBusy(detail, _asked_s(problem))
    if getattr(problem, "code", None) in FLAGGED:
        return ModelRefused(detail)
    may_pass = status >= 500 or status == 408
    return ProviderFailed(
        detail, may_pass, is_free=True, asked_s=_asked_s(problem) if may_pass else None, status=status
    )


def _status(problem: Exception) -> int | None:
    """The HTTP status: `status_code` of Anthropic and OpenAI, `code` of Google."""
    for name in ("status_code", "code"):
        found = getattr(problem, name, None)
        if isinstance(found, int):
            return found
    return None


def _told(problem: Exception) -> str:
    """Its message on one line, without keys."""
    return presentable(" ".join(str(problem).split()))[:LONGEST_DETAIL]


def _causes(problem: BaseException | None) -> Iterator[BaseException]:
    while problem is not None:
        yield problem
        problem = problem.__cause__ or problem.__context__


def _asked_s(problem: Exception) -> float | None:
    """Seconds that the provider asks to wait, from a header or, with Google, from the error's details."""
    response = getattr(problem, "response", None)
    headers = getattr(response, "headers", None)
    if headers is None:
        return None
    text = headers.get("retry-after")
    if text is not None:
        return _seconds(text)
    delay = re.search(r"'retryDelay': '(\d{1,6}(?:\.\d{1,9})?)s'", str(getattr(problem, "details", "")))
    return float(delay[1]) if delay else None


def _seconds(text: str) -> float | None:
    """Seconds in a Retry-After header, which is a number or a date."""
    if re.fullmatch(r"\s*\d{1,9}(\.\d{1,9})?\s*", text):
        return float(text)
    date = parsedate_tz(text)
    return None if date is None else max(0.0, mktime_tz(date) - time.time())
