"""What each keep changed beside the keep that it was made from, as lines of code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from functions.children import Children
from functions.formats.patches import HEAD, text_of
from functions.report._git_diff import between

MOST_LINES = 60
"""Lines of one change that are shown."""
CHANGES_S = 20.0
"""Seconds for all; those that come later are not shown."""


async def own_changes(
    pairs: Sequence[tuple[bytes | None, bytes | None]], children: Children
) -> list[str | None]:
    """Of each pair of patches against one base commit, the lines by which the second differs from the first.

    An empty patch is the base commit itself; where one is None, the change is not known.

    Raises:
        Unavailable: there is no git on this machine, or it fails.
    """
    give_up = time.monotonic() + CHANGES_S
    async with children.one():
        return [
            await _own_change(above, patch) if time.monotonic() < give_up else None for above, patch in pairs
        ]


async def _own_change(above: bytes | None, patch: bytes | None) -> str | None:
    if above is None or patch is None:
        return None
    if not above:
        return await asyncio.to_thread(_code, text_of(patch) or "")
    made = await between(above, patch, "a/", "b/")
    return None if made.diff is None else await asyncio.to_thread(_code, made.diff)


def _code(patch: str) -> str:
    """Its lines that add or remove code."""
    return _shortened(
        [line for line in patch.splitlines() if line[:1] in ("+", "-") and not HEAD.match(line)]
    )


def _shortened(lines: list[str]) -> str:
    left_out = len(lines) - MOST_LINES
    return "\n".join([*lines[:MOST_LINES], *([f"... {left_out} more lines"] if left_out > 0 else [])])
