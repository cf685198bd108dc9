"""The draft of a swarm's next program, as a worker preloads and follows it between two runs.

It stands in memory alone. Where it is flushed, the worker goes back to the program that `sync` tells.
A draft first seen as confirmed is not preloaded: `sync` tells it.
"""

from __future__ import annotations

from collections.abc import Callable

from state.errors import NightjarError
from workers.swarm.server import Preload, Server


class SpecPipeline:
    """What one worker has preloaded."""

    def __init__(self, server: Server, tag: str | None, say: Callable[[str], None]) -> None:
        self._server = server
        self._tag = tag
        self._say = say
        self._draft: Preload | None = None
        self._since: str = ""
        """The swarm's program as the draft was first seen."""
        self._preloaded_for: str = ""
        """The swarm's program as the draft was preloaded last: it changes with the worker's population, too."""
        self._is_told = False
        """The owner knows that there are no drafts to be had."""

    async def program(self, synced: str) -> str:
        """What the worker is to follow in its next run: the draft, or the program that the swarm has `synced`."""
        try:
            return await self._followed(synced)
        except NightjarError as problem:
            self._draft = None
            if not self._is_told:
                self._say(f"no drafts of the program: {problem.detail}")
            self._is_told = True
            return synced

    async def _followed(self, synced: str) -> str:
        status = await self._server.pipeline(self._tag)
        if status.spec_state not in ("ready", "confirmed"):
            self._drop(flushed=status.last_flush_token)
            return synced
        is_new = self._draft is None or self._draft.spec_id != status.spec_id
        if is_new:
            self._drop(flushed=status.last_flush_token)
        if status.spec_state == "confirmed":
            # the swarm's own program says the same by now, or soon, and what the worker's population does
            return self._draft.program_md if self._draft is not None and synced == self._since else synced
        if is_new:
            self._since = synced
        if is_new or synced != self._preloaded_for:
            self._draft, self._preloaded_for = await self._server.preload(self._tag), synced
        if self._draft is None or self._draft.spec_id != status.spec_id:
            return synced  # it was flushed meanwhile, or another one is ready
        return self._draft.program_md if status.deploy_allowed else synced

    def _drop(self, *, flushed: str | None) -> None:
        if self._draft is not None and self._draft.spec_id == flushed:
            self._say(f"{flushed} was dropped: the swarm's program is followed")
        self._draft = None
