"""Texts of git: patches, and the pointers of Git LFS."""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST_PATCH = 4 * 1024 * 1024
"""Bytes of a patch that is kept."""
LONGEST_WORDS = 200
"""Characters of a patch in a line."""
HEAD = re.compile(r"diff --git |index |@@|--- (a/|/dev/null)|\+\+\+ (b/|/dev/null)")
"""Start of a header line in a patch."""
CONTEXT = 3
"""Unchanged lines that are shown around a change."""
_SIDES = {" ": "-+", "-": "-", "+": "+"}
"""The patches that have a line of their diff, by its first character."""


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


def in_a_line(patch: str) -> str:
    """What a patch changes, in a few words: `WIDTH = 48 -> 96`, or its files and how many lines."""
    files: list[str] = []
    changed: dict[str, list[str]] = {"-": [], "+": []}
    for line in patch.split("\n"):
        if line.startswith("diff --git "):
            files.append(re.split(' "?b/', line)[-1].removesuffix('"'))  # git quotes unusual names
        elif line[:1] in changed and not HEAD.match(line):
            changed[line[0]].append(line[1:].strip())
    removed, added = changed.values()
    if len(removed) == len(added) == 1:
        before, after = (line.partition(" #")[0].strip() for line in (removed[0], added[0]))
        name = before.partition(" = ")[0] + " = "
        if before != after:
            return f"{before} -> {after.removeprefix(name)}"[:LONGEST_WORDS]
    if not files:
        return "unchanged"
    return f"{', '.join(files)}: +{len(added)} -{len(removed)} lines"[:LONGEST_WORDS]


def between_codes(diff_of_patches: str) -> str:
    """The change from the code of one patch to the code of another, file by file.

    The argument is a diff of their `essence` with all unchanged lines. A line that is context in only one patch is in
    both codes, unless the other patch removes it.
    """
    files: dict[str, list[str]] = {}
    now = {"-": "", "+": ""}
    for line in diff_of_patches.split("\n"):
        sides, text = _SIDES.get(line[:1], ""), line[1:]
        if not sides or not text:
            continue
        if text.startswith("diff --git "):
            now |= dict.fromkeys(sides, text)
        elif text.startswith("@@"):
            files.setdefault(now[sides[0]], []).append("@@")
        elif HEAD.match(text):
            continue
        elif sides == "-+" and now["-"] == now["+"]:
            if text[:1] in (" ", "+"):
                files.setdefault(now["+"], []).append(f" {text[1:]}")
        else:
            for side in sides:
                if text[:1] != " ":
                    files.setdefault(now[side], []).append(_of_code(side, text))
    shown = ((name, _near_changes(lines)) for name, lines in files.items())
    return "".join(f"{line}\n" for name, lines in shown if lines for line in ([name] if name else []) + lines)


def _of_code(side: str, text: str) -> str:
    """A line of one patch as a change of the code; what is no line of code stays as it is."""
    if text[:1] not in ("+", "-"):
        return side + text
    return ("+" if text[0] == side else "-") + text[1:]


def _near_changes(lines: list[str]) -> list[str]:
    """Changed lines with their context; each gap is one line `@@`."""
    near = bytearray(len(lines))
    for at, line in enumerate(lines):
        if line[:1] in ("+", "-"):
            first, end = max(0, at - CONTEXT), min(len(lines), at + CONTEXT + 1)
            near[first:end] = bytes([True]) * (end - first)
    found: list[str] = []
    for at, line in enumerate(lines):
        kept = line if near[at] else "@@"
        if kept != "@@" or (found and found[-1] != "@@"):
            found.append(kept)
    return found[:-1] if found and found[-1] == "@@" else found


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
