"""Sets constants in a train.py of the user's: all of them or none, and nothing else in the file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from functions.formats.constants import patch_constants, settable_constants
from functions.formats.parsing import decoded
from state.errors import Invalid, Unavailable

Change = tuple[object, object]
"""A constant's value before and after."""


def set_constants(script: Path, values: Mapping[str, object]) -> dict[str, Change]:
    """Give the constants of a script these values, to the letter; answers those that had another one.

    A constant that has its value already keeps its text. The file keeps its mode, and a link stays a link. It is
    replaced in one step: who reads it meanwhile sees the old text or the new one.

    Raises:
        Invalid: the file is no Python, or lacks one of the constants: it is left as it is.
        Unavailable: it cannot be read or written.
    """
    file = script.resolve()
    try:
        source, encoding = decoded(file.read_bytes())
        constants = settable_constants(source)
        patched = patch_constants(source, values)
        if patched != source:
            _replace(file, patched.encode(encoding))
    except Invalid as problem:
        raise Invalid(
            f"{script} is left as it is: {problem.detail}",
            hint="add it at the top level, as `NAME = VALUE`: the swarm's train.py has it there",
        ) from problem
    except OSError as problem:
        raise Unavailable(
            f"{script} is left as it is: {problem.strerror or problem}", hint="name a file that you may write"
        ) from problem
    return {
        name: (constants[name], value)
        for name, value in values.items()
        if ascii(constants[name]) != ascii(value)
    }


def _replace(file: Path, content: bytes) -> None:
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with draft.open("xb") as opened:
            shutil.copymode(file, draft)
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
