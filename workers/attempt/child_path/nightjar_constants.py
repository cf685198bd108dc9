"""Ends a run where a constant has another value than its config says.

One file, standard library only. The copy of a script that is trained runs it behind such statements.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys

_LONGEST = 200


def judge(name: str, before: object, now: object, line: int) -> None:
    """End the process if the statement at this line gave the constant another value; `...`: it had none."""
    if before is not ... and not _are_equal(before, now):
        _end(
            name,
            before,
            now,
            f"after line {line}: that line sets it again. Let it keep the value, or set {name} there",
        )


def watch(names: dict[str, object], wanted: dict[str, object]) -> None:
    """End the process with an error at its end if one of these constants has another value by then.

    The script binds them once, so another module did.
    """
    atexit.register(_look, names, wanted)


def _look(names: dict[str, object], wanted: dict[str, object]) -> None:
    for name, before in wanted.items():
        if not _are_equal(before, now := names.get(name, ...)):
            _end(name, before, now, "at the end: another module sets it. Let it keep the value")


def _end(name: str, before: object, now: object, why: str) -> None:
    became = "is gone" if now is ... else f"is {_shown(now)}"
    with contextlib.suppress(Exception):  # a stream that the script has closed or replaced
        sys.stdout.flush()
    said = f"\nnightjar.ConstantError: {name} was set to {_shown(before)}, and {became} {why}\n"
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
