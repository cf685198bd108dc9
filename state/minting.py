"""Tokens as parts of a move: a new one, or a new secret of a known one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from state.errors import Conflict, Forbidden
from state.ids import RESERVED
from state.keys import Keys
from state.records import flatten
from state.token_values import Proof, Token, digest_of_secret, ended_token, new_id, new_secret


@dataclass(frozen=True)
class Minted:
    """A token for the parts `_token.lua` or `_rotation.lua`."""

    token_id: str
    text: str
    """The text that its owner sends. It is shown once."""
    keys: dict[str, str | None]
    args: dict[str, Any]


def mint(
    keys: Keys, fields: Mapping[str, Any], enrolling: Token | None, lasts_s: float | None = None
) -> Minted:
    """A new token with these fields: name, role, kind, and who issues it.

    Raises:
        Conflict: the name is Nightjar's own.
    """
    name = fields["name"]
    if name.lower() in RESERVED:
        raise Conflict(f"the name {name!r} is Nightjar's own", hint="take another name")
    token_id, secret = new_id(), new_secret()
    stored = {**fields, "id": token_id, "digest": digest_of_secret(secret)}
    if enrolling is not None:
        stored |= {"issued_by": enrolling.name, "enrolled_with": enrolling.id}
    told = {"token_id": token_id, **{part: fields[part] for part in ("name", "role", "kind")}}
    return Minted(
        token_id,
        f"nj_{token_id}_{secret}",
        {
            "token": keys("tokens", token_id),
            "enroll_token": keys("tokens", enrolling.id) if enrolling else None,
        },
        {
            "id": token_id,
            "name": name,
            "role": fields["role"],
            "kind": fields["kind"],
            "fields": json.dumps(flatten(stored)),
            "lasts_s": lasts_s,
            "event_data": json.dumps(told),
        },
    )


def check_minted(name: str, answer: str) -> None:
    """Tell why a token was not issued.

    Raises:
        Conflict: the name is taken, or it would be the lab's first and is no operator's. Unauthenticated: the enroll
            token has no use left.
    """
    if answer == "taken":
        raise Conflict(
            f"the name {name!r} is taken",
            hint="its bearer rotates that token; an operator revokes it first, to give the name again",
        )
    if answer == "first":
        raise Conflict(
            "the first token of a lab is an operator's: from then on nobody is let in without one",
            hint="./nightjar token issue NAME --role operator, then issue the others with it",
        )
    if answer == "ended":
        raise ended_token()


def rotated(keys: Keys, token: Token, overlap_s: float, stays: str, *, by_bearer: bool) -> Minted:
    """A new secret for a token; the one with the digest `stays` holds for `overlap_s` seconds more."""
    secret = new_secret()
    told = {"token_id": token.id, "name": token.name, "role": token.role}
    return Minted(
        token.id,
        f"nj_{token.id}_{secret}",
        {"token": keys("tokens", token.id)},
        {
            "digest": token.digest,
            "new_digest": digest_of_secret(secret),
            "stays": stays,
            "overlap_s": overlap_s,
            "bearer": token.id if by_bearer else None,
            "event_data": json.dumps(told),
        },
    )


def surviving(token: Token, shown: Proof | None, now: float) -> tuple[str, bool]:
    """Digest of the secret that stays valid for a while, and whether the token's owner asks.

    That is the secret that the token's owner asks with. For any other caller it is the one that was valid longest:
    the answer with the newer one may have been lost.
    """
    if shown is not None and shown.token_id == token.id:
        return shown.digest, True
    overlapping = token.old_until is not None and now < token.old_until
    return (token.old_digest if overlapping else None) or token.digest, False


def check_rotated(name: str, answer: str) -> None:
    """Check that a secret was replaced.

    Raises:
        Forbidden: its bearer asks with an old one. Conflict: it was replaced, or the token has ended.
    """
    if answer == "rotated_out":
        raise Forbidden(
            f"this secret of {name!r} was rotated out: only the present one rotates the token",
            hint="send the newest one; where it is lost, an operator revokes the token",
        )
    if answer != "ok":
        raise Conflict(
            f"the token of {name!r} has expired, was revoked, or was rotated meanwhile",
            hint="POST /api/token/list shows its state; in place of an expired one issue another, once it is revoked",
        )
