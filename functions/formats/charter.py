"""program.md for one reader, with its lab, tag, name and token file in place of the examples."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

PARTS = {"traces": "program-traces.md", "training": "program-training.md"}
"""The files that program.md names."""
FILES = ("program.md", *PARTS.values())
"""What agents are told."""
URL, TAG, NAME, LAUNCHER, CURL = "http://127.0.0.1:3111", "mar11", "alice", "./nightjar", "curl -s"


@dataclass(frozen=True)
class Reader:
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


def charter(text: str, reader: Reader) -> str:
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
