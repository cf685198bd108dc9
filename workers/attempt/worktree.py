"""A private checkout for one attempt; it never changes the operator's clone.

Each attempt gets its own repository, which reads the clone's objects through `objects/info/alternates`.
Unlike `git worktree add` this takes no lock and writes nothing in the clone: any number of workers can check
out at once, a killed worker leaves nothing to prune, and a script that runs git cannot change our branches.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import shutil
import stat
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from functions.formats.constants import patch_constants, read_constants
from functions.lanes import TrainingJob
from state.errors import Invalid, NightjarError

_SHA = re.compile(r"[0-9a-fA-F]{7,40}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_GIT_S = 300.0
LARGEST_FILE = 16 * 1024 * 1024

SCRIPT = "train.py"


class Unbuildable(NightjarError):
    """The worker cannot check this attempt out; it is not the experiment's fault."""

    title = "Checkout failed"


@dataclass(frozen=True)
class Checkout:
    path: Path
    """The tree to train in."""
    folder: Path
    """The attempt's folder, which holds the tree, the log and temporary files."""
    evaluator_hash: str | None
    """First 16 hexadecimal digits of the SHA-256 of the evaluator in the tree."""


@contextlib.asynccontextmanager
async def checkout(repo: Path, job: TrainingJob, root_dir: Path) -> AsyncIterator[Checkout]:
    """Check out the job's commit, or its base plus its patch; the evaluator always comes from the base.

    The folder is removed at the end. Raises Unbuildable for a fault of the clone or the disk, Invalid for a
    `config_delta` that the script cannot take.
    """
    folder = root_dir / _folder_name(job)
    _remove_leftovers(root_dir, job)
    try:
        try:
            built = await _build(repo, job, folder)
        except OSError as error:
            raise Unbuildable(
                f"cannot write the checkout: {error}", hint=f"make room under {str(root_dir)!r}"
            ) from error
        yield built
    finally:
        remove_tree(folder)


async def _build(repo: Path, job: TrainingJob, folder: Path) -> Checkout:
    _check_names(job)
    tree = folder / "tree"
    tree.mkdir(parents=True)
    await _git(folder, "init", "--quiet", "--template=", str(tree))
    objects = await _git(repo, "rev-parse", "--path-format=absolute", "--git-path", "objects")
    commit, base, trusted = await asyncio.gather(
        _commit(repo, job.commit_sha),
        _commit(repo, job.base_commit),
        _evaluator_of_base(repo, job),
    )
    alternates = tree / ".git" / "objects" / "info" / "alternates"
    alternates.parent.mkdir(parents=True, exist_ok=True)
    alternates.write_bytes(objects)
    if commit is None and (base is None or job.patch is None):
        missing = f"commit {job.commit_sha!r}" + (
            "" if job.patch is None else f" and its base {job.base_commit!r}"
        )
        raise _missing(missing, repo, ", or register the experiment with its diff")
    await _git(tree, "checkout", "--quiet", "--detach", "--force", commit or base or "")
    if commit is None and job.patch:
        await _git(tree, "apply", "--binary", "--whitespace=nowarn", "-", stdin=job.patch)
    if job.base_commit is not None and base is None:
        raise _missing(f"base {job.base_commit!r}, the evaluator's commit,", repo)
    if trusted is not None:
        _restore_evaluator(tree, trusted, job.evaluator)
    _set_constants(tree, job)
    return Checkout(tree, folder, _hash(tree, job.evaluator))


def _check_names(job: TrainingJob) -> None:
    _inside(job.evaluator)
    for sha in (job.commit_sha, job.base_commit):
        if sha is not None and not _SHA.fullmatch(sha):
            raise Unbuildable(
                f"{sha!r} is not a commit hash of 7 to 40 hexadecimal digits", hint="register the full hash"
            )


def _missing(what: str, repo: Path, remedy: str = "") -> Unbuildable:
    return Unbuildable(
        f"{what} is not in the clone {str(repo)!r}", hint=f"run `git -C {repo} fetch --all`{remedy}"
    )


async def _commit(repo: Path, sha: str | None) -> str | None:
    """The full hash of a commit in the clone, else None; a branch whose name looks like a hash does not count."""
    if sha is None:
        return None
    asked = f"{sha}^{{commit}}\n{sha}^{{tree}}\n".encode()
    told = (await _git(repo, "cat-file", "--batch-check", stdin=asked)).decode().splitlines()
    (full, kind, *_), (_, kind_of_tree, *_) = (line.split() for line in told)
    is_there = (kind, kind_of_tree) == ("commit", "tree") and full.startswith(sha.lower())
    return full if is_there else None


async def _evaluator_of_base(repo: Path, job: TrainingJob) -> bytes | None:
    """The base's evaluator; None if the job names no base, or the base has no evaluator."""
    if job.base_commit is None:
        return None
    try:
        return await _git(repo, "cat-file", "blob", f"{job.base_commit}:{_inside(job.evaluator)}")
    except _GitFailed:
        return None


def _restore_evaluator(tree: Path, trusted: bytes, evaluator: str) -> None:
    """Replace the tree's evaluator by the trusted one."""
    relative = _inside(evaluator)
    place = tree / relative
    for parent in reversed(place.relative_to(tree).parents[:-1]):
        if (tree / parent).is_symlink() or (tree / parent).is_file():
            (tree / parent).unlink()
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir() and not place.is_symlink():
        remove_tree(place)
    place.unlink(missing_ok=True)  # it may be a link: writing to it would change another file
    place.write_bytes(trusted)
    place.chmod(0o444)


def _set_constants(tree: Path, job: TrainingJob) -> None:
    """Write `config_delta`, and the seed if the script has SEED, into the script."""
    values = dict(job.config_delta or {})
    script = tree / SCRIPT
    source = read_inside(tree, SCRIPT)
    if source is None:
        if values:
            raise Invalid(f"{SCRIPT!r} is not a file of this commit, so its constants cannot be set")
        return
    try:
        text = source.decode()
        if job.seed is not None and "SEED" not in values and "SEED" in read_constants(text):
            values["SEED"] = job.seed
    except (UnicodeDecodeError, Invalid):
        if not values:
            return  # the run will show the script's error
        raise Invalid(f"{SCRIPT!r} is not Python in UTF-8, so its constants cannot be set") from None
    if values:
        script.write_bytes(patch_constants(text, values).encode())


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


def _hash(tree: Path, evaluator: str) -> str | None:
    content = read_inside(tree, evaluator)
    return hashlib.sha256(content).hexdigest()[:16] if content is not None else None


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
    for left in root_dir.glob(f"{job.experiment_id}@{job.attempt}@*"):
        fence = left.name.rpartition("@")[2]
        if fence.isdecimal() and int(fence) <= job.fence:
            remove_tree(left)


def remove_tree(path: Path) -> None:
    """Remove a folder of ours, also one without permissions; links are not followed."""
    if path.is_symlink():  # chmod would follow it
        path.unlink()
        return
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)
    if path.exists():  # without permissions, or too deep for Python's recursion
        for command in (("chmod", "-R", "--", "u+rwx"), ("rm", "-rf", "--")):
            subprocess.run([*command, str(path)], check=False, stderr=subprocess.DEVNULL)


class _GitFailed(Unbuildable):
    """A git command exited with an error."""


async def _git(where: Path, *arguments: str, stdin: bytes | None = None) -> bytes:
    """Output of one git command in a folder, without hooks, monitors and replacements."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env |= {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "LC_ALL": "C",
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
        raise _GitFailed(f"git {arguments[0]} failed: {said or process.returncode}")
    return output
