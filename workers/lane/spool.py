"""Results on the worker's disk that a lab has not taken yet. They outlive the worker's processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from state.errors import Damaged, NightjarError, Unauthenticated, Unavailable
from state.private import write_private
from state.settings import Settings
from workers.slot import Slot

HANDED_IN = ("experiment::complete", "experiment::crash", "gpu::stopped")
"""The functions that end a run."""

T = TypeVar("T")
Call = Callable[[str, Mapping[str, Any]], Awaitable[T]]
"""Calls a function of the lab with a request."""


def spool_of(slot: Slot, settings: Settings) -> Spool:
    """The results of a slot that the lab has not taken yet."""
    return Spool(settings.data_dir / "spool" / slot.gpu_id.replace(":", "-"))


class KeptResult(BaseModel):
    """Content of a result file."""

    function: str
    request: dict[str, Any]


class Spool:
    """A folder with a file for each result: the function that takes it, and the request.

    A result that is refused or cannot be read is deleted, or moved to the folder `aside`. A 401 refuses the worker:
    then the result stays.
    """

    def __init__(self, folder: Path, aside: Path | None = None) -> None:
        self.aside = aside
        self._folder = folder

    def keep(self, name: str, function: str, request: Mapping[str, Any]) -> Path:
        """Write a result to a file that exists whole or not at all."""
        kept = self._folder / f"{name}.json"
        self._folder.mkdir(parents=True, exist_ok=True)
        write_private(kept, json.dumps({"function": function, "request": dict(request)}, allow_nan=False))
        return kept

    def kept(self) -> Sequence[Path]:
        """The files that wait, oldest first."""
        return sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime)

    async def send_all(
        self, call: Call[T], tell: Callable[[str, Mapping[str, Any], T | NightjarError], None]
    ) -> None:
        """Send all that wait, and tell each one's name, request, and answer or refusal.

        Raises:
            Unavailable: the lab does not answer. Unauthenticated: it does not know the worker. The rest stays.
        """
        for kept in self.kept():
            tell(kept.stem, *await self._sent(kept, call))

    async def send(self, kept: Path, call: Call[T]) -> T:
        """Send one. Raises as `send_all`, and NightjarError: refused."""
        _, answer = await self._sent(kept, call)
        if isinstance(answer, NightjarError):
            raise answer
        return answer

    async def _sent(self, kept: Path, call: Call[T]) -> tuple[Mapping[str, Any], T | NightjarError]:
        request: Mapping[str, Any] = {}
        answer: T | NightjarError
        try:
            result = await asyncio.to_thread(read_result, kept)
            request = result.request
            answer = await call(result.function, request)
        except (Unavailable, Unauthenticated):
            raise
        except NightjarError as problem:
            answer = problem
            if self.aside is not None:
                self.aside.mkdir(exist_ok=True)
                await asyncio.to_thread(kept.replace, self.aside / kept.name)
        await asyncio.to_thread(kept.unlink, missing_ok=True)
        return request, answer


def read_result(kept: Path) -> KeptResult:
    """Content of a result file. Raises Damaged: it is no result."""
    try:
        return KeptResult.model_validate_json(kept.read_bytes())
    except ValidationError as problem:
        error = problem.errors()[0]
        where = ".".join(map(str, error["loc"])) or "its text"
        raise Damaged(f"{kept.name} holds no result ({where}: {error['msg']})") from problem
