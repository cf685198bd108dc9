"""Checks before and after a run that the trusted files, which compute its score, are unchanged.

Without an evaluator command (scoring.py), the script runs in the same process as the evaluator that it imports, and
can still replace its results: see THREATS.md. These checks find code that changes the score inconspicuously.
"""

from __future__ import annotations

import ast
import hashlib
import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from functions.formats.metrics_block import FailureKind
from functions.formats.parsing import decoded, parsed
from state.errors import Invalid
from workers.attempt.source import Files, UntrainableCode

_AT_START = frozenset({"sitecustomize", "usercustomize"})
_LINKS = (b"120000 ", b"160000 ")
"""Modes of symbolic links and submodules, which may be packages without files of their own."""
_MODULES = (".py", ".pyc", ".so", ".pyd")


class EvaluatorChanged(UntrainableCode):
    """The code changes how it is scored."""

    title = "Evaluator changed"
    kind: FailureKind = "evaluator"


@dataclass(frozen=True)
class EvaluatorGuard:
    """The files and modules that must stay as in the base commit."""

    evaluator: PurePosixPath
    files: Sequence[str]
    """Other files and folders that the score depends on."""
    imported: frozenset[str]
    """Modules that the evaluator imports."""
    command: str | None = None
    """What runs the evaluator after the training."""

    @classmethod
    def of(
        cls, evaluator: PurePosixPath, trusted: bytes, files: Sequence[str], command: str | None = None
    ) -> EvaluatorGuard:
        return cls(evaluator, files, _imported(trusted), command)

    def check(self, ours: Files, base: Files) -> None:
        """Raise Tampered for code that changes trusted files, or adds modules that hide them."""
        for path in sorted(ours.keys() | base.keys()):
            if self._is_trusted(path) and ours.get(path) != base.get(path):
                raise EvaluatorChanged(
                    f"{path} is not the one of the tag's base commit: the evaluator and what it reads are fixed",
                    hint=f"restore it: git checkout <base commit> -- {path}",
                )
        links = {path for path, blob in ours.items() if blob.startswith(_LINKS)}
        if (shadow := self._shadow((path for path in ours if path not in base), links)) is not None:
            raise EvaluatorChanged(
                f"{shadow} would be imported in the place of what the evaluator {self.evaluator} uses",
                hint="give it another name",
            )

    def harm(self, tree: Path, before: str | None, known: Collection[str]) -> str | None:
        """How a run has changed the evaluator since the fingerprint `before`; None: it has not."""
        if self.fingerprint(tree) != before:
            return f"the evaluator {self.evaluator} or a file that it reads was changed while the run went on"
        shadow = self._shadow(path for path in self._modules(tree) if path not in known)
        return (
            None if shadow is None else f"the run has made {shadow}, in the place of what the evaluator uses"
        )

    def fingerprint(self, tree: Path) -> str | None:
        """First 16 hexadecimal digits of the SHA-256 of the evaluator, its command and its other files."""
        own = _digest(tree / self.evaluator)
        if own is None or not (self.files or self.command):
            return own.hex()[:16] if own else None
        whole = hashlib.sha256(own)
        for path in sorted(_files_below(tree, self.files)):
            whole.update(os.fsencode(path) + b"\0" + (_digest(tree / path) or b"") + b"\0")
        if self.command is not None:
            whole.update(b"\0" + self.command.encode())  # no path is empty
        return whole.hexdigest()[:16]

    def _is_trusted(self, path: str) -> bool:
        return path == str(self.evaluator) or any(
            path == file or path.startswith(f"{file.rstrip('/')}/") for file in self.files
        )

    def _shadow(self, added: Iterable[str], links: Collection[str] = ()) -> str | None:
        """The first file that Python would import instead of a module of the evaluator, through `links` too."""
        folders = self._folders()
        for path in map(PurePosixPath, sorted(added)):
            name = path.name.partition(".")[0]
            where, module = (
                (path.parent.parent, path.parent.name) if name == "__init__" else (path.parent, name)
            )
            is_module = path.suffix in _MODULES or str(path) in links
            if is_module and where in folders and module in folders[where]:
                return str(path)
        return None

    def _folders(self) -> dict[PurePosixPath, Collection[str]]:
        """The folders on the import path of the evaluator, with the module names that must not be added there."""
        root = PurePosixPath()
        steps = [root, *reversed(self.evaluator.parents[:-1])]
        names = [*(step.name for step in steps[1:]), self.evaluator.name.partition(".")[0]]
        found: dict[PurePosixPath, Collection[str]] = {
            step: {name} for step, name in zip(steps, names, strict=True)
        }
        found[root] = {*found[root], *_AT_START, *sys.stdlib_module_names, *self.imported}
        return found

    def _modules(self, tree: Path) -> Iterator[str]:
        """The entries of those folders now, and the __init__ files of packages in them."""
        for folder in self._folders():
            for path in _entries(tree / folder):
                yield path.relative_to(tree).as_posix()
                if path.is_dir():
                    yield from (
                        inner.relative_to(tree).as_posix()
                        for inner in _entries(path)
                        if inner.name.startswith("__init__.")
                    )


def _imported(source: bytes) -> frozenset[str]:
    try:
        text, _ = decoded(source)
        nodes = list(ast.walk(parsed(text, longest=len(text))))
    except Invalid:
        return frozenset()  # an evaluator that is no Python imports nothing
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named = {
        node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module
    }
    return frozenset(name.partition(".")[0] for name in plain | named)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _files_below(tree: Path, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        place = tree / name
        if place.is_dir() and not place.is_symlink():
            for folder, _, files in os.walk(place):
                yield from (Path(folder, file).relative_to(tree).as_posix() for file in files)
        else:
            yield name


def _digest(path: Path) -> bytes | None:
    """SHA-256 of a regular file; None for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            return hashlib.file_digest(file, "sha256").digest()
    except OSError:
        return None
