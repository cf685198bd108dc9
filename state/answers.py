"""Answers to idempotency keys: the same key and body again gives the first answer, for 24 hours."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from state.change import Change
from state.client import Lab
from state.errors import Unavailable
from state.quota import counting, current, enforced
from state.reads import Store

ANSWER_TTL_S = 24 * 3600
IN_FLIGHT_TTL_S = 10
"""Seconds after which a silent process has lost its request: a repeated one is executed."""
ASK_AGAIN_S = 0.1
ENTRY_BYTES = 200
"""An answer counts as so many bytes more than it has."""


@dataclass(frozen=True)
class StoredAnswer:
    body_digest: str
    body: str


class Answers(Store):
    """Idempotency keys of the HTTP door."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self._freeing = set[asyncio.Task[None]]()

    def _key(self, function: str, given: str) -> str:
        return self._lab.keys("answers", hashlib.sha256(f"{function}|{given}".encode()).hexdigest())

    async def claim(
        self, function: str, given: str, body_digest: str
    ) -> StoredAnswer | Literal["claimed", "in_flight", "other_body"]:
        """Be the first with this key, or learn what became of the first."""
        flight = json.dumps({"digest": body_digest})
        found = await self._lab.command(
            "SET", self._key(function, given), flight, "NX", "GET", "EX", IN_FLIGHT_TTL_S, get=True
        )
        if found is None:
            return "claimed"
        earlier = json.loads(found)
        if earlier["digest"] != body_digest:
            return "other_body"
        return StoredAnswer(earlier["digest"], earlier["body"]) if "body" in earlier else "in_flight"

    async def keep_in_flight(self, function: str, given: str) -> None:
        """Say until cancelled that the first request is still being answered."""
        while True:
            await asyncio.sleep(IN_FLIGHT_TTL_S / 3)
            with suppress(Unavailable):
                await self._lab.command(
                    "PEXPIRE", self._key(function, given), int(IN_FLIGHT_TTL_S * 1000), "GT"
                )

    async def store(self, function: str, given: str, body_digest: str, body: str) -> None:
        """Keep the first answer. Raises TooManyRequests: the quota of the call's owner has no room for it."""
        answer = json.dumps({"digest": body_digest, "body": body})
        key = self._key(function, given)

        async def decide(change: Change) -> None:
            change.set(key, answer, lasts_s=ANSWER_TTL_S)
            if quota := current.get():
                change.count_stored(quota.owner, len(answer.encode()) + len(key) + ENTRY_BYTES)

        with counting(enforced()):
            await self._lab.change(decide)

    async def forget(self, function: str, given: str) -> None:
        """Nothing was done: the key is free again."""
        await self._lab.command("DEL", self._key(function, given))

    def forget_once_known(self, function: str, given: str) -> None:
        """Free the key as soon as Redis answers us: by then a call whose reply was lost is done or never will be.

        Its connection was closed with it. Redis reads what came on that before it reads what comes on the next one.
        We give up before the claim ends by itself, because it could then be another request's.
        """
        task = asyncio.create_task(self._forget_in_time(function, given))
        self._freeing.add(task)
        task.add_done_callback(self._freeing.discard)

    async def _forget_in_time(self, function: str, given: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(IN_FLIGHT_TTL_S / 2):
                while True:
                    with suppress(Unavailable):
                        return await self.forget(function, given)
                    await asyncio.sleep(ASK_AGAIN_S)
