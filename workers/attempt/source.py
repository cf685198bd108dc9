"""The code of an attempt, by git: the files of its tree, their identity, and their patch against the base."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from functions.formats.constants import patch_constants, settable_constants, trained_source, with_seeds
from functions.formats.metrics_block import FailureKind
from functions.formats.parsing import decoded
from functions.formats.patches import LONGEST_PATCH, applicable
from functions.kernel.git import command, environment
from functions.kernel.lanes import Source
from state.errors import Invalid, NightjarError
from state.noise import unseeded

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


Files = Mapping[str, bytes]
"""Mode and blob hash of each file of a tree, by its path."""


class UntrainableCode(NightjarError):
    """No worker will train this code."""

    title = "Code refused"
    kind: FailureKind = "patch"


@dataclass(frozen=True)
class Trees:
    """An attempt's files beside those of its tag's base commit."""

    files: Files
    base: Files | None
    """None where the tag names no base."""
    patch: bytes | None
    """The patch from the base to the files."""


async def trees(tree: Path, base: str | None) -> Trees:
    """Read a checkout from its index; nothing has run in it yet."""
    if base is None:
        return Trees(listed(await git(tree, "ls-files", "--stage", "-z")), None, None)
    ours, theirs, patch = await asyncio.gather(
        git(tree, "ls-files", "--stage", "-z"), git(tree, "ls-tree", "-r", "-z", base), _patch(tree, base)
    )
    return Trees(listed(ours), listed(theirs), patch)


async def source_of(
    tree: Path,
    code: Trees,
    base: str | None,
    sent: bytes | None,
    script: tuple[str, bytes] | None,
    *,
    is_rebuilt: bool,
) -> Source:
    """The identity of the code, with its patch if no patch was `sent` that produces these files.

    `is_rebuilt`: the tree was made with the sent patch. `script` is the path and the text of the training script with
    its constants set and with seeds that are the same for all runs.

    Raises:
        Refused: the patch is too long to be kept.
    """
    patch, differs = code.patch, False
    if base is None or sent == patch:
        patch = None
    elif sent is not None:
        differs = not is_rebuilt and await _made_by(tree, base, applicable(sent)) != code.files
        if not differs and sent == applicable(sent):
            patch = None
    if patch is not None and len(patch) > LONGEST_PATCH:
        raise UntrainableCode(
            f"the patch of this commit against the tag's base has {len(patch):,} bytes, over"
            f" {LONGEST_PATCH:,}: it could not be kept",
            hint="leave data and binaries out of the commit",
        )
    return Source(_identity(code.files, script), patch, differs)


def settled(
    source: bytes, values: Mapping[str, object], seed: int | None, judge: Path
) -> tuple[bytes, bytes]:
    """The script for this run, with a `judge` of its constants; and the script that is the same for all its runs.

    Constants that have their value already are left as they are. So is a script that does not parse: its run shows
    the error.

    Raises:
        Invalid: the script has no such constant, or is no Python.
    """
    try:
        text, encoding = decoded(source)
        settable_constants(text)
    except Invalid as problem:
        if not values:
            return source, source
        raise Invalid(f"no constants can be set: {problem.detail}", hint=problem.hint) from None
    script = trained_source(text, values, seed, str(judge))
    script_of_code = with_seeds(patch_constants(text, unseeded(values)), 0)
    return script.encode(encoding), script_of_code.encode(encoding)


async def _patch(tree: Path, base: str) -> bytes:
    """The patch from the base to the files, in UTF-8. If a text has another encoding, all is a binary patch."""
    command = (
        *("diff-index", "--cached", "--patch", "--binary", "--full-index", "--no-renames"),
        *("--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/"),
        *("--ignore-submodules=none", base),  # whatever a .gitmodules of the commit says
    )
    patch = await git(tree, *command)
    try:
        patch.decode()
    except UnicodeDecodeError:
        attributes = tree / ".git" / "info" / "attributes"
        attributes.parent.mkdir(exist_ok=True)
        attributes.write_text("* -diff\n")
        patch = await git(tree, *command)
        attributes.unlink()
    return patch


async def _made_by(tree: Path, base: str, patch: bytes) -> Files | None:
    """The files that result from a patch of the base; None if it does not apply."""
    index = {"GIT_INDEX_FILE": str(tree.parent / "index-of-patch")}
    await git(tree, "read-tree", base, environ=index)
    try:
        if patch:
            await git(
                tree, "apply", "--cached", "--binary", "--whitespace=nowarn", "-", stdin=patch, environ=index
            )
    except GitFailed:
        return None
    return listed(await git(tree, "ls-files", "--stage", "-z", environ=index))


def listed(answer: bytes) -> Files:
    """From `ls-files --stage -z` (mode, hash, stage) or `ls-tree -r -z` (mode, type, hash)."""
    found: dict[str, bytes] = {}
    for line in answer.split(b"\0")[:-1]:
        facts, _, path = line.partition(b"\t")
        mode, *rest = facts.split(b" ")
        found[os.fsdecode(path)] = mode + b" " + max(rest, key=len)
    return found


def _identity(files: Files, script: tuple[str, bytes] | None) -> str:
    """A hash of all files, with this text of the training script."""
    whole = hashlib.sha256()
    place, text = script or (None, b"")
    for path, blob in sorted(files.items()):
        content = hashlib.sha256(text).digest() if path == place else blob
        whole.update(os.fsencode(path) + b"\0" + content + b"\0")
    return whole.hexdigest()[:32]
