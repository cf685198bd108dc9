"""What users type: `./nightjar` in a checkout, and `nightjar` where the wheel is installed."""

from __future__ import annotations

import sys

IS_INSTALLED = "nightjar" in sys.modules
"""Whether our packages lie in the wheel's one package: every process of ours begins there then."""
_IN_CHECKOUT = "./nightjar"
PROGRAM = "nightjar" if IS_INSTALLED else _IN_CHECKOUT


def as_typed(text: str) -> str:
    """A text of ours, which names commands as they are in a checkout, with the commands as they are here."""
    return text.replace(_IN_CHECKOUT, PROGRAM)
