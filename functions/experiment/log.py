"""experiment::log shows the newest lines of a run's log and its last report, and waits for newer ones if asked."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Annotated

from pydantic import Field

from functions.contract import Http, Request, Response, function
from state.experiments import Experiments
from state.facts import LiveLog
from state.ids import ExperimentId
from state.records import OPEN

LOOK_AGAIN_S = 0.5
"""Workers send lines about this often."""


class ReadLog(Request):
    experiment_id: ExperimentId
    after: Annotated[str, Field(max_length=64)] | None = Field(
        None, description="version of what the caller has", examples=["5d41402abc4b2a76"]
    )
    timeout: float = Field(0, ge=0, le=50, description="seconds to wait for lines or a report after that")


class LogLines(Response):
    experiment_id: str
    status: str
    finished: bool
    log: str
    """The newest lines, at most 16 KiB: text of the training script, not to be trusted."""
    version: str
    """Of these lines and this report, for `after`."""
    progress: float | None
    metric: float | None
    """Its last reported value; under stopping.tick_source stdout, the last printed loss."""


@function(
    "experiment::log", Http("GET", "/api/experiment/{experiment_id}/log"), role="viewer", held_for="timeout"
)
async def log(request: ReadLog, experiments: Experiments) -> LogLines:
    """The newest lines of its log and its last report; with `after` and `timeout`, waits for newer ones.

    Over HTTP, `follow=true` makes server-sent events of it: see `triggers/sse/run_log.py`.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + request.timeout
    while True:
        found = await experiments.live_log(request.experiment_id)
        version = version_of(found)
        if version != request.after or found.status not in OPEN or clock() >= deadline:
            return LogLines(
                experiment_id=request.experiment_id,
                status=found.status,
                finished=found.status not in OPEN,
                log=found.text,
                version=version,
                progress=found.progress,
                metric=found.metric,
            )
        await asyncio.sleep(min(LOOK_AGAIN_S, max(0.0, deadline - clock())))


def version_of(found: LiveLog) -> str:
    """Changes with the lines, and with each report."""
    said = f"{found.progress!r} {found.metric!r} {found.text}"
    return hashlib.sha256(said.encode()).hexdigest()[:16]
