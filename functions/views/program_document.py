"""The document that is served of a tag's program: to everyone, or to the workers of one population."""

from __future__ import annotations

from functions.formats.program_document import MOST_BLOCK_CHARS, charter_of, cleaned
from functions.rules.swarm.populations import Population
from functions.views.program_block import population_part
from state.program_facts import Base, ProgramVersion, Served


def document_for(served: Served, population: Population | None = None) -> str:
    """The whole document; empty while nothing was written, so that readers keep what they came with."""
    if served.base is None or served.current is None:
        return ""
    return composed(served.base, served.current, population)


def composed(base: Base, version: ProgramVersion, population: Population | None = None) -> str:
    """A version in its charter."""
    if population is None:
        return charter_of(base.text).with_block(version.block)
    part = population_part(population)
    # the block gives way, where both are too long
    block = cleaned(version.block)[: MOST_BLOCK_CHARS - len(cleaned(part)) - 2]
    return charter_of(base.text).with_block(f"{block}\n\n{part}")
