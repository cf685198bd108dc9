"""The program that a swarm's worker keeps for its owner: the swarm's own, or a draft of its next one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from state.errors import NightjarError
from workers.swarm.server import PreloadedDraft, SwarmServer

PROGRAM = "program.md"


class SpecPipeline:
    """The draft of a swarm's next program, preloaded in memory between two runs.

    When the draft is flushed, the worker returns to the synced program. A draft that is already confirmed when first
    seen is not preloaded: the synced program has the same content.
    """

    def __init__(self, server: SwarmServer, tag: str | None, say: Callable[[str], None]) -> None:
        self._server = server
        self._tag = tag
        self._say = say
        self._draft: PreloadedDraft | None = None
        self._since: str = ""
        """The swarm's program when the draft was first seen."""
        self._preloaded_for: str = ""
        """The swarm's program when the draft was last preloaded. It also changes with the worker's population."""
        self._is_told = False
        """Whether the owner was told that there are no drafts."""

    async def program(self, synced: str) -> str:
        """The program for the worker's next run: the draft, or the `synced` program."""
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
            # the swarm's own program has the same content now or soon, and the part for the worker's population
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


def keep_program(folder: Path, text: str, say: Callable[[str], None]) -> None:
    """Write down the swarm's program if it has changed."""
    place = folder / PROGRAM
    content = text.encode()
    if not text or (place.exists() and place.read_bytes() == content):
        return
    place.write_bytes(content)
    say(f"the swarm's program has changed: {place}")
