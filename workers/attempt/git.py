"""Runs git for a worker: no hooks, no monitors, no prompts, no fetches, no replacements."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from state.errors import NightjarError

_GIT_S = 300.0
NO_NAMES: Mapping[str, str] = {}


class Unbuildable(NightjarError):
    """The worker cannot check this attempt out; it is not the experiment's fault."""

    title = "Checkout failed"


class GitFailed(Unbuildable):
    """A git command exited with an error."""


async def git(
    where: Path, *arguments: str, stdin: bytes | None = None, environ: Mapping[str, str] = NO_NAMES
) -> bytes:
    """Output of one git command in a folder.

    Raises:
        GitFailed: it exited with an error. Unbuildable: it took too long.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "LC_ALL": "C",
        **environ,
    }
    settings = (
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "core.autocrlf=false",
        "submodule.recurse=false",
    )
    options = [part for setting in settings for part in ("-c", setting)]
    process = await asyncio.create_subprocess_exec(
        *("git", "-C", str(where), *options, *arguments),
        env=env,
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_GIT_S):
            output, errors = await process.communicate(stdin)
    except TimeoutError:
        raise Unbuildable(f"git {arguments[0]} took over {_GIT_S:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        said = errors.decode("utf-8", "replace").strip()[-2000:]
        raise GitFailed(f"git {arguments[0]} failed: {said or process.returncode}")
    return output
