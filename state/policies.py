"""The policies of all tags: one validated, versioned record per tag, stamped on each decision."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from state.change import Change, hgetall
from state.client import Lab
from state.errors import Conflict, NotFound
from state.policy import Policy, read_policy
from state.traces.growing import begin_epoch, check_traces

NO_PRIORITIES: Mapping[str, float] = {}


class Policies:
    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    async def get(self, tag: str) -> tuple[Policy, int]:
        """A tag's policy and its version. Raises NotFound: no such tag."""
        return _policy(await self._lab.hash(self._lab.keys("policy", tag)), tag)

    async def change(
        self,
        tag: str,
        changes: dict[str, Any],
        expected: int | None = None,
        *,
        check: Callable[[Policy, Policy], Awaitable[None]] | None = None,
        new_epoch: bool = False,
        priorities: Mapping[str, float] = NO_PRIORITIES,
    ) -> tuple[Policy, int]:
        """Replace some values, if the version still is `expected` (None: whatever it is); answers the new version.

        `check` gets the policy before and after, and refuses what this store cannot know to be wrong. A new
        `traces.mode` begins a new epoch of the tag's traces, and so does `new_epoch`. `priorities` say how much
        single traces are wanted, higher first.

        Raises:
            Conflict: it was changed meanwhile. Invalid: the values. NotFound: no such tag.
        """
        key = self._lab.keys("policy", tag)

        async def decide(change: Change) -> tuple[Policy, int]:
            (stored,) = await change.read(hgetall(key))
            policy, version = _policy(stored, tag)
            if expected is not None and expected != version:
                raise Conflict(
                    f"the policy of {tag!r} is at version {version}, not {expected}",
                    hint="read it again and repeat the change",
                )
            new = policy.changed(changes)
            if check is not None:
                await check(policy, new)
            await check_traces(change, tag, priorities)
            if new_epoch or policy.traces.mode != new.traces.mode:
                await begin_epoch(change, tag, policy.traces.mode, new.traces)
            for trace_id, priority in priorities.items():
                change.hset(self._lab.keys.trace(trace_id), {"priority": priority})
            change.hset(key, {"values": new.model_dump_json(), "version": version + 1})
            return new, version + 1

        return await self._lab.change(decide)


def _policy(stored: Mapping[str, str], tag: str) -> tuple[Policy, int]:
    if not stored:
        raise NotFound(f"there is no tag {tag!r}", hint="create it with POST /api/experiment/setup")
    return read_policy(stored["values"]), int(stored["version"])
