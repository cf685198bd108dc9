"""How far a run is kept from the rest of its machine: the tiers, and what a run reaches in each.

none      whatever its user reaches
limits    the same, with limits of file size, open files and disk
landlock  the limits, and of files only these: it writes its checkout, its temporary files and its GPU's caches; it
          reads the system, its interpreter, the project and the data folders that the operator names. No TCP,
          unless the network is on; no signal to, and no look into, a process outside (Linux's Landlock)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from functions.process.isolation_options import Isolation
from state.errors import Invalid
from workers.attempt.confine import Reach, version

Tier = Literal["none", "limits", "landlock"]

CACHES = {"TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor", "CUDA_CACHE_PATH": "cuda"}
"""Variables that name caches of compiled kernels, and their folders below the cache of a slot."""

_KNOWS_TCP, _KNOWS_SIGNALS = 4, 6
"""Versions of Landlock."""
_SIGNS = ("PermissionError", "Permission denied", "Operation not permitted")
_LAUNCH = Path(__file__).with_name("launch.py")
_PROBE_S = 20.0
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store", "/proc", "/sys"),
    *("/run/systemd/resolve", "/run/nvidia-persistenced"),
)
_SETTINGS = Path("/etc")
_UPSTREAM_CACHE = "~/.cache/autoresearch"
"""Where the research project that Nightjar's agents begin with keeps its data."""


@dataclass(frozen=True)
class Ground:
    """What the runs of a slot may read, and where they keep compiled kernels."""

    project: Path
    data: Sequence[Path]
    caches: Path
    network: bool

    def reach(self, tree: Path, temporary: Path, python: Path, path: str, own: Path) -> Reach:
        """What a training may touch. `own`: where it finds our reporting module; `path`: of its programs."""
        self.caches.mkdir(parents=True, exist_ok=True)
        writes = [str(tree), str(temporary), str(self.caches)]
        return Reach(writes, [*self.reads(tree, python, path, own)], self.network, leaves=True)

    def reads(self, tree: Path, python: Path, path: str, own: Path) -> Iterator[str]:
        """The same for a predictor, which writes nowhere but in a folder of its own."""
        yield from _SYSTEM
        yield from _public(_SETTINGS)
        yield from map(str, (tree, self.project, own, *roots_of(python)))
        yield from filter(None, path.split(os.pathsep))
        yield from (str(folder.expanduser()) for folder in (Path(_UPSTREAM_CACHE), *self.data))
        yield from _objects_of(tree)

    def environment(self) -> Mapping[str, str]:
        """Variables by which programs find the caches; git gives up where it may not read its user's settings."""
        caches = {name: str(self.caches / folder) for name, folder in CACHES.items()}
        return {**caches, "GIT_CONFIG_GLOBAL": os.devnull}


def chosen(asked: Isolation) -> Tier:
    """The tier that was asked for; by default the strongest that works here.

    Raises:
        Invalid: what was asked for does not work here.
    """
    if asked in ("none", "limits"):
        return asked
    problem = _landlock_problem()
    if problem is None:
        return "landlock"
    if asked == "auto":
        return "limits"
    raise Invalid(f"this machine cannot isolate runs by Landlock: {problem}", hint="--isolation limits")


def described(tier: Tier, *, network: bool = False) -> str:
    """A tier with what holds in it, for people."""
    if tier != "landlock":
        return f"{tier} (a run reaches whatever this user reaches)"
    kept = ["files"]
    kept += [] if reaches_lab(tier, network=network) else ["TCP"]
    kept += ["signals"] if version() >= _KNOWS_SIGNALS else []
    return f"landlock ({', '.join(kept)})"


def reaches_lab(tier: Tier, *, network: bool) -> bool:
    """Whether a run may open TCP connections, to the lab for one."""
    return tier != "landlock" or network or version() < _KNOWS_TCP


def hint_for(error: str) -> str | None:
    """What may help where an isolated run was refused something; None where nothing shows that."""
    if not any(sign in error for sign in _SIGNS):
        return None
    return (
        "runs are isolated here: the worker's owner may start it with --data-dir FOLDER for data that they read,"
        " --network on, or --isolation limits"
    )


def roots_of(python: Path) -> Iterator[Path]:
    """The folders of an interpreter: its environment, what that was made from, and what is installed by reference."""
    for place in dict.fromkeys((python, python.resolve())):
        root = place.parent.parent
        libraries = [*root.glob("lib/python3*")]
        if libraries or (root / "pyvenv.cfg").is_file():
            yield root
        for references in (found for library in libraries for found in library.glob("site-packages/*.pth")):
            for line in references.read_text(errors="replace").splitlines():
                if line.startswith("/"):
                    yield Path(line)


def _public(folder: Path) -> Iterator[str]:
    """What everybody may read in a folder: not the passwords, though the worker may be root."""
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                if entry.stat().st_mode & 0o004:
                    yield entry.path
            except OSError:  # a link to nowhere
                continue


def _objects_of(tree: Path) -> list[str]:
    """The clone's objects, which the checkout reads."""
    alternates = tree / ".git" / "objects" / "info" / "alternates"
    return alternates.read_text().split("\n") if alternates.is_file() else []


def _landlock_problem() -> str | None:
    """Why no process can be confined here; None if one was."""
    if version() < 1:
        return "the kernel has no Landlock (Linux 5.13 or later, with landlock among its security modules)"
    reach = Reach((), [*_SYSTEM, *map(str, roots_of(Path(sys.executable)))], False, leaves=True)
    command = (sys.executable, "-I", "-S", str(_LAUNCH), str(os.getpid()), "", json.dumps(reach._asdict()))
    try:
        done = subprocess.run(
            [*command, sys.executable, "-I", "-S", "-c", "pass"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_PROBE_S,
        )
    except subprocess.TimeoutExpired:
        return f"a confined process did not end within {_PROBE_S:.0f} s"
    return None if done.returncode == 0 else f"a confined process failed: {done.stderr.strip()[-200:]}"
