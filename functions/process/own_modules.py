"""How a process of ours is started: by the name of its module, from a checkout and from an installed wheel alike."""

from __future__ import annotations

import sys

from state.program import IS_INSTALLED


def started(module: str, *arguments: str) -> tuple[str, ...]:
    """The command line that runs `module` as a process."""
    through = ("-m", "nightjar") if IS_INSTALLED else ()
    return (sys.executable, "-P", *through, "-m", module, *arguments)
