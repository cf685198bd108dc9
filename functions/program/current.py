"""program::current is the charter of a tag's agents or workers, with the newest version of its program."""

from __future__ import annotations

import asyncio
from typing import Literal

from pydantic import Field

from functions.contract import Call, Http, Text, function
from functions.formats.charter import PARTS, Reader, charter
from functions.of_swarm import OfSwarm
from functions.views.program_document import charter_for, composed
from state.charter_file import FOLDER, read_charter, read_charters
from state.ids import Id
from state.programs import Programs, base_of
from state.settings import Settings


class ReadProgram(OfSwarm):
    name: Id | None = Field(None, description="who reads it: the name in its commands", examples=["h100-3"])
    part: Literal["traces", "training"] | None = Field(
        None, description="a part that the agents' charter names", examples=["traces"]
    )


@function(
    "program::current",
    Http("GET", "/program.md", has_etag=True),
    Http("GET", "/program-{part}.md", has_etag=True),
    role="viewer",
    is_public=True,
)
async def current(request: ReadProgram, call: Call, programs: Programs, settings: Settings) -> Text:
    """The charter of a swarm's workers, or of agents, with this lab's address and the newest version in it."""
    served = await programs.served(request.tag_in(settings))
    reader = Reader(
        call.lab_url(settings),
        request.tag or (settings.swarm_tag if served.is_swarm else None),
        request.name,
        is_worker=served.is_swarm,
    )
    if request.part is not None:
        part = await asyncio.to_thread(read_charter, FOLDER / PARTS[request.part])
        return Text(content=charter(part, reader))
    base = served.base or base_of(*await asyncio.to_thread(read_charters, settings))
    if served.current is None:
        return Text(content=charter_for(base, reader))
    return Text(content=composed(base, served.current, reader))
