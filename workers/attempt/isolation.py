"""Tiers of isolation: what a run may reach in each.

none      whatever its user reaches
limits    the same, with limits of file size, open files and disk
landlock  limits, and Linux's Landlock. A run writes its checkout, its temporary files and the caches of its GPU. It
          reads the system, its interpreter, the project and the data folders that the operator names. It opens no TCP
          port unless the network is on. It neither signals nor inspects processes outside.
bwrap     the same files, in namespaces of the run's own (bubblewrap) with Landlock inside. It sees no other process
          and no network, unless the network is on. `/tmp` and `/dev/shm` are its own, and end with it.
"""

from __future__ import annotations

import marshal
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from functions.kernel.process.remote import Isolation
from functions.kernel.process.run_files import SYSTEM, UPSTREAM_CACHE
from state.errors import Invalid
from workers.attempt.confine import version

Tier = Literal["none", "limits", "landlock", "bwrap"]
CONFINED: tuple[Tier, ...] = ("landlock", "bwrap")
"""Tiers in which a run touches only the files that it is given."""

CACHES = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor", "CUDA_CACHE_PATH": "cuda"}
"""Variables that name caches of compiled kernels, and their folders below the cache of a slot."""

_KNOWS_TCP, _KNOWS_SIGNALS = 4, 6
"""Versions of Landlock."""
_LAUNCH = Path(__file__).with_name("launch.py")
_PROBE_S, _PROBE_BYTES = 20.0, 1 << 20
_ALLOW_NAMESPACES = (
    "run the worker outside its container, or allow namespaces there (docker: --security-opt seccomp=unconfined"
    " --security-opt apparmor=unconfined --security-opt systempaths=unconfined); on Ubuntu set"
    " kernel.apparmor_restrict_unprivileged_userns=0, elsewhere kernel.unprivileged_userns_clone=1"
)
_SETTINGS = "/etc"


class Reach(NamedTuple):
    writes: Sequence[str]
    """Folders that it may write. Each must exist."""
    reads: Sequence[str] | None
    """Files and folders that it may read, if they exist. None: whatever its user may read."""
    network: bool
    leaves: bool
    """Whether it may leave something outside its folders: shared memory, attributes and times of files."""
    hides: Sequence[str] = ()
    """Entries of the folders in `reads` that it may not read."""
    together: str | None = None
    """A parent of several folders in `writes`. It is mounted as one, so that files can be moved between them."""
    bwrap: str | None = None
    """The bubblewrap program that makes its namespaces (see namespaces.py). None: no namespaces."""
    scratch_bytes: int = 0
    """Size of each of its memory file systems, `/tmp` and `/dev/shm`, in namespaces."""

    def packed(self) -> str:
        """One word for launch.py under the same Python. Importing JSON would be its slowest step."""
        return marshal.dumps(self._asdict()).hex()


@dataclass(frozen=True)
class TierChoice:
    tier: Tier
    why: str | None = None
    """Why it is not a stronger tier, with a remedy. None if it was asked for or is the strongest."""


@dataclass(frozen=True)
class RunAccess:
    """Files that the runs of a slot may read, and their cache of compiled kernels."""

    project: Path
    data: Sequence[Path]
    caches: Path
    network: bool
    bwrap: str | None = None
    """The bubblewrap program. None: no namespaces."""
    scratch_bytes: int = 0
    """Size of each memory file system in the namespaces."""

    def reach(self, tree: Path, temporary: Path, log: Path, python: Path, path: str, own: Path) -> Reach:
        """What a training may touch. `own`: our reporting module; `path`: its PATH. Its log is hidden from it."""
        self.caches.mkdir(parents=True, exist_ok=True)
        return Reach(
            writes=[str(tree), str(temporary), str(self.caches)],
            reads=[*self._reads(tree, python, path, own)],
            network=self.network,
            leaves=True,
            hides=[*_hidden(_SETTINGS), str(log)],
            together=str(tree.parent),
            bwrap=self.bwrap,
            scratch_bytes=self.scratch_bytes,
        )

    def _reads(self, tree: Path, python: Path, path: str, own: Path) -> Iterator[str]:
        yield from SYSTEM
        yield _SETTINGS
        yield from map(str, (tree, self.project, own, *roots_of(python)))
        caches = self.caches.resolve()
        for place in filter(None, path.split(os.pathsep)):
            if not caches.is_relative_to(Path(place).resolve()):  # else the lab's own files lie in it, too
                yield place
        yield from (str(folder.expanduser()) for folder in (Path(UPSTREAM_CACHE), *self.data))
        yield from _objects_of(tree)

    def environment(self) -> Mapping[str, str]:
        """Variables that name the caches. Git fails if it may not read its user's settings, so it gets none."""
        caches = {name: str(self.caches / folder) for name, folder in CACHES.items()}
        return {**caches, "GIT_CONFIG_GLOBAL": os.devnull}


def chosen(asked: Isolation) -> TierChoice:
    """The tier that was asked for, else the strongest that works here. Raises Invalid: it does not work here."""
    if asked in ("none", "limits"):
        return TierChoice(asked)
    if asked == "landlock":
        if problem := _landlock_problem():
            raise Invalid(
                f"this machine cannot isolate runs by Landlock: {problem}", hint="--isolation limits"
            )
        return TierChoice("landlock")
    refused = _bwrap_problem()
    if refused is None:
        return TierChoice("bwrap")
    problem, remedy = refused
    if asked == "bwrap":
        raise Invalid(f"this machine cannot isolate runs by bubblewrap: {problem}", hint=remedy)
    why = f"no bwrap: {problem}; {remedy}"
    if problem := _landlock_problem():
        return TierChoice("limits", f"{why}. No landlock: {problem}")
    return TierChoice("landlock", why)


def bubblewrap() -> str | None:
    """Path of the bubblewrap program; None if it is not installed."""
    return shutil.which("bwrap") if sys.platform.startswith("linux") else None


def described(tier: Tier, *, network: bool = False) -> str:
    """A tier and what it confines, for people."""
    if tier not in CONFINED:
        return f"{tier} (a run reaches whatever this user reaches, the operator's key too)"
    known = version()
    if tier == "bwrap":
        holds = {"files": True, "network": not network, "processes": True, "Landlock": known > 0}
    else:
        tcp = not network and known >= _KNOWS_TCP
        holds = {"files": True, "TCP": tcp, "signals": known >= _KNOWS_SIGNALS}
    return f"{tier} ({', '.join(what for what, is_held in holds.items() if is_held)})"


def roots_of(python: Path) -> Iterator[Path]:
    """The folders of an interpreter: its environment, its base, and packages installed by reference."""
    for place in dict.fromkeys((python, python.resolve())):
        root = place.parent.parent
        libraries = [*root.glob("lib/python3*")]
        if libraries or (root / "pyvenv.cfg").is_file():
            yield root
        for references in (found for library in libraries for found in library.glob("site-packages/*.pth")):
            for line in references.read_text(errors="replace").splitlines():
                if line.startswith("/"):
                    yield Path(line)


def _hidden(folder: str) -> Iterator[str]:
    """Entries of a folder that not everybody may read, such as password files. A worker that is root could."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if not entry.stat().st_mode & 0o004:
                    yield entry.path
            except OSError:  # a link to nowhere
                continue


def _objects_of(tree: Path) -> list[str]:
    """The clone's objects, which the checkout reads, and those of Git LFS."""
    alternates = tree / ".git" / "objects" / "info" / "alternates"
    objects = alternates.read_text().splitlines() if alternates.is_file() else []
    return [*objects, *(str(Path(place).with_name("lfs")) for place in objects)]


def _landlock_problem() -> str | None:
    """Why a process cannot be confined here; None if it can."""
    if version() < 1:
        return "the kernel has no Landlock (Linux 5.13 or later, with landlock among its security modules)"
    return _tried(None)


def _bwrap_problem() -> tuple[str, str] | None:
    """Why a process gets no namespaces here, and a remedy; None if it does."""
    program = bubblewrap()
    if program is None:
        return "bubblewrap is not installed", "install bubblewrap (apt-get install bubblewrap)"
    problem = _tried(program)
    if problem is None:
        return None
    if "nknown option" in problem:
        return problem, "install bubblewrap 0.8 or later"
    return problem, _ALLOW_NAMESPACES


def _tried(bwrap: str | None) -> str | None:
    """Error of a confined process; None if it ran."""
    reads = [*SYSTEM, _SETTINGS, *map(str, roots_of(Path(sys.executable)))]
    reach = Reach((), reads, False, leaves=True, bwrap=bwrap, scratch_bytes=_PROBE_BYTES)
    told, end = os.pipe()
    words = (str(os.getpid()), "", reach.packed(), str(end))
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(_LAUNCH), *words, sys.executable, "-I", "-S", "-c", "pass"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_S,
            pass_fds=(end,),
            cwd="/",
        )
    except subprocess.TimeoutExpired:
        return f"a confined process did not end within {_PROBE_S:.0f} s"
    finally:
        os.close(told)
        os.close(end)
    return None if done.returncode == 0 else f"a confined process failed: {done.stderr.strip()[-200:]}"
