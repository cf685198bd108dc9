"""One slot of a worker: its device, the options of its runs, their command and folders."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from functions.formats.train_command import SCRIPT, scripts_of
from state.settings import Settings
from workers.attempt.isolation import CONFINED, RunAccess, Tier, bubblewrap
from workers.attempt.usage import KeptAttempts, machine_bytes
from workers.device import Device

_MIB = 1024 * 1024
_OF_MACHINE = 0.9
"""Share of a machine's memory that its runs may take."""
_KEPT_S = 12 * 3600.0
"""Seconds for which the folder of a failed run is kept."""
_KEPT_BYTES = 1024 * _MIB
"""Disk that the folders of failed runs may take, per GPU or CPU slot. The oldest go first."""


class WorkerOptions(BaseModel):
    """The repository, command and limits of every run of a worker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    repo: Path
    command: tuple[str, ...] | None = None
    python: Path | None = None
    tier: Tier = "limits"
    """See workers.attempt.isolation."""
    network: bool = False
    """Whether confined runs may use the network."""
    data_dirs: tuple[Path, ...] = ()
    """Further folders that confined runs may read."""
    hidden_data: Path | None = None
    """Folder of hidden splits: only evaluators of tags that have some may read it."""
    links: tuple[str, ...] = ()
    """Data of the project that runs get beside the files of a commit."""
    pass_env: tuple[str, ...] = ()
    remote: bool = False
    """Whether its lab is another machine's: then it asks for runs, and nothing rings for it."""


class Slot(WorkerOptions):
    """A device with the options of its runs; processes get it as JSON on their command line."""

    device: Device
    slots: int = 1
    """How many slots its worker has on this machine."""

    @property
    def gpu_id(self) -> str:
        return self.device.gpu_id

    @property
    def scripts(self) -> tuple[str, ...]:
        """The scripts whose constants are set. See scripts_of."""
        return scripts_of(self.command)

    def work_dir(self, settings: Settings) -> Path:
        return settings.data_dir / "work" / self._folder

    def access(self, settings: Settings) -> RunAccess | None:
        """What its runs may touch. None: whatever their user may."""
        if self.tier not in CONFINED:
            return None
        caches = settings.data_dir / "cache" / self._folder
        bwrap = bubblewrap() if self.tier == "bwrap" else None
        return RunAccess(
            self.repo, self.data_dirs, caches, self.network, bwrap, self.memory_bytes(settings) // 2
        )

    def memory_bytes(self, settings: Settings) -> int:
        """Memory that a run may take; by default its share of the machine's memory."""
        if settings.run_memory_mb is not None:
            return int(settings.run_memory_mb * _MIB)
        return int(machine_bytes() * _OF_MACHINE / self.slots)

    def kept(self, settings: Settings) -> KeptAttempts:
        """The kept folders of its failed attempts."""
        root = settings.data_dir / "failed" / self._folder
        return KeptAttempts(root, _KEPT_S, _KEPT_BYTES)

    def mark(self, settings: Settings) -> str:
        """First part of the labels of its runs' processes: no other lab's worker on this machine has the same."""
        return hashlib.sha256(f"{settings.lab} {settings.data_dir}".encode()).hexdigest()[:16]

    @property
    def _folder(self) -> str:
        return self.gpu_id.replace(":", "-")


def command_line(command: Sequence[str] | None, python: str) -> list[str]:
    """The operator's command, by default train.py, with our interpreter; `uv run` would leave a child behind."""
    if not command:
        return [python, SCRIPT]
    argv = list(command)
    if argv[:2] == ["uv", "run"] and len(argv) > 2 and not argv[2].startswith("-"):
        argv = argv[2:]
        if argv[0].endswith(".py"):
            argv.insert(0, python)
    if argv[0] in ("python", "python3"):
        argv[0] = python
    return argv


def can_start(program: str, tree: Path, path: str) -> bool:
    """Whether the program exists: relative to the tree, or by name in the folders of `path`."""
    if os.sep in program:
        return os.access(tree / program, os.X_OK)
    return shutil.which(program, path=path) is not None
