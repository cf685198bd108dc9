"""The day's budget of language models: a request reserves its cost before it is sent, and books it afterwards."""

from __future__ import annotations

import asyncio
import math
import uuid
from dataclasses import dataclass

from state.store import Store


@dataclass(frozen=True)
class Cost:
    """Cost of a request, or its upper limit."""

    tokens: int
    """Read and written."""
    micro_usd: int
    """Millionths of a US dollar, rounded up; 0 where the price is not known."""


@dataclass(frozen=True)
class Limits:
    """Limit on the cost of all requests in one UTC day."""

    tokens: int
    micro_usd: int


@dataclass(frozen=True)
class Reserved:
    """Reserved part of the day's budget. It counts as spent until it is closed."""

    reservation_id: str


@dataclass(frozen=True)
class UsedUp:
    """The day's budget has no room for the request."""

    renewed_in_s: float
    """Seconds until the next UTC day."""
    is_too_small: bool
    """No day has room for the request, not even a new one."""


class AuthorBudget(Store):
    """The lab's spending on a language model, by Redis' clock.

    What a process reserves and never closes, because it was killed, counts as spent.
    """

    async def reserve(self, most: Cost, limits: Limits) -> Reserved | UsedUp:
        """Take the most that a request may cost out of the day's budget."""
        name = uuid.uuid4().hex
        word, *rest = await self._lab.move(
            "reserve_author_budget",
            args={
                "id": name,
                "tokens": most.tokens,
                "micro_usd": most.micro_usd,
                "tokens_a_day": limits.tokens,
                "micro_usd_a_day": limits.micro_usd,
            },
        )
        if word == "ok":
            return Reserved(name)
        is_too_small = most.tokens > limits.tokens or most.micro_usd > limits.micro_usd
        return UsedUp(float(rest[0]), is_too_small)

    async def close(self, reserved: Reserved, cost: Cost) -> None:
        """Count what the request has really cost; may be repeated, and changes nothing once its day is over."""
        await self._lab.move(
            "close_author_budget",
            args={"id": reserved.reservation_id, "tokens": cost.tokens, "micro_usd": cost.micro_usd},
        )

    async def today(self) -> Cost:
        """The amount that counts as spent today."""
        found, now = await asyncio.gather(self._lab.hash(self._keys("author_budget")), self._lab.now())
        if found.get("day") != str(math.floor(now / 86400)):
            return Cost(0, 0)
        return Cost(int(found["tokens"]), int(found["micro_usd"]))
