"""A Git LFS pointer: the text that git keeps in the place of a large file."""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST_POINTER = 1024
"""Bytes of the longest pointer, as Git LFS defines it."""
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\noid sha256:([0-9a-f]{64})\nsize ([0-9]{1,18})\n?"
)


@dataclass(frozen=True)
class Pointer:
    """The object that a pointer stands for."""

    oid: str
    """SHA-256 of its content, 64 hexadecimal digits."""
    size: int
    """Its bytes."""

    @property
    def place(self) -> str:
        """Its path in a store of Git LFS."""
        return f"{self.oid[:2]}/{self.oid[2:4]}/{self.oid}"


def pointer_in(content: bytes) -> Pointer | None:
    """The pointer that is the whole content of a file; None where the file is none."""
    found = _POINTER.fullmatch(content)
    return Pointer(found[1].decode(), int(found[2])) if found else None
