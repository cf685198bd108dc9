"""The charter of the lab, read again from the operator's file."""

from __future__ import annotations

import asyncio
import logging

from functions.formats.program_document import charter_of
from state.charter_file import read_charters
from state.client_settings import host_name
from state.errors import NightjarError
from state.programs import Programs
from state.settings import Settings

log = logging.getLogger(__name__)


async def rebased(programs: Programs, settings: Settings) -> bool:
    """Keep the charter of the file, if it is another one; one that cannot be used changes nothing, and is logged."""
    try:
        text, workers = await asyncio.to_thread(read_charters, settings)
        charter_of(text)
    except NightjarError as problem:
        log.error("the charter stays as it was: %s (%s)", problem.detail, problem.hint)
        return False
    return await programs.set_base(text, host_name(), workers)
