"""program.md: a charter that never changes, with a marked block that the lab rewrites; and it for one reader."""

from __future__ import annotations

import re
import shlex
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


PARTS = {"traces": "program-traces.md", "training": "program-training.md"}
"""The files that program.md names."""
FILES = ("program.md", *PARTS.values())
"""What agents are told."""
URL, TAG, NAME, LAUNCHER, CURL = "http://127.0.0.1:3111", "mar11", "alice", "./nightjar", "curl -s"


@dataclass(frozen=True)
class DocumentReader:
    """Whom a charter is for."""

    url: str
    tag: str | None = None
    """None: the example's stays, as does the name's."""
    name: str | None = None
    launcher: str = LAUNCHER
    """The path of Nightjar's command."""
    header_file: str | None = None
    """The file with the header that a lab with tokens asks for: no token stands in a command."""
    is_worker: bool = False
    """Whether it works in a swarm."""


def charter(text: str, reader: DocumentReader) -> str:
    """The text with this reader's URL, tag, name and command in every example."""
    header = f" -H @{shlex.quote(reader.header_file)}" if reader.header_file else ""
    own = {
        URL: reader.url,
        TAG: reader.tag or TAG,
        NAME: reader.name or NAME,
        LAUNCHER: shlex.quote(reader.launcher),
        CURL: CURL + header,
    }
    return re.sub("|".join(map(re.escape, own)), lambda found: own[found[0]], text)
