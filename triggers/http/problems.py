"""Errors as RFC 9457 problem documents."""

from __future__ import annotations

import json
import math

from starlette.responses import Response

from functions.kernel.process.redaction import without_tokens
from state import errors
from state.errors import NightjarError


def problem_response(problem: NightjarError) -> Response:
    return problem_document(
        problem.status,
        problem.title,
        problem.detail,
        hint=problem.hint,
        retry_after=problem.retry_after,
        fields=problem.fields,
        headers={"WWW-Authenticate": "Bearer"} if isinstance(problem, errors.Unauthenticated) else None,
    )


def problem_document(
    status: int,
    title: str,
    detail: str,
    *,
    hint: str | None = None,
    retry_after: float | None = None,
    fields: dict[str, object] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    """Members of RFC 9457, and `hint`, `retry_after` and whatever the error adds."""
    body: dict[str, object] = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    if hint is not None:
        body["hint"] = hint
    headers = dict(headers or {})
    if retry_after is not None:
        body["retry_after"] = retry_after
        headers["Retry-After"] = str(math.ceil(retry_after))
    body |= {name: value for name, value in (fields or {}).items() if name not in body}
    return Response(
        without_tokens(json.dumps(body, allow_nan=False, default=str)),  # a detail may quote the request
        status_code=status,
        headers=headers,
        media_type="application/problem+json",
    )
