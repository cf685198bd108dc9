"""Code in the lab's clone: does a commit exist, can it be trained, and which commits lead to it?"""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
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
    for script in await _answered(clone, children, lambda git: _scripts(git, code)) or ():
        await asyncio.to_thread(_check_constants, script, code.constants)


async def scripts_of(clone: Path, children: Children, code: Code) -> Sequence[str]:
    """The scripts in which workers would set constants of some code; empty if git cannot tell.

    Raises:
        Invalid: the patch does not apply, or there is no such script.
    """
    return await _answered(clone, children, lambda git: _scripts(git, code, to_read=True)) or ()


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
    return await _answered(clone, children, lambda git: git.hashes(commit)) == [None]


async def line_to_base(
    clone: Path, children: Children, commit: str, base: str, parents: Sequence[str]
) -> list[str] | None:
    """The ancestors of a commit down to the tag's base, nearest first.

    None if git cannot tell, if the clone lacks one of the `parents`, or if one of them is this commit.

    Raises:
        Exhausted: too many others ask.
    """
    return await _answered(clone, children, lambda git: _line_to_base(git, commit, base, parents))


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

    async def ask(git: _Git) -> list[int]:
        trees, found = _Trees(await git.apart(), base), []
        for before, after in pairs:
            both = await trees.of(before), await trees.of(after)
            told = await trees.git.says("diff-tree", "-r", "--numstat", *both)
            counts = (word for line in told.splitlines() for word in line.split()[:2])
            found.append(sum(int(count) for count in counts if count.isdigit()))
        return found

    return await _answered(clone, children, ask, _CHAIN_S)


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

    async def ask(git: _Git) -> bytes:
        trees = _Trees(await git.apart(), base)
        tree = first = await trees.of(onto)
        for before, after in changes:
            tree = await trees.merged(tree, await trees.of(before), await trees.of(after))
        if tree == first and not onto.constants:
            return onto.patch
        return await trees.diff(f"{base}^{{tree}}", tree)

    return await _answered(clone, children, ask, _CHAIN_S)


@dataclass(frozen=True)
class _Trees:
    """Trees of codes, in objects of their own beside those of the clone."""

    git: _Git
    base: str

    async def of(self, code: WholeCode) -> str:
        await self.git.says("read-tree", self.base)
        if code.patch:
            await self.git.says("apply", *_CACHED, stdin=applicable(code.patch))
        if code.constants:
            listed = (await self.git.says("ls-files", "-s", "--", *code.scripts)).splitlines()
            found = {line.partition("\t")[2]: line.split()[0] for line in listed}
            path = next((path for path in code.scripts if path in found), None)
            if path is None:
                raise no_script(code.scripts)
            script = patch_constants(
                await self.git.says("cat-file", "blob", f":{path}"), dict(code.constants)
            )
            await self._put(found[path], path, script.encode())
        return (await self.git.says("write-tree")).strip()

    async def _put(self, mode: str, path: str, content: bytes) -> None:
        blob = (await self.git.says("hash-object", "-w", "--stdin", stdin=content)).strip()
        await self.git.says("update-index", "--cacheinfo", f"{mode},{blob},{path}")

    async def merged(self, onto: str, before: str, after: str) -> str:
        """The tree after the same change. Raises Conflict: it does not apply there."""
        change = await self.diff(before, after)
        await self.git.says("read-tree", onto)
        if change:
            try:
                await self.git.says("apply", *_CACHED, "--3way", stdin=change)
            except Untold as refusal:
                if not await self._is_replaced(onto, before, after):
                    raise Conflict(
                        f"the change does not apply there: {refusal}", hint="it is built on others"
                    ) from None
        return (await self.git.says("write-tree")).strip()

    async def _is_replaced(self, onto: str, before: str, after: str) -> bool:
        """Whether the change's own lines could be replaced. Git refuses that where a neighbouring line has changed.

        Not if a file is new or gone, or if lines were only added, or are not there exactly once.
        """
        await self.git.says("read-tree", onto)
        changed = await self.git.says("diff-tree", "-r", "-z", "--name-only", before, after)
        for path in filter(None, changed.split("\0")):
            hunks = _hunks(await self.diff(before, after, path))
            listed = (await self.git.says("ls-tree", onto, "--", path)).split()
            if not hunks or not listed:
                return False
            whole = b"\n" + await self.git.output("cat-file", "blob", listed[2])
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
        return await self.git.output("diff-tree", *options, *alone, before, after, *named)


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
    clone: Path, children: Children, ask: Callable[[_Git], Awaitable[T]], within_s: float = _TRY_S
) -> T | None:
    """Git's answer; None: no answer."""
    async with children.one():
        with tempfile.TemporaryDirectory(prefix="nightjar-git-", ignore_cleanup_errors=True) as made:
            try:
                async with asyncio.timeout(within_s):
                    return await ask(_Git(clone, Path(made)))
            except (TimeoutError, OSError, Untold) as cause:
                log.warning("git did not answer in the lab's clone: %s", cause or "no time left")
                return None


async def _scripts(git: _Git, code: Code, *, to_read: bool = False) -> list[str]:
    """The scripts in which workers would set the constants; empty if git cannot tell.

    Empty also without constants, unless they are `to_read`.

    Raises:
        Invalid: the patch does not apply, there is no such script, or nothing would take the seed.
    """
    commit, *base = await git.hashes(*(sha for sha in (code.commit, code.base) if sha is not None))
    tree = code.commit
    if commit is None:
        if not code.patch or code.base is None or base == [None]:
            return []
        tree = ""  # what is in the index
        git = await git.apart()
        await git.says("read-tree", code.base)
        try:
            await git.says("apply", *_CACHED, stdin=applicable(code.patch))
        except Untold as refusal:
            raise Invalid(
                f"the patch does not apply to the tag's base commit {code.base}: {refusal}",
                hint=f"send the whole patch against that commit: git diff --binary {code.base}",
                fields={"code": "patch"},
            ) from refusal
    if code.seed is not None and () in code.scripts:
        try:
            await git.says("grep", "-q", "-F", "NIGHTJAR_SEED", tree or "--cached")
        except Untold:
            raise no_script(()) from None
    if not code.constants and not to_read:
        return []
    return [await _script(git, tree, scripts) for scripts in code.scripts]


async def _script(git: _Git, tree: str, scripts: Sequence[str]) -> str:
    """The first of these files that a tree has. Raises Invalid: it has none."""
    told = await git.says("cat-file", "--batch-check", stdin=_lines(f"{tree}:{path}" for path in scripts))
    blob = next((found[1] for line in told.splitlines() if (found := _BLOB.fullmatch(line))), None)
    if blob is None:
        raise no_script(scripts)
    return await git.says("cat-file", "blob", blob)


async def _line_to_base(git: _Git, commit: str, base: str, parents: Sequence[str]) -> list[str] | None:
    own, end, *others = await git.hashes(commit, base, *parents)
    if own is None or end is None or None in others or own in others:
        return None
    most = f"--max-count={_LONGEST_LINE}"
    line = (await git.says("rev-list", "--topo-order", "--boundary", most, own, f"^{end}")).split()
    if own == end:
        return [end]
    above = [found for found in line[1:] if not found.startswith("-")]
    return [*above, end] if f"-{end}" in line else None


def _lines(words: Iterable[str]) -> bytes:
    return "".join(f"{word}\n" for word in words).encode()


@dataclass(frozen=True)
class _Git:
    """Git in the lab's clone, with its index in a temporary folder."""

    clone: Path
    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)

    async def apart(self) -> _Git:
        """The same, but new objects are written into the folder."""
        objects = await self.says("rev-parse", "--path-format=absolute", "--git-path", "objects")
        places = {
            "GIT_OBJECT_DIRECTORY": str(self.folder),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": objects.strip(),
        }
        return replace(self, environ=places)

    async def hashes(self, *commits: str) -> list[str | None]:
        """The whole hash of each of these commits; None: the clone lacks it."""
        asked = _lines(f"{commit}^{{commit}}" for commit in commits)
        words = [
            line.split() for line in (await self.says("cat-file", "--batch-check", stdin=asked)).splitlines()
        ]
        return [found[0] if found[1:2] == ["commit"] else None for found in words]

    async def says(self, *arguments: str, stdin: bytes = b"") -> str:
        """Git's output as text."""
        return (await self.output(*arguments, stdin=stdin)).decode("utf-8", "replace")

    async def output(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """Git's output. Raises Untold: an error. OSError: git is missing, or was killed."""
        env = environment(GIT_INDEX_FILE=str(self.folder / "index"), **self.environ)
        said = self.folder / "said"
        await asyncio.to_thread(said.write_bytes, stdin)
        child = _started(command(self.clone, *arguments), env, said)
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
