"""One slot of a worker: its device, how its runs are started, and where their files are."""

from __future__ import annotations

from pathlib import Path

from state.settings import Settings
from workers.attempt.kept import Kept
from workers.device import Device
from workers.options import WorkerOptions


class Slot(WorkerOptions):
    """A GPU, or a share of the CPU; the processes of the slot get it as JSON on their command lines."""

    device: Device

    @property
    def gpu_id(self) -> str:
        return self.device.gpu_id

    def work_dir(self, settings: Settings) -> Path:
        """Where its attempts are checked out and run."""
        return settings.data_dir / "work" / self._folder

    def kept(self, settings: Settings) -> Kept:
        """What it keeps of its failed attempts."""
        root = settings.data_dir / "failed" / self._folder
        return Kept(root, settings.keep_failed_s, settings.keep_failed_mb * 1024 * 1024)

    @property
    def _folder(self) -> str:
        return self.gpu_id.replace(":", "-")
