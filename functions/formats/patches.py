"""Patches as texts."""

from __future__ import annotations

LONGEST_PATCH = 4 * 1024 * 1024
"""Bytes of a patch that is kept."""


def essence(patch: bytes) -> bytes:
    """A patch without what shifts with every unrelated line: positions of hunks, and hashes of blobs."""
    lines = (b"@@" if line.startswith(b"@@ ") else line for line in patch.removesuffix(b"\n").split(b"\n"))
    return b"".join(line + b"\n" for line in lines if not line.startswith(b"index "))


def applicable(patch: bytes) -> bytes:
    """A patch with the line ends that a shell's `$(git diff)` cuts off, and without which git refuses it."""
    return patch if not patch or patch.endswith(b"\n") else patch + b"\n\n"


def text_of(patch: bytes | None) -> str | None:
    """A patch as text; bytes that are no UTF-8 are replaced."""
    return patch.decode("utf-8", "replace") if patch is not None else None
