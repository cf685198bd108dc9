"""report::tsv writes the flat results.tsv that everybody knows."""

from __future__ import annotations

from functions.contract import Request, Response, function
from functions.formats.tsv import HEADER, rows
from functions.rules.keeps.noise import false_share
from state.experiments import Experiments
from state.ids import Tag
from state.tags import Tags

PAGE = 1000


class Ask(Request):
    tag: Tag


class Table(Response):
    tsv: str
    count: int
    false_keeps_at_least: float | None
    """Estimated share of the keeps that are not truly better; None while nobody can tell."""


@function("report::tsv", role="viewer")
async def tsv(request: Ask, tags: Tags, experiments: Experiments) -> Table:
    """Every finished experiment as `commit val_bpb memory_gb status description`, oldest first."""
    await tags.get(request.tag)
    lines: list[str] = []
    chances: list[float | None] = []
    cursor: int | None = None
    while True:
        page, _, cursor = await experiments.page(request.tag, limit=PAGE, above=cursor, newest=False)
        lines += rows(page)
        chances += [e.p_better for e in page if e.status == "keep"]
        if cursor is None:
            return Table(
                tsv="\n".join([HEADER, *lines]) + "\n",
                count=len(lines),
                false_keeps_at_least=false_share(chances),
            )
