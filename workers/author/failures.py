"""Classifies the exceptions of the providers' SDKs: try again, wait, or give up."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from email.utils import mktime_tz, parsedate_tz

import httpx2

from functions.kernel.process.redaction import presentable
from workers.author.http import ReplyTooLarge
from workers.author.provider import Garbled, ModelRefused, ProviderBusy, ProviderFailed

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
