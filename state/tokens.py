"""Tokens of callers from outside. Redis holds only the SHA-256 of each random secret.

A token is `nj_<id>_<secret>`: the id is public, the secret has 256 random bits. Browser sessions, sign-in codes and
tickets for one event stream are random names for a token. Redis holds their digests, with the digest of the token's
secret: rotating a secret ends its sessions. A key of the lab itself is sent like a token, and is in no Redis key.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from state.change import NOW, Change, clock, exists, get, hgetall, hmget, loosely, size
from state.client import Lab
from state.errors import Conflict, Forbidden, NotFound, TooManyRequests, Unauthenticated
from state.ids import KEY_IDS, TOKEN_FORM
from state.private import KeyRole
from state.reads import Store
from state.records import Role
from state.token_values import (
    STRANGER,
    BrowserSession,
    Issued,
    Kind,
    Proof,
    Token,
    check_free,
    digest_of_secret,
    ended_token,
    issue,
    issuing,
    new_secret,
    rotate,
    rotating,
)

CHANGES = ("token.issued", "token.rotated", "token.revoked")
"""Events after which a process checks again whom it lets in."""
BURST_S = 4.0
"""A token may make so many seconds' requests at once."""
REMEMBERED_S = 1.0
"""Seconds for which a process trusts a token without asking Redis, unless an event reports a change."""

SESSION_S = 12 * 3600
SESSIONS_MOST = 20
"""Most sessions of a token or of the key. A further one ends the oldest."""
TICKET_S = 30
CODE_S = 600
OVERLAP_MOST_S = 24 * 3600
WRONG_TRIES = 10
TRIES_S = 60
"""Most wrong tokens from one address, and the seconds of that limit."""


class Tokens(Store):
    """All tokens, sessions and tickets of the lab; a web process lets its own `keys` in, too, by role."""

    def __init__(self, lab: Lab, keys: Mapping[KeyRole, str] | None = None) -> None:
        super().__init__(lab)
        self._own = {KEY_IDS[role]: _of_key(role, text) for role, text in (keys or {}).items()}
        self.changed = asyncio.Event()
        """Set when a token was issued, rotated or revoked, by this process or another."""
        self._configured: bool | None = None
        self._open_until = 0.0
        self._admitted: dict[Proof, tuple[Token, float]] = {}
        """Tokens with the time until which they are trusted without asking Redis."""
        self._taken = Counter[str]()
        """Requests of each token that this process may let in without asking Redis."""
        self._full_until: dict[str, float] = {}
        """When a token that has asked too often may ask again."""
        self._noted_until: dict[str, float] = {}

    async def are_configured(self) -> bool:
        """Whether the lab is closed. After the first access token of an operator, every caller needs a token.

        The answer "open" is cached for a second, or until a token closes the lab.
        """
        self._forget_what_changed()
        asked_at = time.monotonic()
        if not self._configured and asked_at >= self._open_until:
            self._configured = bool(await self._lab.command("EXISTS", self._keys("closed")))
            self._open_until = asked_at + REMEMBERED_S
        return bool(self._configured)

    @property
    def were_configured(self) -> bool | None:
        """The last known answer, for times without Redis; None: never known."""
        return self._configured

    async def issue(
        self,
        *,
        name: str,
        role: Role,
        kind: Kind = "access",
        tags: list[str] | None = None,
        lasts_s: float | None = None,
        uses: int | None = None,
        issued_by: str,
    ) -> Issued:
        """A new token.

        Raises:
            Conflict: a living token has this name, in whatever case; it is reserved; or the lab is open, and it is no
                operator's access token.
        """
        fields = {"name": name, "role": role, "kind": kind, "tags": tags, "uses_left": uses}
        return await self._add(fields | {"issued_by": issued_by}, lasts_s, None)

    async def enroll(self, enrolling: Token, name: str) -> Issued:
        """A new token of an enroll token's role, for one of its uses.

        Raises:
            Conflict: the name was taken before, in whatever case, even if its token has ended; or it is reserved.
            Unauthenticated: no use is left.
        """
        fields = {"name": name, "role": enrolling.role, "kind": "access", "tags": enrolling.tags}
        return await self._add(fields, None, enrolling)

    async def _add(self, fields: dict[str, Any], lasts_s: float | None, enrolling: Token | None) -> Issued:
        name = fields["name"]
        check_free(name)
        is_operators = (fields["role"], fields["kind"]) == ("operator", "access")

        async def decide(change: Change) -> Issued:
            is_closed, *found = await change.read(
                exists(self._keys("closed")), *issuing(self._keys, name, enrolling)
            )
            if enrolling is None and not is_operators and not is_closed:
                raise Conflict(
                    "the first token of a lab is an operator's: from then on nobody is let in without one",
                    hint="./nightjar token issue NAME --role operator, then issue the others with it",
                )
            issued = issue(change, fields, *found, lasts_s=lasts_s, is_new=enrolling is not None)
            if is_operators and not is_closed:
                change.set(self._keys("closed"), issued.token.created_at)
            return issued

        try:
            return await self._lab.change(decide, in_turn=f"enroll {enrolling.id}" if enrolling else None)
        finally:
            self.changed.set()

    async def get(self, token_id: str) -> Token:
        """One token. Raises NotFound: there is none of this id."""
        stored = await self._lab.hash(self._keys("tokens", token_id))
        if not stored:
            raise NotFound(f"there is no token {token_id!r}", hint="POST /api/token/list names them")
        return Token.parse(stored)

    async def all(self) -> list[Token]:
        """Every token, oldest first; those that have ended too."""
        ids: list[str] = await self._lab.command("ZRANGE", self._keys("tokens"), 0, -1)
        stored = await self._lab.hashes([self._keys("tokens", i) for i in ids])
        return [Token.parse(one) for one in stored if one]

    async def last_used(self) -> dict[str, float]:
        """When each token was last used, by id."""
        used = await self._lab.hash(self._keys("token_use"))
        return {name: float(value) for name, value in used.items() if not name.endswith(":digest")}

    async def recognise(self, text: str) -> tuple[Token, Proof]:
        """The token with this text. Raises Unauthenticated: no token's, or one's that has ended."""
        return await self._proven(_proof(text))

    async def admit(self, text: str) -> tuple[Token, Proof]:
        """As `recognise`, cached for a second or until a token changes. Raises Unauthenticated."""
        self._forget_what_changed()
        proof, asked_at = _proof(text), time.monotonic()
        token, until = self._admitted.get(proof, (None, 0.0))
        if token is None or asked_at >= until:
            token, _ = await self._proven(proof)
            self._admitted[proof] = token, asked_at + REMEMBERED_S
        return token, proof

    def _forget_what_changed(self) -> None:
        if self.changed.is_set():
            self.changed.clear()
            self._admitted.clear()
            self._open_until = 0.0

    async def rotate(self, token: Token, overlap_s: float, shown: Proof | None = None) -> Issued:
        """A new secret for a token. One earlier secret stays valid for `overlap_s` seconds, all others end.

        That is the secret that the token's owner asks with. For any other caller it is the one that was valid
        longest: the answer with the newer one may have been lost. Once the newer one was used, the holder of an older
        one can no longer replace it.

        Raises:
            Conflict: it was rotated or has ended meanwhile. Forbidden: `shown` is an older one.
        """

        async def decide(change: Change) -> Issued:
            return rotate(change, token, overlap_s, shown, *await change.read(*rotating(self._keys, token)))

        try:
            return await self._lab.change(decide)
        finally:
            self.changed.set()

    async def revoke(self, token: Token) -> Token:
        """End a token, at once and for good; answers it as it is then. May be repeated."""
        key, names, name = self._keys("tokens", token.id), self._keys("token_names"), token.name.lower()

        async def decide(change: Change) -> Token:
            stored, known, now = await change.read(hgetall(key), hmget(names, name), clock())
            found = Token.parse(stored)
            if found.revoked_at is not None:
                return found
            change.hset(key, {"revoked_at": now})
            change.hdel(key, "old_digest", "old_until")
            if known[name] == token.id:
                change.hset(names, {name: f"-{token.id}"})
            told = {"token_id": token.id, "name": token.name, "role": token.role}
            change.emit("token.revoked", None, token.name, told)
            return found.model_copy(update={"revoked_at": now, "old_digest": None, "old_until": None})

        try:
            return await self._lab.change(decide)
        finally:
            self.changed.set()

    async def open_code(self, proof: Proof) -> str:
        """A random name that signs one browser in within 10 minutes."""
        return await self._stand_in("codes", replace(proof, session=None), CODE_S)

    async def code(self, name: str) -> tuple[Token, Proof]:
        """The token of a code, which is used up. Raises Unauthenticated: it or its token is over, or unknown."""
        unknown = Unauthenticated(
            "the link is unknown, used or older than 10 minutes",
            hint="./nightjar open, on the lab's machine, prints another one",
        )
        return await self._used_up("codes", name, unknown)

    async def open_session(self, proof: Proof) -> BrowserSession:
        """A session of 12 hours for a browser that has shown a token, or a code; it may end the token's oldest."""
        session = BrowserSession(new_secret(), new_secret())
        kept = asdict(replace(proof, session=None)) | {"page": digest_of_secret(session.page)}
        opened = self._keys("sessions", digest_of_secret(session.name))
        of_token = self._keys("token_sessions", proof.token_id)

        async def decide(change: Change) -> BrowserSession:
            count, names = await change.read(size(of_token), loosely("LRANGE", of_token, 0, -1))
            lasting = await change.read(*(exists(name).loose() for name in names)) if count else ()
            known = [*(name for name, is_open in zip(names, lasting, strict=True) if is_open), opened]
            change.delete(of_token, *known[:-SESSIONS_MOST])
            change.set(opened, json.dumps(kept), lasts_s=SESSION_S)
            change.rpush(of_token, *known[-SESSIONS_MOST:])
            change.expire(of_token, SESSION_S)
            return session

        return await self._lab.change(decide, in_turn=of_token)

    async def session(
        self, name: str, page: str | None = None, *, writes: bool = False
    ) -> tuple[Token, Proof]:
        """The token of a session. A request that `writes` shows the second secret, `page`.

        The cookie alone does not write: browsers send it to every port of its host.

        Raises:
            Unauthenticated: there is no such session, or its token has ended. Forbidden: the second secret is wrong.
        """
        key = digest_of_secret(name)
        stored = await self._lab.command("GET", self._keys("sessions", key))
        if stored is None:
            raise ended_session()
        kept: dict[str, Any] = json.loads(stored)
        digest = str(kept.pop("page"))
        if writes and not hmac.compare_digest(digest, digest_of_secret(page or "")):
            raise Forbidden(
                "a signed-in browser writes through Nightjar's own page only",
                hint="sign in again; a program sends its token as Authorization: Bearer instead",
            )
        return await self._proven(replace(Proof(**kept), session=key), otherwise=ended_session)

    async def close_session(self, name: str) -> None:
        await self._lab.command("DEL", self._keys("sessions", digest_of_secret(name)))

    async def open_ticket(self, proof: Proof) -> str:
        """A random name that opens one event stream within 30 seconds."""
        return await self._stand_in("tickets", proof, TICKET_S)

    async def ticket(self, name: str) -> tuple[Token, Proof]:
        """The token of a ticket, which is used up. Raises Unauthenticated: it, its token or session is over."""
        unknown = Unauthenticated(
            "the ticket is unknown, used or older than 30 seconds",
            hint="POST /api/event/ticket for another one",
        )
        token, proof = await self._used_up("tickets", name, unknown)
        if not await self.holding([proof]):
            raise ended_session()
        return token, proof

    async def holding(self, proofs: Collection[Proof]) -> set[Proof]:
        """Those that are still valid."""
        if not proofs:
            return set()
        asked = [*proofs]
        now, *found = await self._lab.read(
            clock(),
            *(loosely("HGETALL", self._keys("tokens", p.token_id)) for p in asked),
            *(exists(self._keys("sessions", p.session or "")) for p in asked),
        )
        tokens, sessions = found[: len(asked)], found[len(asked) :]
        return {
            p
            for p, stored, open_ in zip(asked, tokens, sessions, strict=True)
            if _holds(p, self._token(p, stored), now) and (p.session is None or open_)
        }

    async def take(self, proof: Proof, per_s: float) -> None:
        """Count a request of a token, and once a second note the use of this secret.

        The generic cell rate algorithm (ITU-T I.371) keeps one time for each token in Redis: the moment at which its
        bucket is empty. A process takes as many requests at once as a second allows, so that it seldom asks.

        Raises:
            TooManyRequests: more than `per_s` a second on average, or than four times as many at once.
        """
        now, name = time.monotonic(), proof.token_id
        if (wait_s := self._full_until.get(name, 0.0) - now) > 0:
            raise _too_often(per_s, wait_s)
        if self._taken[name] < 1 or now >= self._noted_until.get(proof.digest, 0.0):
            self._noted_until[proof.digest] = now + REMEMBERED_S
            take = partial(self._take_more, proof, per_s)
            self._taken[name] += await self._lab.change(take, in_turn=f"rate {name}")
        self._taken[name] -= 1

    async def _take_more(self, proof: Proof, per_s: float, change: Change) -> int:
        """A second's requests, or none while some are left. Notes the time, and the secret if it is present."""
        rate, use = self._keys("rates", proof.token_id), self._keys("token_use")
        now, told, found = await change.read(
            clock(), get(rate), hmget(self._keys("tokens", proof.token_id), "digest")
        )
        granted = 0
        if self._taken[proof.token_id] < 1:
            empty_at = max(float(told or 0), now)
            left = _burst(per_s) - (empty_at - now) * per_s
            if left < 1 - 1e-6:
                wait_s = (1 - left) / per_s
                self._full_until[proof.token_id] = time.monotonic() + wait_s
                raise _too_often(per_s, wait_s)
            granted = max(1, math.floor(min(per_s, left)))
            empty_at += granted / per_s
            change.set(rate, empty_at, lasts_s=empty_at - now + 0.001)
        change.hset(use, {proof.token_id: NOW})
        if found["digest"] == proof.digest:
            change.hset(use, {f"{proof.token_id}:digest": proof.digest})
        return granted

    async def take_try(self, address: str) -> None:
        """Note a wrong try to sign in or join. Raises TooManyRequests: 10 from this address within a minute."""
        tries = self._keys("tries", _network(address))

        async def decide(change: Change) -> None:
            count, left_ms = await change.read(get(tries), loosely("PTTL", tries))
            if int(count or 0) >= WRONG_TRIES:
                raise _too_many_tries(max(left_ms, 1) / 1000)
            change.incrby(tries)
            change.expire(tries, TRIES_S, first=True)

        await self._lab.change(decide, in_turn=tries)

    async def check_may_try(self, address: str) -> None:
        """Let an address guess a secret. Raises TooManyRequests: 10 wrong tries within the last minute."""
        tries = self._keys("tries", _network(address))
        count, left_ms = await self._lab.pipeline([("GET", tries), ("PTTL", tries)])
        if int(count or 0) >= WRONG_TRIES:
            raise _too_many_tries(max(left_ms, 1) / 1000)

    async def _stand_in(self, kind: str, proof: Proof, lasts_s: int) -> str:
        name = new_secret()
        kept = json.dumps(asdict(proof))
        await self._lab.command("SET", self._keys(kind, digest_of_secret(name)), kept, "EX", lasts_s)
        return name

    async def _used_up(self, kind: str, name: str, unknown: Unauthenticated) -> tuple[Token, Proof]:
        stored = await self._lab.command("GETDEL", self._keys(kind, digest_of_secret(name)))
        if stored is None:
            raise unknown
        return await self._proven(Proof(**json.loads(stored)))

    async def _proven(
        self, proof: Proof, otherwise: Callable[[], Unauthenticated] | None = None
    ) -> tuple[Token, Proof]:
        stored, now = await self._lab.read(loosely("HGETALL", self._keys("tokens", proof.token_id)), clock())
        token = self._token(proof, stored)
        if not _holds(proof, token, now, ended_too=True) or token is None:
            raise (otherwise or unknown_token)()
        if (end := token.end(now)) is not None:
            raise ended_token(end)
        return token, proof

    def _token(self, proof: Proof, stored: Mapping[str, str]) -> Token | None:
        """The token that a proof names: one of the lab's own keys, or what is stored."""
        if proof.is_key:
            return self._own.get(proof.token_id)
        return Token.found(stored)


def _of_key(role: KeyRole, text: str) -> Token:
    """One of the lab's own keys as a token."""
    return Token(
        id=KEY_IDS[role],
        name=role,
        role=role,
        digest=_proof(text).digest,
        issued_by="nightjar",
        created_at=0.0,
    )


def _proof(text: str) -> Proof:
    """The id and digest in a token's text."""
    found = TOKEN_FORM.fullmatch(text)
    token_id, secret = (found["id"], found["secret"]) if found else ("", text)
    return Proof(token_id, digest_of_secret(secret))


def _holds(proof: Proof, token: Token | None, now: float, *, ended_too: bool = False) -> bool:
    found = token or Token.parse(STRANGER)
    known = found.knows(proof.digest, now)
    return known and token is not None and (ended_too or found.end(now) is None)


def _burst(per_s: float) -> float:
    return max(BURST_S * per_s, 1)


def _too_often(per_s: float, wait_s: float) -> TooManyRequests:
    return TooManyRequests(
        f"more than {per_s:g} requests a second (bursts of {_burst(per_s):g})",
        hint="come back after Retry-After; GET .../wait and GET /api/events spare asking often",
        retry_after=math.ceil(wait_s * 1000) / 1000,
    )


def _too_many_tries(wait_s: float) -> TooManyRequests:
    return TooManyRequests(
        f"{WRONG_TRIES} wrong tokens came from this address within a minute",
        hint="wait a minute, then send a right one; an operator issues them",
        retry_after=wait_s,
    )


def _network(address: str) -> str:
    """The address that tries are counted for: a whole /64 of IPv6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    return str(found) if found.version == 4 else str(ipaddress.ip_network((found, 64), strict=False))


def unknown_token() -> Unauthenticated:
    return Unauthenticated("this is no token of this lab", hint="ask an operator for one")


def ended_session() -> Unauthenticated:
    return Unauthenticated("the session has ended", hint="sign in again with a token")
