"""Code in the lab's clone: does a commit exist, can it be trained, and which commits lead to it?"""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from functions.formats.constants import patch_constants, settable_constants
from functions.formats.patches import applicable
from functions.formats.train_command import SCRIPT, no_script
from functions.kernel.git import command, environment
from functions.kernel.off_loop import Children
from state.errors import Conflict, Invalid
from state.settings import Settings

log = logging.getLogger(__name__)

T = TypeVar("T")

_TRY_S = 10.0
_CHAIN_S = 60.0
"""Longest time for what runs git hundreds of times, as for a chain of 20 keeps."""
_CACHED = ("--cached", "--binary", "--whitespace=nowarn")
_BLOB = re.compile(r"([0-9a-f]{40,64}) blob \d+")
_LONGEST_WORDS = 2000
_LONGEST_LINE = 200
"""Commits between a run's own and the tag's base in which its parent is looked for."""


@dataclass(frozen=True)
class Code:
    """Code to be trained: a commit, or else a patch on the base, with constants to set."""

    commit: str
    base: str | None
    patch: bytes | None
    constants: Mapping[str, object]
    seed: int | None = None
    scripts: Collection[tuple[str, ...]] = ((SCRIPT,),)
    """`Gpu.scripts` of the slots that may train it."""


async def check_trainable(clone: Path | None, children: Children, code: Code) -> None:
    """Refuse a patch that does not apply to the base, and constants or a seed that cannot be set in the code.

    It passes if the clone cannot tell: there is none, it has neither commit nor base, or the script does not parse.

    Raises:
        Invalid: git does not apply it, or a constant or the seed cannot be set. Exhausted: too many others are tried.
    """
    if clone is None or not asks_git(clone, code):
        return
    for script in await _answered(children, lambda folder: _scripts(clone, code, folder)) or ():
        await asyncio.to_thread(_check_constants, script, code.constants)


async def scripts_of(clone: Path, children: Children, code: Code) -> Sequence[str]:
    """The scripts in which workers would set constants of some code; empty if git cannot tell.

    Raises:
        Invalid: the patch does not apply, or there is no such script.
    """
    return await _answered(children, lambda folder: _scripts(clone, code, folder, to_read=True)) or ()


def asks_git(clone: Path | None, code: Code) -> bool:
    """Whether git has to be asked about some code. Raises Invalid: it sets constants, and no script takes them."""
    if code.constants and () in code.scripts:
        raise no_script(())
    is_as_it_is = not (code.patch or code.constants or (code.seed is not None and () in code.scripts))
    return clone is not None and not is_as_it_is


def _check_constants(script: str, values: Mapping[str, object]) -> None:
    try:
        settable_constants(script)
    except Invalid:
        return  # the worker says what is wrong with it
    patch_constants(script, values)


async def lacks(clone: Path, children: Children, commit: str) -> bool:
    """Whether the clone lacks this commit; False if git cannot tell. Raises Exhausted: too many others ask."""
    return await _answered(children, lambda folder: _are_missing(clone, [commit], folder)) == [True]


async def line_to_base(
    clone: Path, children: Children, commit: str, base: str, parents: Sequence[str]
) -> list[str] | None:
    """The ancestors of a commit down to the tag's base, nearest first.

    None if git cannot tell, if the clone lacks one of the `parents`, or if one of them is this commit.

    Raises:
        Exhausted: too many others ask.
    """
    return await _answered(children, lambda folder: _line_to_base(clone, commit, base, parents, folder))


@dataclass(frozen=True)
class WholeCode:
    """Code against a base commit: a patch, and constants in the first of these scripts that exists."""

    patch: bytes
    constants: Mapping[str, object]
    scripts: tuple[str, ...] = (SCRIPT,)


async def lines_between(
    clone: Path, children: Children, base: str, pairs: Sequence[tuple[WholeCode, WholeCode]]
) -> list[int] | None:
    """Lines that each change from one code to another adds and removes; None if git cannot tell."""

    async def ask(folder: Path) -> list[int]:
        trees, found = _Trees(clone, folder, base, await _apart(clone, folder)), []
        for before, after in pairs:
            told = await trees.git(
                "diff-tree", "-r", "--numstat", await trees.of(before), await trees.of(after)
            )
            counts = (word for line in told.splitlines() for word in line.split()[:2])
            found.append(sum(int(count) for count in counts if count.isdigit()))
        return found

    return await _answered(children, ask, _CHAIN_S)


async def recombined(
    clone: Path,
    children: Children,
    base: str,
    onto: WholeCode,
    changes: Sequence[tuple[WholeCode, WholeCode]],
) -> bytes | None:
    """The patch of a code after changes, each given as a code before and after it; None if git cannot tell.

    The code's own patch, if they change nothing.

    Raises:
        Conflict: a change does not apply there.
    """

    async def ask(folder: Path) -> bytes:
        trees = _Trees(clone, folder, base, await _apart(clone, folder))
        tree = first = await trees.of(onto)
        for before, after in changes:
            tree = await trees.merged(tree, await trees.of(before), await trees.of(after))
        if tree == first and not onto.constants:
            return onto.patch
        return await trees.diff(f"{base}^{{tree}}", tree)

    return await _answered(children, ask, _CHAIN_S)


@dataclass(frozen=True)
class _Trees:
    """Trees of codes, in objects of their own beside those of the clone."""

    clone: Path
    folder: Path
    base: str
    apart: Mapping[str, str]

    async def git(self, *arguments: str, stdin: bytes = b"") -> str:
        return await _git(self.clone, self.folder, *arguments, stdin=stdin, environ=self.apart)

    async def of(self, code: WholeCode) -> str:
        await self.git("read-tree", self.base)
        if code.patch:
            await self.git("apply", *_CACHED, stdin=applicable(code.patch))
        if code.constants:
            listed = (await self.git("ls-files", "-s", "--", *code.scripts)).splitlines()
            found = {line.partition("\t")[2]: line.split()[0] for line in listed}
            path = next((path for path in code.scripts if path in found), None)
            if path is None:
                raise no_script(code.scripts)
            script = patch_constants(await self.git("cat-file", "blob", f":{path}"), dict(code.constants))
            await self._put(found[path], path, script.encode())
        return (await self.git("write-tree")).strip()

    async def _put(self, mode: str, path: str, content: bytes) -> None:
        blob = (await self.git("hash-object", "-w", "--stdin", stdin=content)).strip()
        await self.git("update-index", "--cacheinfo", f"{mode},{blob},{path}")

    async def merged(self, onto: str, before: str, after: str) -> str:
        """The tree after the same change. Raises Conflict: it does not apply there."""
        change = await self.diff(before, after)
        await self.git("read-tree", onto)
        if change:
            try:
                await self.git("apply", *_CACHED, "--3way", stdin=change)
            except Untold as refusal:
                if not await self._is_replaced(onto, before, after):
                    raise Conflict(
                        f"the change does not apply there: {refusal}", hint="it is built on others"
                    ) from None
        return (await self.git("write-tree")).strip()

    async def _is_replaced(self, onto: str, before: str, after: str) -> bool:
        """Whether the change's own lines could be replaced. Git refuses that where a neighbouring line has changed.

        Not if a file is new or gone, or if lines were only added, or are not there exactly once.
        """
        await self.git("read-tree", onto)
        changed = await self.git("diff-tree", "-r", "-z", "--name-only", before, after)
        for path in filter(None, changed.split("\0")):
            hunks = _hunks(await self.diff(before, after, path))
            listed = (await self.git("ls-tree", onto, "--", path)).split()
            if not hunks or not listed:
                return False
            whole = b"\n" + await self._bytes("cat-file", "blob", listed[2])
            for old, new in hunks:
                if not old or whole.count(b"\n" + old) != 1:
                    return False
                whole = whole.replace(b"\n" + old, b"\n" + new)
            await self._put(listed[0], path, whole[1:])
        return True

    async def diff(self, before: str, after: str, path: str | None = None) -> bytes:
        """The whole change, or without context that of one file."""
        options = [
            "-p",
            "--binary",
            "--full-index",
            "--no-color",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
        ]
        alone, named = ([], []) if path is None else (["-U0"], ["--", path])
        return await self._bytes("diff-tree", *options, *alone, before, after, *named)

    async def _bytes(self, *arguments: str) -> bytes:
        return await _git_bytes(self.clone, self.folder, *arguments, environ=self.apart)


def _hunks(diff: bytes) -> list[tuple[bytes, bytes]]:
    """Lines before and after each hunk of a file's diff without context; none if it is new, gone or binary."""
    head, *hunks = re.split(rb"(?m)^@@ .*\n", diff)
    if b"\nnew file" in head or b"\ndeleted file" in head or b"\n\\ No newline" in diff:
        return []
    return [
        (b"".join(re.findall(rb"(?m)^-(.*\n)", hunk)), b"".join(re.findall(rb"(?m)^\+(.*\n)", hunk)))
        for hunk in hunks
    ]


class Untold(Exception):
    """Git failed; the message is its error output."""


async def _answered(
    children: Children, ask: Callable[[Path], Awaitable[T]], within_s: float = _TRY_S
) -> T | None:
    """Git's answer, with a temporary folder to write in; None: no answer."""
    async with children.one():
        with tempfile.TemporaryDirectory(prefix="nightjar-git-", ignore_cleanup_errors=True) as made:
            try:
                async with asyncio.timeout(within_s):
                    return await ask(Path(made))
            except (TimeoutError, OSError, Untold) as cause:
                log.warning("git did not answer in the lab's clone: %s", cause or "no time left")
                return None


async def _scripts(clone: Path, code: Code, folder: Path, *, to_read: bool = False) -> list[str]:
    """The scripts in which workers would set the constants; empty if git cannot tell.

    Empty also without constants, unless they are `to_read`.

    Raises:
        Invalid: the patch does not apply, there is no such script, or nothing would take the seed.
    """
    known = [sha for sha in (code.commit, code.base) if sha is not None]
    lacks_commit, *lacks_base = await _are_missing(clone, known, folder)
    tree, apart = code.commit, {}
    if lacks_commit:
        if not code.patch or code.base is None or lacks_base != [False]:
            return []
        tree = ""  # what is in the index
        apart = await _apart(clone, folder)
        await _git(clone, folder, "read-tree", code.base)
        try:
            await _git(clone, folder, "apply", *_CACHED, stdin=applicable(code.patch), environ=apart)
        except Untold as refusal:
            raise Invalid(
                f"the patch does not apply to the tag's base commit {code.base}: {refusal}",
                hint=f"send the whole patch against that commit: git diff --binary {code.base}",
                fields={"code": "patch"},
            ) from refusal
    if code.seed is not None and () in code.scripts:
        where = [tree] if tree else ["--cached"]
        try:
            await _git(clone, folder, "grep", "-q", "-F", "NIGHTJAR_SEED", *where, environ=apart)
        except Untold:
            raise no_script(()) from None
    if not code.constants and not to_read:
        return []
    return [await _script(clone, tree, scripts, folder, apart) for scripts in code.scripts]


async def _apart(clone: Path, folder: Path) -> dict[str, str]:
    """Variables with which git writes new objects into `folder`."""
    objects = await _git(clone, folder, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    return {"GIT_OBJECT_DIRECTORY": str(folder), "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects.strip()}


async def _script(
    clone: Path, tree: str, scripts: Sequence[str], folder: Path, apart: Mapping[str, str]
) -> str:
    """The first of these files that a tree has. Raises Invalid: it has none."""
    asked = "".join(f"{tree}:{path}\n" for path in scripts).encode()
    told = await _git(clone, folder, "cat-file", "--batch-check", stdin=asked, environ=apart)
    blob = next((found[1] for line in told.splitlines() if (found := _BLOB.fullmatch(line))), None)
    if blob is None:
        raise no_script(scripts)
    return await _git(clone, folder, "cat-file", "blob", blob, environ=apart)


async def _line_to_base(
    clone: Path, commit: str, base: str, parents: Sequence[str], folder: Path
) -> list[str] | None:
    own, end, *others = await _hashes(clone, [commit, base, *parents], folder)
    if own is None or end is None or None in others or own in others:
        return None
    most = f"--max-count={_LONGEST_LINE}"
    line = (await _git(clone, folder, "rev-list", "--topo-order", "--boundary", most, own, f"^{end}")).split()
    if own == end:
        return [end]
    above = [found for found in line[1:] if not found.startswith("-")]
    return [*above, end] if f"-{end}" in line else None


async def _are_missing(clone: Path, commits: Sequence[str], folder: Path) -> list[bool]:
    return [found is None for found in await _hashes(clone, commits, folder)]


async def _hashes(clone: Path, commits: Sequence[str], folder: Path) -> list[str | None]:
    """The whole hash of each of these commits; None: the clone lacks it."""
    asked = "".join(f"{commit}^{{commit}}\n" for commit in commits).encode()
    told = await _git(clone, folder, "cat-file", "--batch-check", stdin=asked)
    words = [line.split() for line in told.splitlines()]
    return [found[0] if found[1:2] == ["commit"] else None for found in words]


async def _git(
    clone: Path,
    folder: Path,
    *arguments: str,
    stdin: bytes = b"",
    environ: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Git's output in the clone, with its index in `folder`. Raises Untold: an error. OSError: missing, or killed."""
    output = await _git_bytes(clone, folder, *arguments, stdin=stdin, environ=environ)
    return output.decode("utf-8", "replace")


async def _git_bytes(
    clone: Path,
    folder: Path,
    *arguments: str,
    stdin: bytes = b"",
    environ: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    env = environment(GIT_INDEX_FILE=str(folder / "index"), **environ)
    said = folder / "said"
    await asyncio.to_thread(said.write_bytes, stdin)
    child = _started(command(clone, *arguments), env, said)
    try:
        output, errors = await asyncio.to_thread(child.communicate)
    finally:
        child.kill()  # nothing where it has ended
        child.wait()
    if child.returncode < 0:
        raise OSError(f"git {arguments[0]} ended by the signal {-child.returncode}")
    if child.returncode > 0:
        raise Untold(errors.decode("utf-8", "replace").strip()[-_LONGEST_WORDS:])
    return output


def _started(argv: Sequence[str], env: Mapping[str, str], said: Path) -> subprocess.Popen[bytes]:
    """Not by uvloop, which forks: in a process of 600 MB that takes 40 ms of CPU, and this 2 ms."""
    with said.open("rb") as file:
        return subprocess.Popen(argv, env=env, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


MOST_BYTES = 1024 * 1024
"""Of a script that is read from the lab's clone."""


def script_of(settings: Settings) -> str | None:
    """Text of train.py in the lab's clone; None if there is none of at most MOST_BYTES. Blocks."""
    if settings.clone is None:
        return None
    try:
        with (settings.clone / SCRIPT).open("rb") as file:
            found = file.read(MOST_BYTES + 1)
        return None if len(found) > MOST_BYTES else found.decode()
    except (OSError, UnicodeDecodeError):
        return None
