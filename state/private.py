"""Files that no other user may read."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write the whole file or nothing; only its owner may read it."""
    _draft(path, text).replace(path)


def write_once(path: Path, text: str) -> None:
    """The same; a file that is there already stays, also one that another process makes meanwhile."""
    draft = _draft(path, text)
    with contextlib.suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()


def _draft(path: Path, text: str) -> Path:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    return draft
