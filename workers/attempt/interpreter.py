"""The command line of the training script."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from functions.formats.train_command import SCRIPT


def command_line(command: Sequence[str] | None, python: str) -> list[str]:
    """The operator's command with `python` replaced by the interpreter; by default it runs train.py.

    A leading `uv run` is dropped: its child process would outlive it.
    """
    if not command:
        return [python, SCRIPT]
    argv = list(command)
    if argv[:2] == ["uv", "run"] and len(argv) > 2 and not argv[2].startswith("-"):
        argv = argv[2:]
        if argv[0].endswith(".py"):
            argv.insert(0, python)
    if argv[0] in ("python", "python3"):
        argv[0] = python
    return argv


def can_start(program: str, tree: Path, path: str) -> bool:
    """Whether the program exists: relative to the tree, or by name in the folders of `path`."""
    if os.sep in program:
        return os.access(tree / program, os.X_OK)
    return shutil.which(program, path=path) is not None
