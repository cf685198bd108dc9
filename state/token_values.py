"""Values of tokens, and new ones. No IO."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Literal

from state.errors import Unauthenticated
from state.ids import KEY_IDS
from state.records import Record, Role

Kind = Literal["access", "enroll"]
"""An enroll token opens only `token::enroll` and `swarm::register`, which exchange it for an access token."""

_NOBODY = "0" * 64
"""Stands where no digest is: nothing that anybody could send has it."""
STRANGER = {"id": "-", "name": "-", "role": "viewer", "digest": _NOBODY, "issued_by": "-", "created_at": "0"}
"""Compared with in place of an unknown token. Unknown tokens take as long as wrong ones."""


class Token(Record):
    """A stored token, without its secret."""

    id: str
    name: str
    """Its owner. No two living access tokens share a name."""
    role: Role
    kind: Kind = "access"
    digest: str
    """SHA-256 of the secret, in hexadecimal."""
    tags: list[str] | None = None
    """An agent's tags; None is all."""
    issued_by: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    rotated_at: float | None = None
    old_digest: str | None = None
    """Digest of the secret before the last rotation, valid until `old_until`."""
    old_until: float | None = None
    uses_left: int | None = None
    """Uses left of an enroll token; None: any number."""
    enrolled_with: str | None = None
    """The enroll token that it was made from."""

    def end(self, now: float) -> Literal["revoked", "expired"] | None:
        """Why it opens nothing any more; None while it does."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and now >= self.expires_at else None

    def knows(self, digest: str, now: float) -> bool:
        """Whether this is the digest of its secret. Every wrong one takes as long."""
        present = hmac.compare_digest(self.digest, digest)
        former = hmac.compare_digest(self.old_digest or _NOBODY, digest)
        return present or (former and self.old_until is not None and now < self.old_until)


@dataclass(frozen=True)
class Proof:
    """Credentials of a caller, to check later whether they are still valid."""

    token_id: str
    digest: str
    session: str | None = None
    """Digest of the browser's session."""

    @property
    def is_key(self) -> bool:
        """Whether it is one of the lab's own keys instead of a token."""
        return self.token_id in KEY_IDS.values()


@dataclass(frozen=True)
class BrowserSession:
    """A browser that has signed in: two random secrets, shown this once."""

    name: str
    """Value of its cookie."""
    page: str
    """Secret that its page sends with each write."""


@dataclass(frozen=True)
class Issued:
    """A token with its text, shown once."""

    token: Token
    text: str


def digest_of_secret(secret: str) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(secret.encode()).hexdigest()


def new_secret() -> str:
    """256 random bits as text."""
    return secrets.token_urlsafe(32)


def new_id() -> str:
    """50 random bits: ids are names, not secrets."""
    return base64.b32encode(secrets.token_bytes(7)).decode().lower()[:10]


def ended_token(how: str = "revoked or used up") -> Unauthenticated:
    return Unauthenticated(f"this token is {how}", hint="ask an operator for a new one")
