"""Tags: lines of research, each with counters, a policy and a strategy."""

from __future__ import annotations

import json

from state.client import Lab
from state.errors import NotFound
from state.policies import Policy
from state.records import Strategy, Tag, flatten


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
            raise NotFound(f"there is no tag {tag!r}", hint="create it with POST /api/experiment/setup")
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
            raise NotFound(f"there is no tag {tag!r}", hint="create it with POST /api/experiment/setup")
        return int(before)

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
            raise NotFound(f"there is no tag {tag!r}", hint="create it with POST /api/experiment/setup")
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
