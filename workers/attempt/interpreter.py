"""The Python interpreter that runs the training script, and its command line."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from functions.process.project import SCRIPT

_RESOLVE_S = 60.0


async def find_interpreter(repo: Path, environ: Mapping[str, str]) -> Path:
    """The repository's `.venv`, else uv's interpreter for the project, else Nightjar's Python."""
    own = repo / ".venv" / "bin" / "python"
    if own.is_file():
        return own
    return await _found_by_uv(repo, environ) or Path(sys.executable)


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


async def _found_by_uv(repo: Path, environ: Mapping[str, str]) -> Path | None:
    """The interpreter of a uv project; None if this is not one, or uv is missing or fails."""
    uv = shutil.which("uv", path=environ.get("PATH"))
    if uv is None or not (repo / "uv.lock").is_file():
        return None
    process = await asyncio.create_subprocess_exec(
        *(uv, "python", "find", "--project", str(repo)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_RESOLVE_S):
            output, _ = await process.communicate()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    found = Path(output.decode("utf-8", "replace").strip() or "/nonexistent")
    return found if process.returncode == 0 and _is_file(found) else None


def _is_file(path: Path) -> bool:
    return path.is_file()
