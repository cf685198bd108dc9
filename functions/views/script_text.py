"""The searched script as Markdown for a language model: its constants, and the charter of its agents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from functions.rules.swarm.scanning import untouched
from functions.views.night_markdown import code

MOST_CONSTANTS = 200
MOST_CHARS = 16_000
"""Most characters of the charter."""


def script_text(constants: Mapping[str, object], charter: str) -> str:
    """The script's constants and the charter, as Markdown.

    Constants that no search may touch are left out, so that no provider learns a key or a path.
    """
    return "\n".join(_lines(constants, charter))


def _lines(constants: Mapping[str, object], charter: str) -> Iterator[str]:
    yield "## Constants of train.py\n"
    if not constants:
        yield "Not known here."
    told = {name: value for name, value in constants.items() if untouched(name, value) is None}
    for name, value in [*told.items()][:MOST_CONSTANTS]:
        yield f"- {code(f'{name} = {value!r}')}"
    if len(told) < len(constants):
        yield "\nSeeds, places, time limits and secrets are left out."
    if charter:
        yield "\n## The charter that agents work by\n"
        yield from (f"    {line}" for line in charter[:MOST_CHARS].splitlines())
