"""Git in the user's own repository: reads its working tree, and rebuilds the code of experiments.

`nightjar take` makes a branch of such code; the working tree is not touched.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from functions.formats.constants import patch_constants
from functions.formats.patches import applicable
from functions.formats.train_command import SCRIPT, no_script
from functions.kernel.git import command, environment, knows_user, user_excludes
from state.errors import Conflict, Invalid, NotFound, Unavailable
from triggers.cli.lab_http import LabHttp
from triggers.cli.options import EXISTING_FOLDER, with_lab
from triggers.cli.runs import Run, path_of

_UNDER_WAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "BISECT_LOG")
"""Files in the git folder while a git command waits for its user."""
_LOCKED = re.compile(rb"Unable to create '(.+\.lock)': File exists")
_LOCK_PATIENCE_S, _LOCK_RETRY_S = 10.0, 0.05
"""Retries while another process locks the index, as an editor's `git status` does for a moment."""
_NEVER_TAKEN = b"\n/.nightjar/\n__pycache__/\n"
"""Patterns of files that are never taken: an agent's token and texts, and Python's bytecode."""


def base_of(http: LabHttp, tag: str) -> str | None:
    base: str | None = http.ask("POST", "/api/report/night", {"tag": tag, "changes": False})["base_commit"]
    return base


def scripts_of(http: LabHttp, run: Run) -> Sequence[str]:
    """The scripts of an experiment's worker; train.py if the worker is unknown."""
    workers = http.ask("GET", "/api/pool/list")["workers"]
    return next((each["scripts"] for each in workers if each["gpu_id"] == run["gpu_id"]), [SCRIPT])


class Git:
    """Git in one repository."""

    def __init__(self, repo: Path) -> None:
        self._repo = repo
        self._index: Path | None = None
        """The index that is written instead of the repository's."""
        if self._run("rev-parse", "--git-dir").returncode:
            raise NotFound(
                f"{repo.resolve()} is in no git repository", hint="go to a clone of the research project"
            )

    def __call__(self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> str:
        """The output of a git command. Raises Unavailable: it ends with an error."""
        return os.fsdecode(self.output(*arguments, stdin=stdin, env=env))

    def output(self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
        """The output of a git command as bytes."""
        done = self._run(*arguments, stdin=stdin, env=env)
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            verb = next(word for word in arguments if not word.startswith("-") and "=" not in word)
            raise Unavailable(f"git {verb} failed in {self._repo}: {said[-500:]}", hint="mend that first")
        return done.stdout

    def succeeds(self, *arguments: str) -> bool:
        """Whether it ends without an error."""
        return self._run(*arguments).returncode == 0

    def commit(self, name: str) -> str | None:
        """The full hash of a commit in this repository; None: there is no such commit."""
        done = self._run("rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}")
        return None if done.returncode else done.stdout.decode().strip()

    def check_settled(self) -> None:
        """Raise Conflict if a merge, rebase or the like waits for its user, Invalid if HEAD is no commit."""
        under_way = [name for name in _UNDER_WAY if (self.folder / name).exists()]
        if under_way or self("ls-files", "--unmerged"):
            raise Conflict(
                f"a merge, rebase, pick or bisect is under way in {self._repo}", hint="end or abort it first"
            )
        if self.commit("HEAD") is None:
            raise Invalid(
                f"{self._repo} has no commit", hint="git fetch, and switch to the tag's base commit"
            )

    @property
    def folder(self) -> Path:
        """The repository's own folder; each worktree has another."""
        return Path(self("rev-parse", "--absolute-git-dir").rstrip("\n"))

    # -- trees

    def tree(self, commit: str) -> str:
        return self("rev-parse", f"{commit}^{{tree}}").strip()

    def files(self) -> str:
        """A tree of the working files, with new files and without ignored ones."""
        with self._beside_index() as ignoring:
            self("-c", ignoring, "add", "--all", ":/")
            return self("write-tree").strip()

    def new_files(self) -> list[str]:
        """Files that git neither knows nor ignores."""
        with self._beside_index() as ignoring:
            asked = ("ls-files", "--others", "--exclude-standard", "--full-name", "-z", ":/")
            return self("-c", ignoring, *asked).split("\0")[:-1]

    def patched(self, base: str, patch: bytes, *, three_way: bool = False) -> str:
        """The tree of a commit after a patch. Raises Conflict: it does not apply."""
        with self._own_index():
            self("read-tree", base)
            if patch:
                how = ("--cached", "--binary", "--whitespace=nowarn", *(("--3way",) if three_way else ()))
                done = self._run("apply", *how, "-", stdin=applicable(patch))
                if done.returncode:
                    said = done.stderr.decode("utf-8", "replace").strip()
                    raise Conflict(
                        f"its patch does not apply to {base}: {said[-500:]}", hint="is this its repository?"
                    )
            return self("write-tree").strip()

    def with_constants(self, tree: str, values: Mapping[str, Any], scripts: Sequence[str]) -> str:
        """The tree with constants set in the first script that exists. Raises Invalid: no such script or constant."""
        if not values:
            return tree
        with self._own_index():
            self("read-tree", tree)
            found = ((path, self("ls-tree", tree, "--", path).split()[:1]) for path in scripts)
            path, mode = next(((path, mode[0]) for path, mode in found if mode), ("", ""))
            if not path:
                raise no_script(scripts)
            script = patch_constants(self("cat-file", "blob", f"{tree}:{path}"), dict(values))
            blob = self("hash-object", "-w", "--stdin", stdin=script.encode()).strip()
            self("update-index", "--cacheinfo", f"{mode},{blob},{path}")
            return self("write-tree").strip()

    def submodules_moved(self, before: str, after: str) -> list[str]:
        """Paths of the submodules that are at another commit in the second tree."""
        changes = self("diff-tree", "-r", before, after).splitlines()
        return [line.partition("\t")[2] for line in changes if line.startswith(":160000 160000")]

    def diff(self, before: str, after: str) -> bytes:
        """The patch from one tree to another, for `git apply`."""
        how = (
            *("--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"),
            "--ignore-submodules=none",  # whatever .gitmodules says
        )
        return self.output("diff-tree", "-p", *how, "--src-prefix=a/", "--dst-prefix=b/", before, after)

    # -- commits

    def committed(self, tree: str, parent: str, message: str) -> str:
        """A commit of a tree by the configured user, else by Nightjar."""
        users = dict(os.environ)
        who = (
            ()
            if knows_user(self._repo)
            else ("-c", "user.name=Nightjar", "-c", "user.email=nightjar@localhost")
        )
        return self(*who, "commit-tree", tree, "-p", parent, "-m", message, env=users).strip()

    def trained(self, run: Run, base: str | None, patch: str | None, scripts: Sequence[str]) -> str:
        """A commit with an experiment's code: its own commit if this repository has it, else a new one on the base.

        Raises:
            NotFound: the repository has neither the base nor the commit. Conflict: the patch does not apply.
        """
        base_here = self.commit(base) if base is not None else None
        theirs = self.commit(run["commit_sha"])
        tree = self.tree(theirs) if theirs else None
        if patch is not None and base_here is not None:
            rebuilt = self.patched(base_here, patch.encode())
            theirs, tree = (theirs if rebuilt == tree else None), rebuilt
        if tree is None:
            raise NotFound(
                f"this repository has neither {run['commit_sha']} nor the tag's base commit {base}",
                hint="go to the repository of the research; git fetch may bring them",
            )
        whole = self.with_constants(tree, run["config_delta"] or {}, scripts)
        if theirs is not None and whole == tree:
            return theirs
        parent = theirs or base_here
        assert parent is not None
        return self.committed(whole, parent, _message(run))

    # -- the rest

    @contextmanager
    def _own_index(self) -> Iterator[Path]:
        """A temporary index, so that the repository's is not touched."""
        with tempfile.TemporaryDirectory(prefix="nightjar-git-") as folder:
            self._index = Path(folder) / "index"
            try:
                yield self._index
            finally:
                self._index = None

    @contextmanager
    def _beside_index(self) -> Iterator[str]:
        """A copy of the repository's index, and git's setting for files that are never taken."""
        with self._own_index() as index:
            if (own := self.folder / "index").exists():
                shutil.copy2(own, index)  # with its times, by which git finds what has changed
            ignored, of_user = index.with_name("ignored"), user_excludes()
            ignored.write_bytes((of_user.read_bytes() if of_user.is_file() else b"") + _NEVER_TAKEN)
            yield f"core.excludesFile={ignored}"

    def _run(
        self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command, again while another holds its lock. Raises Unavailable: it stays locked, or no git."""
        index = {"GIT_INDEX_FILE": str(self._index)} if self._index else {}
        give_up = time.monotonic() + _LOCK_PATIENCE_S
        while True:
            try:
                done = subprocess.run(
                    command(self._repo, *arguments),
                    input=stdin,
                    capture_output=True,
                    env=environment(**index) if env is None else env,
                    check=False,
                )
            except FileNotFoundError:
                raise Unavailable("there is no git on this machine", hint="install git") from None
            locked = _LOCKED.search(done.stderr) if done.returncode else None
            if locked is None:
                return done
            if time.monotonic() > give_up:
                raise Unavailable(
                    f"another git command has locked {os.fsdecode(locked[1])}",
                    hint="end it; if none is running, remove that file",
                )
            time.sleep(_LOCK_RETRY_S)


def _message(run: Run) -> str:
    value = "" if run["val_bpb"] is None else f"Value: {run['val_bpb']!r}\n"
    return f"{run['description']}\n\n{run['hypothesis']}\n\n{value}Experiment: {run['experiment_id']}\n"


@click.command()
@with_lab
@click.argument("experiment")
@click.option("--distilled", is_flag=True, help="EXPERIMENT is a tag: take its smallest patch, and its parts")
@click.option("--branch", help="its name  [default: nightjar/EXPERIMENT]")
@click.option(
    "--repo", type=EXISTING_FOLDER, default=".", help="the repository  [default: the one around this folder]"
)
def take_command(http: LabHttp, experiment: str, distilled: bool, branch: str | None, repo: Path) -> None:
    """Make a branch of the code of EXPERIMENT, its constants set.

    It begins with the agent's own commit where the repository has it, else it is one commit on the tag's base.
    Nothing is checked out.
    """
    small = http.ask("POST", "/api/trust/distilled", {"tag": experiment}) if distilled else None
    if small is not None and small["commit_of"] is None:
        state = small["distillation"]["state"] if small["distillation"] else "not begun"
        raise Conflict(f"the distillation of {experiment} is {state}", hint=f"nightjar distil {experiment}")
    found = http.ask("GET", path_of(small["commit_of"] if small else experiment))
    run = found["experiment"]
    git = Git(repo)
    name = branch or f"nightjar/{f'{experiment}-distilled' if small else run['experiment_id']}"
    if git.commit(f"refs/heads/{name}"):
        raise Conflict(f"there is a branch {name!r} already", hint="name another with --branch")
    base = base_of(http, run["tag"])
    commit = git.trained(run, base, found["diff"], scripts_of(http, run))
    git("branch", name, commit)
    changed = git("diff", "--shortstat", base, commit).strip() if base and git.commit(base) else ""
    click.echo(f"{name}: {run['experiment_id']}, {changed or 'no change'}")
    if small is not None:
        _make_parts(git, base, name, small)
    click.echo(f"-> git switch {name}")


def _make_parts(git: Git, base: str | None, name: str, small: dict[str, Any]) -> None:
    """One branch on the base commit for each independent change."""
    assert base is not None  # nothing is distilled without it
    known = {change["experiment_id"]: change for change in small["distillation"]["changes"]}
    parts = zip(small["distillation"]["parts"], small["patches"], strict=True)
    for nth, (keeps, patch) in enumerate(parts, 1):
        part, said = f"{name}-{nth}", "; ".join(known[keep]["description"] for keep in keeps)
        message = f"{said}\n\nExperiments: {', '.join(keeps)}\n"
        git("branch", "--force", part, git.committed(git.patched(base, patch.encode()), base, message))
        click.echo(f"{part}: {', '.join(keeps)}, {said}")
