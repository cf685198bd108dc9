"""Version of Nightjar, and the command that users type: `./nightjar` in a checkout, `nightjar` from the wheel."""

from __future__ import annotations

import sys

VERSION = "0.2.0"


IS_INSTALLED = "nightjar" in sys.modules
"""Whether the wheel is installed. Our packages lie inside its package, and every process starts there."""
_IN_CHECKOUT = "./nightjar"
PROGRAM = "nightjar" if IS_INSTALLED else _IN_CHECKOUT


def as_typed(text: str) -> str:
    """A text with the commands of a checkout, changed to the commands of this installation."""
    return text.replace(_IN_CHECKOUT, PROGRAM)
