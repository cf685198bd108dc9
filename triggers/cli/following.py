"""Following work of the lab that goes on without us: for the commands transfer and distil."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from triggers.cli.lab_http import AWAY

LOOK_S = 1.0
PATIENCE_S = 60.0
"""How long the lab may be down while we wait."""


def followed(
    one: dict[str, Any], ask: Callable[[], dict[str, Any]], tell: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """This record once it is no longer running; tells it, and each answer of the lab until then."""
    heard_at = time.monotonic()
    while True:
        tell(one)
        if one["state"] != "running":
            return one
        time.sleep(LOOK_S)
        try:
            one = ask()
            heard_at = time.monotonic()
        except AWAY:
            if time.monotonic() - heard_at > PATIENCE_S:
                raise
