"""The policies of all tags: one validated, versioned record per tag, stamped on each decision."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from state.client import Lab
from state.errors import Conflict, NotFound
from state.ids import OWN_LINE, trace_id_of
from state.policy import Policy, read_policy

NO_PRIORITIES: Mapping[str, float] = {}


class Policies:
    """The policies of all tags."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    async def get(self, tag: str) -> tuple[Policy, int]:
        """A tag's policy and its version.

        Raises:
            NotFound: no such tag.
        """
        stored = await self._lab.hash(self._lab.keys("policy", tag))
        if not stored:
            raise NotFound(f"there is no tag {tag!r}", hint="create it with POST /api/experiment/setup")
        return read_policy(stored["values"]), int(stored["version"])

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
        while True:
            policy, version = await self.get(tag)
            if expected is not None and expected != version:
                raise Conflict(
                    f"the policy of {tag!r} is at version {version}, not {expected}",
                    hint="read it again and repeat the change",
                )
            new = policy.changed(changes)
            if check is not None:
                await check(policy, new)
            keys, own_line = self._lab.keys, trace_id_of(tag, OWN_LINE)
            answer = await self._lab.move(
                "set_policy",
                keys={"own_line": keys.trace(own_line), "prioritised": [keys.trace(t) for t in priorities]},
                args={
                    "tag": tag,
                    "version": version,
                    "values": new.model_dump_json(),
                    "mode_before": policy.traces.mode,
                    "mode_after": new.traces.mode,
                    "most_traces": new.traces.target_traces,
                    "own_line": own_line,
                    "new_epoch": "yes" if new_epoch else None,
                    "priorities": list(priorities.values()),
                },
            )
            if answer != "stale":
                return new, int(answer)
