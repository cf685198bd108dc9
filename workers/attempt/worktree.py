"""A private checkout for one attempt; it never changes the operator's clone.

Each attempt gets its own repository, which reads the clone's objects through `objects/info/alternates`.
Unlike `git worktree add` this takes no lock and writes nothing in the clone: any number of workers can check
out at once, a killed worker leaves nothing to prune, and a script that runs git cannot change our branches.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from functions.formats.patches import applicable
from functions.formats.train_command import SCRIPT, no_script
from functions.kernel.lanes import Source
from workers.attempt.beside_commit import completed, start_repository
from workers.attempt.evaluator import EvaluatorGuard
from workers.attempt.job import TrainingJob
from workers.attempt.source import (
    GitFailed,
    Unbuildable,
    UntrainableCode,
    git,
    listed,
    settled,
    source_of,
    trees,
)
from workers.attempt.usage import LARGEST_FILE, remove_tree

_SHA = re.compile(r"[0-9a-fA-F]{7,40}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_COMPILED = "__pycache__"
JUDGE = Path(__file__).with_name("child_path") / "nightjar_constants.py"
"""Module by which a script ends itself when it sets a constant again."""


@dataclass(frozen=True)
class Checkout:
    path: Path
    folder: Path
    """The attempt's folder, which holds the tree, the log and temporary files."""
    source: Source
    files: frozenset[str]
    """Paths of all that was checked out."""
    guard: EvaluatorGuard | None
    """The files that must not change. None if the tag's base has no such evaluator."""
    evaluator_hash: str | None
    """First 16 hexadecimal digits of the SHA-256 of the evaluator in the tree; see `EvaluatorGuard.fingerprint`."""
    empty: Sequence[str] = ()
    """Submodules that the project has no copy of."""

    def harm(self) -> str | None:
        """How the run has changed its evaluator; None: it has not."""
        return self.guard.harm(self.path, self.evaluator_hash, self.files) if self.guard else None


Checkouts = Callable[[Path, TrainingJob, Path], AbstractAsyncContextManager[Checkout]]
"""Makes the tree of a job of this project, in a folder of its own below the last path; raises as `checkout`."""


@contextlib.asynccontextmanager
async def checkout(
    repo: Path,
    job: TrainingJob,
    root_dir: Path,
    scripts: Sequence[str] = (SCRIPT,),
    links: Sequence[str] = (),
) -> AsyncIterator[Checkout]:
    """Check out the job's commit, or its base plus its patch; the folder is removed at the end.

    Constants are set in the first of the `scripts` that is there. `links`: data of the project that runs get beside
    the commit's files.

    Raises:
        Unbuildable: a fault of the clone or the disk. Refused: the patch does not apply, or the code changes the
            evaluator. Invalid: the script cannot take the `config_delta`.
    """
    folder = root_dir / _folder_name(job)
    _remove_leftovers(root_dir, job)
    try:
        try:
            built = await _build(repo, job, folder, scripts, links)
        except OSError as error:
            raise Unbuildable(
                f"cannot write the checkout: {error}", hint=f"make room under {str(root_dir)!r}"
            ) from error
        yield built
    finally:
        remove_tree(folder)


async def _build(
    repo: Path, job: TrainingJob, folder: Path, scripts: Sequence[str], links: Sequence[str]
) -> Checkout:
    evaluator = _check_names(job)
    tree = folder / "tree"
    tree.mkdir(parents=True)
    commit, base, trusted, _ = await asyncio.gather(
        _commit(repo, job.commit_sha),
        _commit(repo, job.base_commit),
        _evaluator_of_base(repo, job),
        start_repository(repo, tree),
    )
    await _check_out(repo, tree, job, commit, base)
    code = await trees(tree, base)
    guard = None
    if trusted is None and job.evaluator_command is not None:
        raise Unbuildable(
            f"the evaluator {evaluator} is no file of the tag's base commit, and its command is to measure the score",
            hint="an operator sets up another tag whose base commit has it",
        )
    if trusted is not None:
        guard = EvaluatorGuard.of(evaluator, trusted, job.evaluator_files, job.evaluator_command)
        guard.check(code.files, code.base or {})
        _restore_evaluator(tree, trusted, evaluator)
    beside = await completed(repo, tree, code.files, links)
    _remove_compiled(tree, (*code.files, *beside.files))
    script = _set_constants(tree, job, scripts)
    source = await source_of(tree, code, base, job.patch, script, is_rebuilt=commit is None)
    source = replace(source, tree_id=beside.identity(source.tree_id))
    whose = guard or EvaluatorGuard.of(evaluator, b"", job.evaluator_files)
    files = frozenset((*code.files, *beside.known()))
    return Checkout(tree, folder, source, files, guard, whose.fingerprint(tree), beside.empty)


async def write_base(repo: Path, job: TrainingJob, files: Path, links: Sequence[str] = ()) -> None:
    """Write the files of the tag's base commit, and no repository, into an empty folder."""
    base, trusted = await asyncio.gather(_commit(repo, job.base_commit), _evaluator_of_base(repo, job))
    if base is None or trusted is None:
        raise _missing(f"base {job.base_commit!r}, the evaluator's commit,", repo)
    await start_repository(repo, files)
    await git(files, "checkout", "--quiet", "--detach", "--force", base)
    written = listed(await git(files, "ls-files", "--stage", "-z"))
    beside = await completed(repo, files, written, links)
    remove_tree(files / ".git")
    _remove_compiled(files, (*written, *beside.files))
    _restore_evaluator(files, trusted, _inside(job.evaluator))


async def _check_out(repo: Path, tree: Path, job: TrainingJob, commit: str | None, base: str | None) -> None:
    """Write the files of the commit, or of the base with the patch."""
    if commit is None and (base is None or job.patch is None):
        missing = f"commit {job.commit_sha!r}" + (
            "" if job.patch is None else f" and its base {job.base_commit!r}"
        )
        raise _missing(missing, repo, ", or register the experiment with its diff")
    if job.base_commit is not None and base is None:
        raise _missing(f"base {job.base_commit!r}, the evaluator's commit,", repo)
    await git(tree, "checkout", "--quiet", "--detach", "--force", commit or base or "")
    if commit is None and job.patch:
        try:
            await git(
                tree, "apply", "--index", "--binary", "--whitespace=nowarn", "-", stdin=applicable(job.patch)
            )
        except GitFailed as error:
            raise UntrainableCode(
                f"the patch does not apply to the tag's base commit {job.base_commit}: {error.detail}",
                hint="send the whole patch against that commit: git diff --binary <base commit>",
            ) from error


def _check_names(job: TrainingJob) -> PurePosixPath:
    for sha in (job.commit_sha, job.base_commit):
        if sha is not None and not _SHA.fullmatch(sha):
            raise Unbuildable(
                f"{sha!r} is not a commit hash of 7 to 40 hexadecimal digits", hint="register the full hash"
            )
    for path in job.evaluator_files:
        _inside(path)
    return _inside(job.evaluator)


def _missing(what: str, repo: Path, remedy: str = "") -> Unbuildable:
    return Unbuildable(
        f"{what} is not in the clone {str(repo)!r}", hint=f"run `git -C {repo} fetch --all`{remedy}"
    )


async def _commit(repo: Path, sha: str | None) -> str | None:
    """The full hash of a commit in the clone, else None; a branch whose name looks like a hash does not count."""
    if sha is None:
        return None
    asked = f"{sha}^{{commit}}\n{sha}^{{tree}}\n".encode()
    told = (await git(repo, "cat-file", "--batch-check", stdin=asked)).decode().splitlines()
    (full, kind, *_), (_, kind_of_tree, *_) = (line.split() for line in told)
    is_there = (kind, kind_of_tree) == ("commit", "tree") and full.startswith(sha.lower())
    return full if is_there else None


async def _evaluator_of_base(repo: Path, job: TrainingJob) -> bytes | None:
    """The base's evaluator; None if the job names no base, or the base has no evaluator."""
    if job.base_commit is None:
        return None
    try:
        return await git(repo, "cat-file", "blob", f"{job.base_commit}:{_inside(job.evaluator)}")
    except GitFailed:
        return None


def _restore_evaluator(tree: Path, trusted: bytes, evaluator: PurePosixPath) -> None:
    """Write the evaluator as the base has it, whatever a commit's attributes say of line ends."""
    place = tree / evaluator
    place.unlink(missing_ok=True)
    place.write_bytes(trusted)
    place.chmod(0o444)


def _remove_compiled(tree: Path, files: Iterable[str]) -> None:
    """Remove committed `__pycache__` folders: Python may run their code instead of the source beside them."""
    folders = {parent for path in files for parent in PurePosixPath(path).parents if parent.name == _COMPILED}
    for folder in folders:
        remove_tree(tree / folder)


def _set_constants(tree: Path, job: TrainingJob, scripts: Sequence[str]) -> tuple[str, bytes] | None:
    """Write `config_delta` and the seed into the script; answers its path, and its text as for any seed."""
    values = dict(job.config_delta or {})
    found = ((path, source) for path in scripts if (source := read_inside(tree, path)) is not None)
    path, source = next(found, ("", b""))
    if not path:
        if values:
            raise no_script(scripts)
        return None
    script, of_any_seed = settled(source, values, job.seed, JUDGE)
    if script != source:
        (tree / path).write_bytes(script)
    return path, of_any_seed


def read_inside(tree: Path, relative: str) -> bytes | None:
    """A regular file of an untrusted tree; None for links, pipes, devices and files over LARGEST_FILE."""
    path = tree / _inside(relative)
    try:
        if path.parent.resolve() != (tree.resolve() / _inside(relative)).parent:
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_FILE:
                return None
            return file.read(LARGEST_FILE)
    except OSError:
        return None


def _inside(relative: str) -> PurePosixPath:
    path = PurePosixPath(relative)
    if path.is_absolute() or not path.parts or ".." in path.parts or path.parts[0].lower() == ".git":
        raise Unbuildable(
            f"{relative!r} is not a path inside the repository", hint="name the evaluator by such a path"
        )
    return path


def _folder_name(job: TrainingJob) -> str:
    if not _NAME.fullmatch(job.experiment_id):
        raise Unbuildable(f"{job.experiment_id!r} is not an experiment id")
    return f"{job.experiment_id}@{job.attempt}@{job.fence}"


def _remove_leftovers(root_dir: Path, job: TrainingJob) -> None:
    """Remove folders of the same attempt that a killed worker left; one with a higher fence is in use."""
    for fence, left in checkouts_in(root_dir):
        if left.name.startswith(f"{job.experiment_id}@{job.attempt}@") and fence <= job.fence:
            remove_tree(left)


def checkouts_in(root_dir: Path) -> list[tuple[int, Path]]:
    """The folders of attempts, each with its lease's fence."""
    found = ((path.name.rpartition("@")[2], path) for path in root_dir.glob("*@*@*"))
    return [(int(fence), path) for fence, path in found if fence.isdecimal()]
