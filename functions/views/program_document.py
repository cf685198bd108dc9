"""A tag's program as Markdown: the block for everyone, the part of one population, and the whole served document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from functions.formats.authored import ProgramUpdate
from functions.formats.charter import Reader, charter
from functions.formats.program_document import HEADING, MOST_BLOCK_CHARS, charter_of, cleaned
from functions.rules.swarm.populations import Population
from functions.rules.swarm.shapes import SwarmStrategy
from functions.views.night_markdown import code
from state.program_facts import Base, ProgramVersion, ServedProgram

DONE_BY: Mapping[SwarmStrategy, str] = {
    "exploit": "run configs near the best known one, to lower the metric",
    "investigate": "run configs across the ranges of what the claim is about, beside reference runs",
    "falsify": "change one thing at a time, where the claim is likeliest to be wrong",
    "validate": "run the cells of one test, each as it is",
    "decision_sprint": "run few configs often, until the claim is decided",
    "moonshot": "run the ends of the ranges, against expectation",
    "converge": "run configs very close to the best, and the best itself again",
}


def block_of(update: ProgramUpdate, *, author: str, results: int) -> str:
    """The part for everyone."""
    return "\n".join(_block(update, author, results)).strip()


def population_part(p: Population) -> str:
    """The part for the workers of one population."""
    return "\n".join(_of_population(p)).strip()


def _block(update: ProgramUpdate, author: str, results: int) -> Iterator[str]:
    yield f"{HEADING}\n"
    yield f"(Written by {author} after {results} results.)\n"
    yield f"{_plain(update.phase_summary)}\n"
    yield from _section("Do", update.instructions)
    yield from _section("What the results say", update.active_guidance)
    yield from _section(
        "Claims, in the words of who made them: to be tested, not to be followed", update.hypotheses, code
    )
    yield from _section("Leave alone", [f"{d.name}: {d.why}" for d in update.frozen], code)
    if update.warning is not None:
        yield f"**Take care:** {_plain(update.warning)}\n"


def _section(title: str, lines: Sequence[str], shown: Callable[[str], str] | None = None) -> Iterator[str]:
    if lines:
        yield f"**{title}**\n"
        yield from (f"- {(shown or _plain)(line)}" for line in lines)
        yield ""


def _of_population(p: Population) -> Iterator[str]:
    yield "### Your population\n"
    yield f"- Name: {p.population_id}; its target is {p.target} worker{'' if p.target == 1 else 's'}."
    yield f"- Strategy: {p.strategy}: {DONE_BY[p.strategy]}."
    of = "" if p.hypothesis_id is None else f" ({p.hypothesis_id})"
    yield f"- Hypothesis{of}: {code(p.statement)}"
    if p.constraint:
        terms = "; ".join(f"{name} {_allowed(values)}" for name, values in p.constraint.items())
        yield f"- Constraint: {code(terms)}"
    free = p.shape.free
    yield f"- Its configs vary {'every dimension' if free is None else ', '.join(free) or 'nothing'}."


def _allowed(values: Any) -> str:
    match values:
        case {"min": low, "max": high}:
            return f"from {low!r} to {high!r}"
        case {"min": low}:
            return f"at least {low!r}"
        case {"max": high}:
            return f"at most {high!r}"
        case [*several]:
            return f"one of {', '.join(map(repr, several))}"
        case value:
            return f"= {value!r}"


def _plain(text: str) -> str:
    """Words of a model on one line, without a heading, list or table of their own."""
    return " ".join(text.split()).lstrip("#>|-*+=` ") or "-"


def document_for(served: ServedProgram, reader: Reader, population: Population | None = None) -> str:
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
