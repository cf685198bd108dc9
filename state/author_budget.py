"""The day's budget of language models: a request reserves its cost before it is sent, and books it afterwards."""

from __future__ import annotations

import asyncio
import math
import uuid
from dataclasses import dataclass

from state.change import Change, clock, hmget
from state.reads import Store

DAY_S = 86400
"""Days are of UTC."""


@dataclass(frozen=True)
class Cost:
    tokens: int
    """Read and written."""
    micro_usd: int
    """Millionths of a US dollar, rounded up; 0 where the price is not known."""


@dataclass(frozen=True)
class UsedUp:
    """The day's budget has no room for the request."""

    renewed_in_s: float
    """Seconds until the next UTC day."""
    is_too_small: bool
    """No day has room for the request, not even a new one."""


class AuthorBudget(Store):
    """Spending on a language model, by Redis' clock. A reservation that is never closed counts as spent."""

    async def reserve(self, most: Cost, limits: Cost) -> str | UsedUp:
        """Reserve the most that a request may cost, within the limits of a UTC day; answers an id for `close`.

        It counts as spent until it is closed.
        """
        name, budget = uuid.uuid4().hex, self._keys("author_budget")

        async def decide(change: Change) -> str | UsedUp:
            of_day, spent, now = await change.read(
                hmget(budget, "day"), hmget(budget, "tokens", "micro_usd").loose(), clock()
            )
            day = math.floor(now / DAY_S)
            ends_at = (day + 1) * DAY_S
            is_new = of_day["day"] != str(day)
            tokens, micro_usd = (0 if is_new else int(amount or 0) for amount in spent.values())
            if tokens + most.tokens > limits.tokens or micro_usd + most.micro_usd > limits.micro_usd:
                is_too_small = most.tokens > limits.tokens or most.micro_usd > limits.micro_usd
                return UsedUp(ends_at - now, is_too_small)
            change.before(ends_at)
            if is_new:
                change.delete(budget)
            else:
                change.room(budget, ("tokens",), limits.tokens)
                change.room(budget, ("micro_usd",), limits.micro_usd)
            change.hincrby(budget, "tokens", most.tokens)
            change.hincrby(budget, "micro_usd", most.micro_usd)
            change.hset(budget, {"day": day, f"open:{name}": f"{most.tokens} {most.micro_usd}"})
            return name

        return await self._lab.change(decide)

    async def close(self, reserved: str, cost: Cost) -> None:
        """Count what the request has really cost; may be repeated, and changes nothing once its day is over."""
        budget, open_ = self._keys("author_budget"), f"open:{reserved}"

        async def decide(change: Change) -> None:
            (found,) = await change.read(hmget(budget, open_))
            if (held := found[open_]) is not None:
                tokens, micro_usd = map(int, held.split())
                change.hincrby(budget, "tokens", cost.tokens - tokens)
                change.hincrby(budget, "micro_usd", cost.micro_usd - micro_usd)
                change.hdel(budget, open_)

        await self._lab.change(decide)

    async def today(self) -> Cost:
        """The amount that counts as spent today."""
        found, now = await asyncio.gather(self._lab.hash(self._keys("author_budget")), self._lab.now())
        if found.get("day") != str(math.floor(now / DAY_S)):
            return Cost(0, 0)
        return Cost(int(found["tokens"]), int(found["micro_usd"]))
