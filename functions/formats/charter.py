"""program.md for one agent: its lab, its tag, its name and its token's place where the examples' stand."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

FILES = ("program.md", "program-traces.md", "program-training.md")
"""What agents are told, the first of them first; it names the others."""
URL, TAG, NAME, LAUNCHER, CURL = "http://127.0.0.1:3111", "mar11", "alice", "./nightjar", "curl -s"


@dataclass(frozen=True)
class Reader:
    """Whom a charter is for."""

    url: str
    tag: str
    name: str
    launcher: str
    """The path of Nightjar's command."""
    header_file: str | None = None
    """The file with the header that a lab with tokens asks for: no token stands in a command."""


def charter(text: str, reader: Reader) -> str:
    """The text with every example's URL, tag, name and command as this reader's."""
    header = f" -H @{shlex.quote(reader.header_file)}" if reader.header_file else ""
    own = {
        URL: reader.url,
        TAG: reader.tag,
        NAME: reader.name,
        LAUNCHER: shlex.quote(reader.launcher),
        CURL: CURL + header,
    }
    return re.sub("|".join(map(re.escape, own)), lambda found: own[found[0]], text)
