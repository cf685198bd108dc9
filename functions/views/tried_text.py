"""Earlier trials of proposed dimensions as Markdown for a language model, with their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from functions.views.night_markdown import code
from state.records import ProposedDimension

MOST = 30
"""Most trials of a text, the newest ones."""


def tried_text(proposals: Sequence[ProposedDimension]) -> str:
    """The trials that have begun or ended, as Markdown; empty if there are none."""
    return "\n".join(_lines([p for p in proposals if p.state != "listed"][-MOST:]))


def _lines(tried: Sequence[ProposedDimension]) -> Iterator[str]:
    if not tried:
        return
    yield "## Dimensions that were tried: propose them only with another range\n"
    for p in tried:
        values = p.categories if p.categories is not None else [p.min, p.max]
        why = "" if p.reason is None else f": {code(p.reason)}"
        yield f"- {code(f'{p.name} ({p.dtype}, {values})')}: {p.state.replace('_', ' ')}{why}"
