"""Command lines of our own processes, in a checkout and from an installed wheel."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from state.program import IS_INSTALLED

_CHECKOUT = Path(__file__).parents[3]


def started(module: str, *arguments: str) -> tuple[str, ...]:
    """The command line that runs `module` as a process."""
    through = ("-m", "nightjar") if IS_INSTALLED else ()
    return (sys.executable, "-P", *through, "-m", module, *arguments)


def launcher() -> str:
    """Path of Nightjar's command, for other programs. In an installation it is usually beside the interpreter."""
    if not IS_INSTALLED:
        return str(_CHECKOUT / "nightjar")
    beside = Path(sys.executable).with_name("nightjar")
    return str(beside) if beside.is_file() else shutil.which("nightjar") or "nightjar"
