"""Runs git for a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from functions.kernel.git import command, environment
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
    """Output of one git command in a folder. Raises GitFailed: an error. Unbuildable: it took too long."""
    process = await asyncio.create_subprocess_exec(
        *command(where, *arguments),
        env=environment(**environ),
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
