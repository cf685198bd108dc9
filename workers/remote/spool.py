"""Results on the worker's disk that a lab has not taken yet. They outlive the worker's processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from state.errors import NightjarError, Unavailable
from state.private import write_private
from state.settings import Settings
from workers.remote.client import RemoteLab
from workers.slot import Slot


def spool_of(slot: Slot, settings: Settings) -> Spool:
    """The results of a slot that the lab has not taken yet."""
    return Spool(settings.data_dir / "spool" / slot.gpu_id.replace(":", "-"))


class Spool:
    """The folder of one slot's results."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, function: str, request: Mapping[str, Any]) -> Path:
        """Write a result to the file of its attempt."""
        kept = self._file(request["experiment_id"], request["attempt"], request["fence"])
        write_whole(kept, {"function": function, "request": dict(request)})
        return kept

    def has(self, experiment_id: str, attempt: int, fence: int) -> bool:
        """Whether the result of this attempt waits."""
        return self._file(experiment_id, attempt, fence).exists()

    def _file(self, experiment_id: str, attempt: int, fence: int) -> Path:
        return self._folder / f"{experiment_id}-{attempt}-{fence}.json"

    def kept(self) -> Sequence[Path]:
        """The files that wait, oldest first."""
        return oldest_first(self._folder)

    async def send(self, kept: Path, lab: RemoteLab) -> dict[str, Any]:
        """Send one, and delete it once the lab has answered.

        Raises:
            Unavailable: the lab does not answer; the file stays. NightjarError: the lab has refused it.
        """
        said = json.loads(await asyncio.to_thread(kept.read_text))
        try:
            answer = await lab.call(said["function"], said["request"])
        except Unavailable:
            raise
        except NightjarError:
            await asyncio.to_thread(kept.unlink, missing_ok=True)
            raise
        await asyncio.to_thread(kept.unlink, missing_ok=True)
        return answer


def write_whole(place: Path, said: Mapping[str, Any]) -> None:
    """Write JSON to a file that exists whole or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    write_private(place, json.dumps(dict(said), allow_nan=False))


def oldest_first(folder: Path) -> Sequence[Path]:
    """The files that `write_whole` has written."""
    return sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
