"""The W3C `traceparent` of a call (Trace Context, version 00).

`tracestate` is not kept: it is for other tracing systems, and none is behind Redis.
"""

from __future__ import annotations

import os
import re
from contextvars import ContextVar
from random import Random

_SHAPE = re.compile(r"(?P<version>[0-9a-f]{2})-([0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})(?P<more>-.*)?")

_chance = Random()
os.register_at_fork(after_in_child=_chance.seed)

current: ContextVar[str] = ContextVar("traceparent", default="")
"""Traceparent of the present call. Every event that a script writes carries it, unless the script names another."""


def accepted(*headers: str) -> str | None:
    """The one `traceparent` header that was sent, in version 00; None where it is to be ignored.

    A later version is read as far as version 00 goes, as the standard asks.
    """
    found = _SHAPE.fullmatch(headers[0].strip()) if len(headers) == 1 else None
    if found is None or found["version"] == "ff" or (found["version"] == "00" and found["more"]):
        return None
    trace, parent, _ = found[2].split("-")
    return None if set(trace) == {"0"} or set(parent) == {"0"} else f"00-{found[2]}"


def begun() -> str:
    """A new trace. Its sampled flag is 0, the standard's default: nobody has recorded anything of it."""
    digits = random_hex(24)
    return f"00-{digits[:32]}-{digits[32:]}-00"


def random_hex(size: int) -> str:
    """Random bytes in hexadecimal for an id that is no secret, without a call of the kernel each time."""
    return f"{_chance.getrandbits(8 * size):0{2 * size}x}"


def trace_id(traceparent: str) -> str:
    """The id shared by the lines, events and spans of one trace."""
    return traceparent.split("-")[1]
