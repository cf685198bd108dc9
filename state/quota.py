"""The day quota of stored bytes of the call that is being answered: every move of the call counts what it stores."""

from __future__ import annotations

import math
from contextvars import ContextVar
from typing import Any, NamedTuple

from state.errors import TooManyRequests

FULL = "quota_full"
"""First word of a move's answer that was refused for its caller's quota."""


class Quota(NamedTuple):
    """A token owner whose stored bytes are counted, and the day's limit."""

    owner: str
    most: int
    refuses: bool = True
    """False: what is stored is counted and never refused, because it ends what was begun."""


current: ContextVar[Quota | None] = ContextVar("quota", default=None)


class counting:
    """Count what the moves of this block store; None: nothing is counted."""

    def __init__(self, quota: Quota | None) -> None:
        self._quota = quota

    def __enter__(self) -> None:
        self._before = current.set(self._quota)

    def __exit__(self, *_: object) -> None:
        current.reset(self._before)


def enforced() -> Quota | None:
    """The quota of the present call, enforced for any call."""
    quota = current.get()
    return quota._replace(refuses=True) if quota else None


def check_stored(quota: Quota, answer: Any) -> None:
    """Raise what a refused move means. Raises TooManyRequests: the quota has no room."""
    match answer:
        case [word, wait_s] if word == FULL:
            seconds = float(wait_s)
            raise TooManyRequests(
                f"{quota.owner!r} has stored as many bytes as one token may in a day: there is room again in"
                f" {math.ceil(seconds / 360) / 10:g} h",
                hint="come back after Retry-After; shorter texts, and commits that the worker has without diff, store"
                " less. Open runs can be reported at any time",
                retry_after=seconds,
                fields={"code": "stored_limit"},
            )
