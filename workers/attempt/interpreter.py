"""The Python that trains, and the command line that it is started with."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from workers.attempt.worktree import SCRIPT

_RESOLVE_S = 60.0


async def find_interpreter(repo: Path, environ: Mapping[str, str]) -> Path:
    """The repository's own `.venv`, else what uv uses for the project, else Nightjar's Python."""
    own = repo / ".venv" / "bin" / "python"
    if own.is_file():
        return own
    return await _found_by_uv(repo, environ) or Path(sys.executable)


def command_line(command: Sequence[str] | None, python: str) -> list[str]:
    """The operator's command with its `python` replaced by the interpreter; without one the training script.

    `uv run` is left out, because its child would outlive it.
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
    """Whether the program is found: relative to the tree, or by name in the folders of `path`."""
    if os.sep in program:
        return os.access(tree / program, os.X_OK)
    return shutil.which(program, path=path) is not None


async def _found_by_uv(repo: Path, environ: Mapping[str, str]) -> Path | None:
    """The interpreter of a uv project; None where this is no uv project, or uv is missing or fails."""
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
