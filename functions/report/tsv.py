"""report::tsv writes the flat results.tsv that everybody knows."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from functions.contract import Request, Response, function
from functions.formats.tsv import HEADER, HEADER_BY_DELTA, rows
from functions.rules.keeps.noise import false_share
from state.experiments import PAGE_BYTES, Experiments, Window
from state.ids import Tag
from state.policies import Policies
from state.records import Experiment

PAGE = 1000


class WriteTsv(Request):
    tag: Tag
    spreadsheet: bool = Field(
        False,
        description="quote texts that a spreadsheet would take for formulas: they begin with = + @ or -",
    )


class Tsv(Response):
    tsv: str
    count: int
    false_keeps_at_least: float | None
    """Estimated share of the keeps that are not truly better; None while it cannot be told."""


@function("report::tsv", role="viewer", costly=True)
async def tsv(request: WriteTsv, experiments: Experiments, policies: Policies) -> Tsv:
    """Every finished experiment as `commit val_bpb memory_gb status description`, oldest first.

    In a tag that compares deltas the judged one stands before the value.
    """
    policy, _ = await policies.get(request.tag)
    by_delta = policy.compare_by == "delta"
    lines: list[str] = []
    chances: list[float | None] = []
    window = Window(request.tag, PAGE, newest=False, most_bytes=PAGE_BYTES)
    while True:
        page = await experiments.history(Experiment, window)
        lines += rows(page.experiments, by_delta=by_delta, for_spreadsheet=request.spreadsheet)
        chances += [e.p_better for e in page.experiments if e.status == "keep"]
        if page.following is None:
            return Tsv(
                tsv="\n".join([HEADER_BY_DELTA if by_delta else HEADER, *lines]) + "\n",
                count=len(lines),
                false_keeps_at_least=false_share(chances),
            )
        window = replace(window, cursor=page.following)
