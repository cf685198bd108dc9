"""program.md: a charter that never changes, with a marked block that the lab rewrites."""

from __future__ import annotations

import re
from dataclasses import dataclass

from state.errors import Invalid

MARKERS = ("<!-- NIGHTJAR_MUTABLE_START -->", "<!-- NIGHTJAR_MUTABLE_END -->")
PUBLISHED_MARKERS = ("<!-- BAD_PI_MUTABLE_START -->", "<!-- BAD_PI_MUTABLE_END -->")
"""What a user's own base file may have instead."""
HEADING = "## Current direction"
"""What a block begins with."""
MOST_BLOCK_CHARS = 32 * 1024

_MARKER = re.compile(r"(NIGHTJAR|BAD_PI)(?=_MUTABLE_(START|END))", re.IGNORECASE)
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)
_LONE = re.compile(r"[\ud800-\udfff]")


@dataclass(frozen=True)
class Charter:
    """A base file around its block."""

    before: str
    """All up to the end of the start marker."""
    after: str
    """All from the end marker on."""

    def with_block(self, block: str) -> str:
        """The whole document; the charter's text is as it was, byte for byte."""
        return f"{self.before}\n{cleaned(block)}\n{self.after}"


def charter_of(base: str) -> Charter:
    """A base file split at its markers, by default at its end. Raises Invalid: not exactly one pair."""
    counts = [base.count(marker) for marker in (*MARKERS, *PUBLISHED_MARKERS)]
    if not any(counts):
        gap = "" if not base or base.endswith("\n\n") else "\n" if base.endswith("\n") else "\n\n"
        return Charter(f"{base}{gap}{MARKERS[0]}", f"{MARKERS[1]}\n")
    start, end = MARKERS if counts[0] or counts[1] else PUBLISHED_MARKERS
    if sorted(counts) != [0, 0, 1, 1] or base.count(start) != 1 or base.index(start) > base.find(end):
        raise Invalid(
            "the base's markers are not one pair",
            hint=f"have {start} and, after it, {end} in it once each, or no marker at all",
        )
    at = base.index(start) + len(start)
    return Charter(base[:at], base[base.index(end) :])


def cleaned(block: str) -> str:
    """A block that holds no marker, no HTML and no character that hides text, of at most MOST_BLOCK_CHARS."""
    plain = _CONTROL.sub("", block[: 4 * MOST_BLOCK_CHARS].replace("\r\n", "\n").replace("\r", "\n"))
    plain = _LONE.sub("\ufffd", plain)
    plain = _TAG.sub("&lt;", _MARKER.sub(r"\1 ", plain))
    return plain.strip("\n")[:MOST_BLOCK_CHARS]
