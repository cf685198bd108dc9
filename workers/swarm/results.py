"""Results that the swarm has not taken yet, on the worker's disk: they outlive its processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from state.errors import NightjarError, Unauthenticated, Unavailable
from workers.remote.spool import oldest_first, write_whole
from workers.swarm.server import Server


class Results:
    """The folder of one worker's results."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._refused = folder / "refused"
        self._say = say

    def keep(self, result: Mapping[str, Any]) -> None:
        """Write down what is to be sent; an assignment has one file."""
        write_whole(self._folder / f"{result['exp_id']}.json", result)

    def kept(self) -> Sequence[Path]:
        """What waits, oldest first."""
        return oldest_first(self._folder)

    async def hand_in(self, server: Server) -> None:
        """Send all that waits. What the server refuses is put aside, for its owner to look at.

        Raises:
            Unavailable: the server does not answer; what was not sent stays. Unauthenticated: it does not know us.
        """
        for file in self.kept():
            result = json.loads(file.read_text())
            try:
                handed = await server.result(result)
            except (Unavailable, Unauthenticated):
                raise
            except NightjarError as problem:
                self._refused.mkdir(exist_ok=True)
                place = file.replace(self._refused / file.name)
                hint = f"; {problem.hint}" if problem.hint else ""
                self._say(f"{file.stem} was not taken: {problem.detail}{hint}. It is kept in {place}")
            else:
                file.unlink(missing_ok=True)
                self._say(f"{file.stem}: {_told(result)}. Results of the swarm: {handed.total_experiments:,}")


def _told(result: Mapping[str, Any]) -> str:
    """A result for people."""
    if result.get("error"):
        return str(result["error"]).partition("\n")[0]
    if result["val_bpb"] is None:
        return "stopped early"
    return f"val_bpb {result['val_bpb']:.6f} ({result['delta_bpb']:+.6f} against the baseline)"
