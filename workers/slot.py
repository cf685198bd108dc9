"""One slot of a worker: its device, the options of its runs, and their folders."""

from __future__ import annotations

from pathlib import Path

from functions.formats.train_command import scripts_of
from state.settings import Settings
from workers.attempt.isolation import CONFINED, Ground, bubblewrap
from workers.attempt.kept import Kept
from workers.attempt.usage import machine_bytes
from workers.device import Device
from workers.options import WorkerOptions

_MIB = 1024 * 1024
_OF_MACHINE = 0.9
"""Share of a machine's memory that its runs may take."""


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
        """Where the constants of its runs are set; see scripts_of."""
        return scripts_of(self.command)

    def work_dir(self, settings: Settings) -> Path:
        """The folder in which its attempts are checked out and run."""
        return settings.data_dir / "work" / self._folder

    def ground(self, settings: Settings) -> Ground | None:
        """What its runs may touch; None: whatever their user may."""
        if self.tier not in CONFINED:
            return None
        caches = settings.data_dir / "cache" / self._folder
        bwrap = bubblewrap() if self.tier == "bwrap" else None
        return Ground(
            self.repo, self.data_dirs, caches, self.network, bwrap, self.memory_bytes(settings) // 2
        )

    def memory_bytes(self, settings: Settings) -> int:
        """How much memory a run may take: by default its share of what the machine has."""
        if settings.run_memory_mb is not None:
            return int(settings.run_memory_mb * _MIB)
        return int(machine_bytes() * _OF_MACHINE / self.slots)

    def kept(self, settings: Settings) -> Kept:
        """The kept folders of its failed attempts."""
        root = settings.data_dir / "failed" / self._folder
        return Kept(root, settings.keep_failed_s, settings.keep_failed_mb * 1024 * 1024)

    @property
    def _folder(self) -> str:
        return self.gpu_id.replace(":", "-")
