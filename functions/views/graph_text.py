"""A graph of hypotheses as Markdown, for a language model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from functions.rules.beliefs.posterior import posterior
from functions.rules.beliefs.theory import edges_of
from functions.views.findings_text import NOT_OURS
from functions.views.night_markdown import code
from state.records import Hypothesis

MOST = 100
"""Most hypotheses of a text, those with most runs first."""


def graph_text(hypotheses: Sequence[Hypothesis]) -> str:
    """The hypotheses with their beliefs and relations."""
    return "\n".join(_lines(sorted(hypotheses, key=lambda h: -h.n_experiments)[:MOST]))


def _lines(hypotheses: Sequence[Hypothesis]) -> Iterator[str]:
    yield f"{NOT_OURS}\n\n| id | hypothesis | share of runs that win | runs | stands |\n|---|---|---|---|---|"
    for h in hypotheses:
        stands = h.settled or h.status
        share = f"{posterior(h).posterior_mean:.2f}"
        yield f"| {h.hypothesis_id} | {code(h.statement)} | {share} | {h.n_experiments} | {stands} |"
    yield "\n## Edges\n"
    yield from (f"- {e.source} {e.kind} {e.target}" for e in edges_of(hypotheses)[:MOST])
