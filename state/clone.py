"""The clone of the project that the lab's own processes may read."""

from __future__ import annotations

from state.settings import Settings

SCRIPT = "train.py"
MOST_BYTES = 1024 * 1024


def script_of(settings: Settings) -> str | None:
    """Text of the clone's train.py. None without a clone, or if the file is missing, is not UTF-8 or has more than
    MOST_BYTES. Blocks."""
    if settings.clone is None:
        return None
    try:
        with (settings.clone / SCRIPT).open("rb") as file:
            found = file.read(MOST_BYTES + 1)
        return None if len(found) > MOST_BYTES else found.decode()
    except (OSError, UnicodeDecodeError):
        return None
