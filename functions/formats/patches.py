"""The code between two experiments, from their patches against the same base commit."""

from __future__ import annotations

import difflib

LONGEST_PATCH = 4 * 1024 * 1024
"""Bytes of a patch that is kept."""


def between(patch_a: str, patch_b: str, name_a: str, name_b: str) -> str:
    """A unified diff of the two patches (as interdiff reads: `-` is only in a, `+` only in b); empty if equal.

    Hunk positions and blob hashes shift with every unrelated line, so they are left out of the comparison.
    """
    return "\n".join(
        difflib.unified_diff(_essence(patch_a), _essence(patch_b), name_a, name_b, lineterm="", n=3)
    )


def text_of(patch: bytes | None) -> str | None:
    """A patch as text; bytes that are no UTF-8 are replaced."""
    return patch.decode("utf-8", "replace") if patch is not None else None


def _essence(patch: str) -> list[str]:
    lines = []
    for line in patch.splitlines():
        if line.startswith("index "):
            continue
        lines.append("@@" if line.startswith("@@ ") else line)
    return lines
