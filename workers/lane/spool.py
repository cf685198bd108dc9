"""Results on the worker's disk that a lab has not taken yet. They outlive the worker's processes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from state.errors import NightjarError, Unavailable
from state.private import write_private
from state.settings import Settings
from workers.lane.client import RemoteLab
from workers.slot import Slot

log = logging.getLogger(__name__)

HANDED_IN = ("experiment::complete", "experiment::crash", "gpu::stopped")
"""The functions that end a run."""


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

    def _file(self, experiment_id: str, attempt: int, fence: int) -> Path:
        return self._folder / f"{experiment_id}-{attempt}-{fence}.json"

    def kept(self) -> Sequence[Path]:
        """The files that wait, oldest first."""
        return oldest_first(self._folder)

    async def send_all(self, lab: RemoteLab) -> None:
        """Send all that wait. Raises Unavailable: the lab does not answer; the rest stays."""
        for kept in self.kept():
            try:
                answer = await self.send(kept, lab)
                log.info("%s was handed in late: %s", kept.stem, answer["status"])
            except Unavailable:
                raise
            except NightjarError as problem:
                log.info("%s came too late: %s", kept.stem, problem.detail)

    async def send(self, kept: Path, lab: RemoteLab) -> dict[str, Any]:
        """Send one, and delete it once answered. Raises Unavailable: no answer. NightjarError: refused."""
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
    return sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
