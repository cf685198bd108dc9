"""Digests of requests and patches."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pydantic import BaseModel

from state.errors import Invalid

REQUEST_TTL_S = 24 * 3600


@dataclass(frozen=True)
class RequestKey:
    name: str
    """Digest of the function and of the caller's id; safe in a Redis key."""
    body_digest: str

    @classmethod
    def of(cls, function: str, given: str, request: BaseModel) -> RequestKey:
        """The key of a request that its caller gave this id."""
        return cls(hashlib.sha256(f"{function}|{given}".encode()).hexdigest(), digest_of(request))

    def registered(self, stored: str) -> str:
        """The id in `<id> <digest of its body>`. Raises Invalid: the body was another."""
        first, _, digest = stored.partition(" ")
        if digest != self.body_digest:
            raise Invalid(
                "this request id or Idempotency-Key was used with another body",
                hint="use a new key for a new request",
            )
        return first


def patch_id(patch: bytes | None) -> str | None:
    """The name that a patch is stored by."""
    return None if patch is None else hashlib.sha256(patch).hexdigest()


def digest_of(request: BaseModel) -> str:
    """SHA-256 of a request, without its `request_id`."""
    return hashlib.sha256(request.model_dump_json(exclude={"request_id"}).encode()).hexdigest()
