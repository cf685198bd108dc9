"""Values of tokens, and tokens as parts of a change: a new one, or a new secret of a known one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from state.change import Change, Read, clock, hgetall, hmget
from state.errors import Conflict, Forbidden, Unauthenticated
from state.ids import KEY_IDS, RESERVED
from state.keys import Keys
from state.records import Record, Role, flatten

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


def check_free(name: str) -> None:
    """Refuse a name that is Nightjar's own. Raises Conflict: it is."""
    if name.lower() in RESERVED:
        raise Conflict(f"the name {name!r} is Nightjar's own", hint="take another name")


def issuing(keys: Keys, name: str, enrolling: Token | None) -> list[Read[Any]]:
    """What `issue` has to know. Two names that differ by case alone are the same."""
    reads: list[Read[Any]] = [hmget(keys("token_names"), name.lower()), clock()]
    return reads if enrolling is None else [*reads, hgetall(keys("tokens", enrolling.id))]


def issue(
    change: Change,
    fields: Mapping[str, Any],
    known: Mapping[str, str | None],
    now: float,
    enroll_token: Mapping[str, str] | None = None,
    *,
    lasts_s: float | None = None,
    is_new: bool = False,
) -> Issued:
    """A new token with these fields: name, role, kind, and who issues it; for one use of an enroll token.

    An operator may give a name again once its token was revoked; one that has to be new never is.

    Raises:
        Conflict: the name is taken. Unauthenticated: the enroll token has no use left.
    """
    keys, name = change.lab.keys, str(fields["name"])
    token_id, secret = new_id(), new_secret()
    stored = {**fields, "id": token_id, "digest": digest_of_secret(secret), "created_at": now}
    if lasts_s is not None:
        stored["expires_at"] = now + lasts_s
    enrolling = None if enroll_token is None else Token.parse(enroll_token)
    if enrolling is not None:
        stored |= {"issued_by": enrolling.name, "enrolled_with": enrolling.id}
        is_used_up = enrolling.uses_left is not None and enrolling.uses_left < 1
        if enrolling.kind != "enroll" or enrolling.end(now) is not None or is_used_up:
            raise ended_token()
    before = known[name.lower()]
    if before is not None and (is_new or not before.startswith("-")):
        raise Conflict(
            f"the name {name!r} is taken",
            hint="its bearer rotates that token; an operator revokes it first, to give the name again",
        )
    if enrolling is not None and enrolling.expires_at is not None:
        change.before(enrolling.expires_at)
    if enrolling is not None and enrolling.uses_left is not None:
        change.hincrby(keys("tokens", enrolling.id), "uses_left", -1)
    change.hset(keys("tokens", token_id), flatten(stored))
    change.zadd(keys("tokens"), {token_id: now})
    change.hset(keys("token_names"), {name.lower(): token_id})
    told = {"token_id": token_id, **{part: fields[part] for part in ("name", "role", "kind")}}
    change.emit("token.issued", None, name, told)
    return Issued(Token.parse(flatten(stored)), f"nj_{token_id}_{secret}")


def rotating(keys: Keys, token: Token) -> list[Read[Any]]:
    """What `rotate` has to know."""
    return [hgetall(keys("tokens", token.id)), hmget(keys("token_use"), f"{token.id}:digest"), clock()]


def rotate(
    change: Change,
    token: Token,
    overlap_s: float,
    shown: Proof | None,
    stored: Mapping[str, str],
    used: Mapping[str, str | None],
    now: float,
) -> Issued:
    """A new secret for a token as its caller has seen it. One of those before holds for `overlap_s` seconds more.

    That is the secret that the token's owner asks with. For any other caller it is the one that was valid longest:
    the answer with the newer one may have been lost.

    Raises:
        Forbidden: its bearer asks with an old one. Conflict: it was replaced, or the token has ended.
    """
    found, secret = Token.parse(stored), new_secret()
    overlaps = found.old_until is not None and now < found.old_until
    by_bearer = shown is not None and shown.token_id == token.id
    stays = (found.old_digest if overlaps else None) or found.digest
    if shown is not None and by_bearer:
        stays = shown.digest
    is_old = stays != found.digest
    is_as_seen = found.digest == token.digest and found.end(now) is None
    if is_as_seen and by_bearer and is_old and used[f"{token.id}:digest"] == found.digest:
        raise Forbidden(
            f"this secret of {token.name!r} was rotated out: only the present one rotates the token",
            hint="send the newest one; where it is lost, an operator revokes the token",
        )
    if not is_as_seen or (is_old and not (overlaps and stays == found.old_digest)):
        raise Conflict(
            f"the token of {token.name!r} has expired, was revoked, or was rotated meanwhile",
            hint="POST /api/token/list shows its state; in place of an expired one issue another, once it is revoked",
        )
    for end in (found.expires_at, found.old_until if is_old else None):
        if end is not None:
            change.before(end)
    after = {
        "digest": digest_of_secret(secret),
        "old_digest": stays,
        "old_until": now + overlap_s,
        "rotated_at": now,
    }
    change.hset(change.lab.keys("tokens", token.id), flatten(after))
    told = {"token_id": token.id, "name": token.name, "role": token.role}
    change.emit("token.rotated", None, token.name, told)
    return Issued(found.model_copy(update=after), f"nj_{token.id}_{secret}")
