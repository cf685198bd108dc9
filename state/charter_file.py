"""The charter's file: the text of every program around the block that the lab writes."""

from __future__ import annotations

from pathlib import Path

from state.errors import Invalid
from state.settings import Settings

FOLDER = Path(__file__).parents[1]
"""Folder of Nightjar's own charters, in a checkout and in the wheel."""
OURS, OF_WORKERS = FOLDER / "program.md", FOLDER / "program-worker.md"
MOST_BYTES = 256 * 1024


def charter_file(settings: Settings) -> Path:
    return settings.program or OURS


def read_charters(settings: Settings) -> tuple[str, str | None]:
    """The charter, and Nightjar's own text for workers. Blocks. Raises Invalid: as `read_charter`."""
    text = read_charter(charter_file(settings))
    return text, read_charter(OF_WORKERS) if settings.program is None else None


def read_charter(path: Path) -> str:
    """The unchanged text of a charter. Blocks. Raises Invalid: unreadable, too long, or no UTF-8."""
    hint = "name another file with NIGHTJAR_PROGRAM, or mend this one"
    try:
        with path.open("rb") as file:
            found = file.read(MOST_BYTES + 1)
    except OSError as problem:
        raise Invalid(f"{str(path)!r} cannot be read: {problem.strerror}", hint=hint) from problem
    if len(found) > MOST_BYTES:
        raise Invalid(f"{str(path)!r} has more than {MOST_BYTES} bytes", hint=hint)
    try:
        return found.decode()
    except UnicodeDecodeError as problem:
        raise Invalid(f"{str(path)!r} is no UTF-8 at byte {problem.start}", hint=hint) from problem
