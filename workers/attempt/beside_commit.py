"""What an attempt's checkout gets beside the files of its commit: submodules, files of Git LFS, the owner's data.

All of it comes from the project on this machine. Nothing of the commit has run yet, but its symbolic links, pointers
and submodules may be made to lead elsewhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath

from functions.kernel.process.run_files import (
    common_dir,
    fetch,
    has_object,
    lfs_store,
    own_copy,
    pointers,
    pull,
    untracked_in,
)
from state.errors import NightjarError
from workers.attempt.source import Files, GitFailed, Unbuildable, UntrainableCode, git, listed
from workers.attempt.usage import LARGEST_FILE

_SUBMODULE = b"160000 "
"""Mode of a submodule in git's lists."""
MOST_COPIED = 16 * LARGEST_FILE
"""Bytes of Git LFS that are copied for a checkout; what is beyond is linked, as large files are."""
MOST_STAMPED = 100_000
"""Files of linked data that its identity rests on, in the order of their names."""


@dataclass(frozen=True)
class Beside:
    files: Sequence[str] = ()
    """Of its submodules."""
    empty: Sequence[str] = ()
    """Submodules that the project has no copy of."""
    linked: Mapping[str, bytes] = field(default_factory=dict)
    """Paths of linked data, each with a digest of paths, sizes and times."""

    def known(self) -> Iterator[str]:
        """Paths that no run has made."""
        yield from self.files
        for path in self.linked:
            yield from (path, f"{path}/__init__.py")

    def identity(self, tree_id: str) -> str:
        """The identity of the code with its data."""
        if not self.linked:
            return tree_id
        whole = hashlib.sha256(tree_id.encode())
        for path, stamp in sorted(self.linked.items()):
            whole.update(b"\0" + os.fsencode(path) + b"\0" + stamp)
        return whole.hexdigest()[:32]


async def completed(repo: Path, tree: Path, code: Files, links: Sequence[str]) -> Beside:
    """Fill submodules and files of Git LFS, and link the data that the project's owner names.

    `code` is what was checked out.

    Raises:
        Unbuildable: the project lacks linked data, an object of Git LFS or a submodule's commit. Refused: the commit
            has files in the place of linked data.
    """
    if gone := [name for name in links if not (repo / name).exists()]:
        raise Unbuildable(
            f"{', '.join(gone)} is to be linked into runs, and {repo} no longer has it",
            hint="bring it back, or start the worker again without it",
        )
    files, empty = await _filled(repo, tree, code)
    linked = {}
    if links:
        names = (f":(literal){name}" for name in links)
        found = await git(repo, "ls-files", "--others", "--directory", "-z", "--", *names)
        linked = await asyncio.to_thread(_linked, repo, tree, untracked_in(os.fsdecode(found)))
    return Beside(files, empty, linked)


async def start_repository(repo: Path, tree: Path) -> None:
    """Make an empty repository with the objects of another, and none of its configuration."""
    try:
        common, _ = await asyncio.gather(
            asyncio.to_thread(common_dir, repo), git(tree, "init", "--quiet", "--template=")
        )
    except NightjarError as problem:
        raise Unbuildable(problem.detail) from problem
    alternates = tree / ".git" / "objects" / "info" / "alternates"
    alternates.parent.mkdir(parents=True, exist_ok=True)
    alternates.write_bytes(os.fsencode(common / "objects") + b"\n")


async def _filled(repo: Path, tree: Path, code: Files) -> tuple[list[str], list[str]]:
    """Fill a checkout of this repository; answers the files of its submodules, and those that stay empty."""
    if any(PurePosixPath(path).name == ".gitattributes" for path in code):
        await asyncio.to_thread(_fill_pointers, repo, tree)
    files, empty = [], []
    for path in (path for path, blob in code.items() if blob.startswith(_SUBMODULE)):
        own, place = await asyncio.to_thread(own_copy, repo, path), tree / path
        if own is None:
            empty.append(path)
            continue
        place.mkdir(exist_ok=True)
        await start_repository(own, place)
        sha = code[path].removeprefix(_SUBMODULE).decode()
        try:
            await git(place, "checkout", "--quiet", "--detach", "--force", sha)
        except GitFailed as error:
            raise Unbuildable(
                f"the submodule {path} is at {sha}, and the project's copy of it, {own}, does not have that:"
                f" {error.detail}",
                hint=f"run `{fetch(repo)}`, or fetch that commit there",
            ) from error
        inner = listed(await git(place, "ls-files", "--stage", "-z"))
        inner_files, inner_empty = await _filled(own, place, inner)
        await asyncio.to_thread(shutil.rmtree, place / ".git")
        files += [f"{path}/{name}" for name in (*inner, *inner_files)]
        empty += [f"{path}/{name}" for name in inner_empty]
    return files, empty


def _fill_pointers(repo: Path, tree: Path) -> None:
    """Put the content of files of Git LFS in the place of their pointers: a copy, or a link to a large one."""
    found = dict(pointers(tree))
    if not found:
        return
    store = lfs_store(repo)
    missing = [path for path, pointer in found.items() if not has_object(store, pointer)]
    if missing:
        raise Unbuildable(
            f"Git LFS has not fetched {', '.join(missing[:5])}: the project's store {store} lacks the content",
            hint=f"run `{pull(repo)}`",
        )
    room = MOST_COPIED
    for path, pointer in found.items():
        place, content = tree / path, store / pointer.place
        if pointer.size <= min(room, LARGEST_FILE):
            room -= pointer.size
            shutil.copyfile(content, place)
        else:
            place.unlink()
            place.symlink_to(content)


def _linked(repo: Path, tree: Path, paths: Sequence[str]) -> dict[str, bytes]:
    """Link to these paths of a project; answers a digest of each."""
    for path in paths:
        place = tree
        for part in PurePosixPath(path).parts[:-1]:
            place /= part
            if not os.path.lexists(place):
                place.mkdir()
            _check_is_folder(place, path)
        _link(place / PurePosixPath(path).name, (repo / path).resolve(), path)
    return {path: _stamp((repo / path).resolve()) for path in paths}


def _link(place: Path, data: Path, path: str) -> None:
    """Link to data; where the commit has a folder in its place, to each entry of the data from there."""
    if not os.path.lexists(place):
        place.symlink_to(data)
        return
    _check_is_folder(place, path)
    _check_is_folder(data, path)
    for entry in data.iterdir():
        _link(place / entry.name, entry, path)


def _check_is_folder(place: Path, path: str) -> None:
    if place.is_symlink() or not place.is_dir():
        raise UntrainableCode(
            f"the commit has {place.name!r} in the place of {path}, which runs get from the project",
            hint="leave it out of the commit, or have the lab's owner link no data there",
        )


def _stamp(data: Path) -> bytes:
    """Digest of path, size and time of the files that are or lie in a place."""
    whole = hashlib.sha256()
    for path in islice(_files_of(data), MOST_STAMPED):
        try:
            status = os.stat(path)
            facts = f"{status.st_size} {status.st_mtime_ns}"
        except OSError as problem:  # a link to nowhere
            facts = problem.strerror or ""
        whole.update(os.fsencode(path.removeprefix(str(data))) + b"\0" + facts.encode() + b"\0")
    return whole.digest()


def _files_of(data: Path) -> Iterator[str]:
    if not data.is_dir():
        yield str(data)
    for folder, folders, names in os.walk(data):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        yield from (os.path.join(folder, name) for name in sorted((*names, *links)))
