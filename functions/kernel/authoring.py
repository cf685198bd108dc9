"""The lane `pi`: who wants a text from a language model asks here."""

from __future__ import annotations

from dataclasses import dataclass

from state.presence import Presence
from state.settings import Settings
from state.train_queue import PiQueue


@dataclass(frozen=True)
class PiLane:
    """The lane `pi`, for callers who want a text."""

    presence: Presence
    queue: PiQueue
    settings: Settings

    async def asked(self, function: str, tag: str, number: int) -> bool:
        """Queue a call in the lane; False: no process has a language model. Raises Unavailable: the broker."""
        if await self.presence.author(self.settings.stale_s) is None:
            return False
        await self.queue.enqueue(function, tag, number, longest_s=self.settings.llm_timeout_s)
        return True
