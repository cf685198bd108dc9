"""The progress line that training scripts print, `step 00123 (12.3%) | loss: 2.345678 | ...`, read as it comes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from functions.formats.metrics_block import named_number, without_escapes

LONGEST_LINE = 400
"""Bytes of a line that are looked at."""

Tick = tuple[float, float]
"""A loss and the share of the run that is done, 0 to 1."""

_BREAK = re.compile(rb"[\r\n]")
_LOSS = "loss"
_HEAD = re.compile(
    r"\s*step\s+[0-9]+(?:/[0-9]+)?\s*\(\s*([0-9]+(?:\.[0-9]*)?)\s*%\s*\)\s*", re.ASCII | re.IGNORECASE
)


class ProgressLines:
    """Finds the progress lines in a script's output, however it is cut into pieces.

    A line ends with a carriage return or a newline. Its loss counts as soon as a `|` stands behind it: scripts that
    overwrite their line end it only when they print the next one. A line whose share is lower than one before is no
    progress: a summary may repeat old lines.
    """

    def __init__(self) -> None:
        self._begun = b""
        """The beginning of the line that has not ended, at most one byte more than is looked at."""
        self._is_read = False
        """Whether that line has told its loss already."""
        self._furthest = 0.0

    def feed(self, data: bytes) -> Sequence[Tick]:
        """What the next piece of the output completes, in its order."""
        text = self._begun + data
        ended = max(text.rfind(b"\r"), text.rfind(b"\n")) + 1
        found: list[Tick | None] = []
        if ended:
            whole = text[: ended - 1]
            lines = _BREAK.split(whole) if b"|" in whole else []
            found += map(tick_in, lines[1:] if self._is_read else lines)
            self._is_read = False
        self._begun = text[ended : ended + LONGEST_LINE + 1]
        if not self._is_read and (tick := tick_in(self._begun, has_ended=False)) is not None:
            self._is_read = True
            found.append(tick)
        return [tick for tick in found if tick is not None and self._is_progress(tick)]

    def _is_progress(self, tick: Tick) -> bool:
        _, share = tick
        is_further = share >= self._furthest
        self._furthest = max(self._furthest, share)
        return is_further


def tick_in(line: bytes, *, has_ended: bool = True) -> Tick | None:
    """The loss and the share of one line; None: it has none, or its loss is not finite, or it is not there whole."""
    head, *fields = without_escapes(line[:LONGEST_LINE].decode("utf-8", "replace")).split("|")
    if not has_ended or len(line) > LONGEST_LINE:
        fields = fields[:-1]
    begins = _HEAD.fullmatch(head)
    if begins is None:
        return None
    for field in fields:
        named = named_number(field)
        if named is not None and named[0] == _LOSS:
            loss = named[1]
            return (loss, min(float(f"{begins[1]}e-2"), 1.0)) if math.isfinite(loss) else None
    return None
