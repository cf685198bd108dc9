"""The file of the charter: what every program says around the block that the lab writes."""

from __future__ import annotations

from pathlib import Path

from state.errors import Invalid
from state.settings import Settings

OURS = Path(__file__).parents[1] / "program.md"
"""Beside our packages, in a checkout and in the wheel."""
MOST_BYTES = 256 * 1024


def charter_file(settings: Settings) -> Path:
    """Where it lies."""
    return settings.program or OURS


def read_charter(path: Path) -> str:
    """Its text, byte for byte. Blocks.

    Raises:
        Invalid: it cannot be read, is too long, or is no UTF-8.
    """
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
