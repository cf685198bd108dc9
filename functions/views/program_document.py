"""The served document of a tag's program, for everyone or for the workers of one population."""

from __future__ import annotations

from functions.formats.charter import Reader, charter
from functions.formats.program_document import MOST_BLOCK_CHARS, charter_of, cleaned
from functions.rules.swarm.populations import Population
from functions.views.program_block import population_part
from state.program_facts import Base, ProgramVersion, Served


def document_for(served: Served, reader: Reader, population: Population | None = None) -> str:
    """The whole document, or "" before the first version. Workers then keep the program they have."""
    if served.base is None or served.current is None:
        return ""
    return composed(served.base, served.current, reader, population)


def composed(
    base: Base, version: ProgramVersion, reader: Reader, population: Population | None = None
) -> str:
    """A version in its reader's charter."""
    found = charter_of(charter_for(base, reader))
    if population is None:
        return found.with_block(version.block)
    part = population_part(population)
    # the block is cut if both together are too long
    block = cleaned(version.block)[: MOST_BLOCK_CHARS - len(cleaned(part)) - 2]
    return found.with_block(f"{block}\n\n{part}")


def charter_for(base: Base, reader: Reader) -> str:
    """Nightjar's own charter for this reader, or the operator's, byte for byte."""
    if base.workers is None:
        return base.text
    return charter(base.workers if reader.is_worker else base.text, reader)
