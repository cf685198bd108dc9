"""Whether two requests say the same."""

from __future__ import annotations

import hashlib

from pydantic import BaseModel


def digest_of(request: BaseModel) -> str:
    """SHA-256 of what a request says; its `request_id` is no part of it."""
    return hashlib.sha256(request.model_dump_json(exclude={"request_id"}).encode()).hexdigest()
