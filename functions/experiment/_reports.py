"""Shared by complete and crash: who may report on a run, and the treatment of late reports."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from functions.contract import Call, Command
from functions.rules.access import check_reporter
from functions.rules.keeps.reports import check_in_time, check_open, is_evidence, replayed
from state.digests import digest_of
from state.errors import Conflict
from state.experiments import Experiments
from state.facts import Comparison, RunFacts, Spread
from state.ids import ExperimentId

Seconds = Annotated[float, Field(ge=0, le=1e9)]
"""Bounded, because a tag adds them up."""


class RunReport(Command):
    """A report on one run; a worker names the lease that it trained under."""

    experiment_id: ExperimentId
    training_seconds: Seconds | None = Field(None, description="how long it trained", examples=[300.1])
    attempt: int | None = Field(
        None, ge=0, description="which attempt this is about; agents leave it out", examples=[1]
    )
    fence: int | None = Field(
        None, ge=0, description="the fence of the lease it ran under; agents leave it out", examples=[17]
    )

    @cached_property
    def digest(self) -> str:
        """Digest of the report; a repeated report has the same."""
        return digest_of(self)


def first_answer(
    op: str, request: RunReport, call: Call, run: RunFacts, beside: Comparison
) -> dict[str, Any] | None:
    """The first answer to this very report; None: it is new.

    Raises:
        Forbidden: the caller may not report on it.
    """
    check_reporter(call.caller, run.experiment, beside.gpu, request.attempt, request.fence)
    return replayed(run.answer, op, request.digest)


async def check_counts(
    op: str, request: RunReport, run: RunFacts, beside: Comparison, experiments: Experiments
) -> None:
    """Refuse a late report. If its attempt existed, it is kept as evidence.

    Raises:
        Conflict: with the status found.
    """
    try:
        check_open(run.experiment, request.attempt, request.fence)
        check_in_time(run.experiment, beside.gpu, run.now)
    except Conflict:
        if is_evidence(run.experiment, request.attempt):
            said: Mapping[str, Any] = request.model_dump(exclude_none=True)
            await experiments.keep_evidence(request.experiment_id, request.digest, {"op": op, **said})
        raise


async def statistics_loaded(noise: Spread) -> None:
    """Import scipy before a rule needs it: in a thread, because that takes most of a second once in a process."""
    if (noise.df or any(noise.runs)) and "scipy.special" not in sys.modules:
        await asyncio.to_thread(importlib.import_module, "scipy.special")
