"""Ends a run whose script has set a constant again, to another value than its config says.

One file, standard library only. The copy of a script that is trained runs it behind such statements.
"""

from __future__ import annotations

import contextlib
import os
import sys

_LONGEST = 200


def judge(name: str, before: object, now: object, line: int) -> None:
    """End the process if the statement at this line gave the constant another value; `...`: it had none."""
    if before is ... or _are_equal(before, now):
        return
    became = "is gone" if now is ... else f"is {_shown(now)}"
    with contextlib.suppress(Exception):  # a stream that the script has closed or replaced
        sys.stdout.flush()
    said = (
        f"\nnightjar.ConstantError: {name} was set to {_shown(before)}, and {became} after line {line}:"
        f" that line sets it again. Let it keep the value, or set {name} there\n"
    )
    os.write(2, said.encode("utf-8", "backslashreplace"))
    os._exit(1)  # no `except` of the script catches that


def _are_equal(before: object, now: object) -> bool:
    try:
        return bool(before == now)
    except Exception:  # noqa: BLE001 - an array, say, of several truths
        return False


def _shown(value: object) -> str:
    try:
        return repr(value)[:_LONGEST].replace("\n", " ")
    except Exception:  # noqa: BLE001 - a value of the script's own class
        return type(value).__name__
