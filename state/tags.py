"""Tags: lines of research, each with counters, a policy and a strategy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from state.budgets import WARN_AT
from state.client import Lab
from state.errors import BudgetExhausted, Conflict, NotFound
from state.policy import Policy
from state.records import Strategy, Tag, flatten

PINS_PAGE = 1000
TRIES = 20
"""How often a tag is paused anew because an experiment was queued for another GPU meanwhile."""

Limit = float | Literal["none", "same"]


class Tags:
    """All tags of the lab."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    async def find(self, tag: str) -> Tag | None:
        """The tag, or None."""
        stored = await self._lab.hash(self._lab.keys.tag(tag))
        return Tag.parse(stored) if stored else None

    async def get(self, tag: str) -> Tag:
        """The tag.

        Raises:
            NotFound: no such tag.
        """
        found = await self.find(tag)
        if found is None:
            raise unknown(tag)
        return found

    async def create(self, tag: Tag, strategy: Strategy, policy: Policy) -> bool:
        """Store a new tag; False where the name is taken."""
        keys = self._lab.keys
        answer = await self._lab.run(
            "setup_tag",
            [
                keys.tag(tag.name),
                keys("tags"),
                keys("strategy", tag.name),
                keys("policy", tag.name),
                keys("events"),
            ],
            [
                tag.name,
                json.dumps(tag.flat()),
                json.dumps(strategy.flat()),
                json.dumps({"values": policy.model_dump_json(), "version": "1"}),
                json.dumps({"tag": tag.name, "branch": tag.branch}),
            ],
        )
        return bool(answer == "ok")

    async def newest(self, offset: int, limit: int) -> list[Tag]:
        """Tags, newest first."""
        names = await self._lab.command("ZREVRANGE", self._lab.keys("tags"), offset, offset + limit - 1)
        stored = await self._lab.hashes([self._lab.keys.tag(name) for name in names])
        return [Tag.parse(fields) for fields in stored if fields]

    async def count(self) -> int:
        """How many tags there are."""
        return int(await self._lab.command("ZCARD", self._lab.keys("tags")))

    async def crashes_in_a_row(self, tag: str) -> int:
        """Crashes since the last run that was no crash."""
        return int(await self._lab.command("HGET", self._lab.keys("crashes", tag), "consecutive") or 0)

    async def resume(self, tag: str) -> int:
        """Forget the crashes in a row; answers how many they were.

        Raises:
            NotFound: no such tag.
        """
        keys = self._lab.keys
        before = await self._lab.run(
            "resume_tag", [keys.tag(tag), keys("crashes", tag), keys("events")], [tag]
        )
        if before == "no_tag":
            raise unknown(tag)
        return int(before)

    async def pause(self, tag: str, reason: str | None) -> bool:
        """Take the tag's waiting experiments out of the queues; False where it was paused already.

        Raises:
            NotFound: no such tag.
        """
        return await self._park("pause_tag", tag, [reason])

    async def unpause(self, tag: str) -> bool:
        """Put its waiting experiments back, each in its place; False where it was not paused.

        Raises:
            NotFound: no such tag.
        """
        return await self._park("unpause_tag", tag, [])

    async def _park(self, script: str, tag: str, args: Sequence[str | None]) -> bool:
        keys = self._lab.keys
        queued = keys.status(tag, "queued", "")[0]
        for _ in range(TRIES):
            pinned_to = (None, *await self._pins(queued))
            places = [key for gpu in pinned_to for key in (keys.queue(gpu), keys.parked(tag, gpu))]
            answer = await self._lab.run(
                script, [keys.tag(tag), keys("paused"), queued, keys("events"), *places], [tag, *args]
            )
            if answer == "no_tag":
                raise unknown(tag)
            if answer != "stale":
                return bool(answer != "already")
        raise Conflict(
            f"the queue of {tag!r} does not stand still",
            hint="try again; POST /api/lab/audit checks the queue",
        )

    async def _pins(self, queued: str) -> list[str]:
        """The GPUs that waiting experiments are pinned to."""
        ids = await self._lab.command("ZRANGE", queued, 0, -1)
        found: set[str] = set()
        for begin in range(0, len(ids), PINS_PAGE):
            page = [self._lab.keys.experiment(i) for i in ids[begin : begin + PINS_PAGE]]
            pins = await self._lab.pipeline([("HGET", key, "pinned_gpu") for key in page])
            found |= {pin for pin in pins if pin}
        return sorted(found)

    async def paused(self) -> list[str]:
        """Paused tags, longest paused first."""
        names: list[str] = await self._lab.command("ZRANGE", self._lab.keys("paused"), 0, -1)
        return names

    async def set_budget(self, tag: str, *, gpu_seconds: Limit, runs: Limit) -> bool:
        """Limit what the tag may spend; False where the limits were these already.

        Raises:
            NotFound: no such tag.
        """
        limits = {"gpu_seconds": gpu_seconds, "runs": runs}
        answer = await self._lab.move(
            "set_budget",
            keys={"tag": self._lab.keys.tag(tag), "events": self._lab.keys("events")},
            args={
                "tag": tag,
                "warn_at": WARN_AT,
                **{resource: limit for resource, limit in limits.items() if limit != "same"},
            },
        )
        if answer == "no_tag":
            raise unknown(tag)
        return bool(answer == "changed")

    async def categories(self, tag: str) -> dict[str, tuple[int, int]]:
        """Total and kept of every category that was tried."""
        stored = await self._lab.hash(self._lab.keys("categories", tag))
        names = {field.rpartition(":")[0] for field in stored}
        return {
            name: (int(stored.get(f"{name}:total", 0)), int(stored.get(f"{name}:kept", 0)))
            for name in sorted(names)
        }


class Strategies:
    """How each tag's search goes on."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    async def get(self, tag: str) -> Strategy:
        """The current strategy.

        Raises:
            NotFound: no such tag.
        """
        stored = await self._lab.hash(self._lab.keys("strategy", tag))
        if not stored:
            raise unknown(tag)
        return Strategy.parse(stored)

    async def replace(self, tag: str, before: Strategy, after: Strategy) -> bool:
        """Move from one strategy to the next; False where somebody else moved first."""
        keys = self._lab.keys
        event = ""
        if after.mode != before.mode:
            event = json.dumps(
                {"tag": tag, "mode": after.mode, "before": before.mode, "reason": after.reason},
                allow_nan=False,
            )
        values = after.model_dump(exclude={"version", "updated_at"})
        answer = await self._lab.run(
            "set_strategy",
            [keys("strategy", tag), keys("events")],
            [tag, str(before.version), json.dumps(flatten(values)), event],
        )
        return bool(answer == "ok")


def unknown(tag: str) -> NotFound:
    """The tag does not exist."""
    return NotFound(f"there is no tag {tag!r}", hint="create it with POST /api/experiment/setup")


def exhausted(tag: str, answer: Sequence[str]) -> BudgetExhausted:
    """A budget has no room, as a script says: {exhausted, gpu_seconds or runs, limit, spent, reserved, needed}."""
    _, resource, *numbers = answer
    limit, spent, reserved, needed = (json.loads(number) for number in numbers)
    what = {"gpu_seconds": "GPU seconds", "runs": "runs"}[resource]
    return BudgetExhausted(
        f"the budget of {tag!r} is {limit:g} {what}: {spent:g} are spent, {reserved:g} reserved, {needed:g} needed",
        hint="wait until reserved runs end, or have an operator raise it with POST /api/tag/budget;"
        " a run of your own can still be registered and reported",
        fields={
            "code": "budget_exhausted",
            "resource": resource,
            "limit": limit,
            "spent": spent,
            "reserved": reserved,
        },
    )
