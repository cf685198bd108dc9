"""A process that is killed (-9) right after one of the writes that a request makes: its answer never comes.

What Redis has of it is the same as if it were killed right before the next write.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from functions.kernel.process.lifecycle import opened
from state.connection import Connection
from state.moves import Arg
from state.settings import Settings
from tests.conftest import http_client
from tests.labs import curl
from tests.warm import call

WRITES = ("EVALSHA", "EVAL", "SET", "DEL")
"""Words that begin what changes the lab; a script that only reads begins with another."""


@dataclass(frozen=True)
class Asked:
    """One request."""

    path: str
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)


async def died(settings: Settings, asked: Asked, nth: int, event: str = "") -> bool:
    """Whether a process was killed after its nth write; else it has made fewer, and answered.

    Where an event is named, only changes that tell it count.
    """
    code = await asyncio.to_thread(call(_live, settings, asked, nth, event).wait)
    assert code in (0, -signal.SIGKILL), f"the process ended with {code}"
    return code != 0


def _live(settings: Settings, asked: Asked, nth: int, event: str) -> None:
    asyncio.run(_answer(settings, asked, nth, event))


async def _answer(settings: Settings, asked: Asked, nth: int, event: str) -> None:
    async with opened("web", settings) as process, http_client(process) as http:
        _die_after(nth, event)
        answer = await curl(http, asked.path, asked.body, **asked.headers)
        assert answer.status_code == 200, answer.text


def _die_after(nth: int, event: str) -> None:
    command, left = Connection.command, nth

    async def dying(self: Connection, *words: Arg, **shape: bool) -> Any:
        nonlocal left
        reply = await command(self, *words, **shape)
        if words[0] in WRITES and any(event in str(word) for word in words):
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
        return reply

    Connection.command = dying  # type: ignore[method-assign]  # in a process that ends with it
