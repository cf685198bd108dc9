"""Hypotheses and their evidence in answers, and a checkpoint of the journal as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from functions.beliefs.rules.chronicle import Chapter, Elimination, Movement, Restaffing
from functions.beliefs.rules.learning import effect
from functions.beliefs.rules.posterior import posterior_of
from functions.kernel.contract import Response
from functions.people.views.nights import code
from functions.search.rules.suggestions import short
from state.belief_facts import Pages, Staff
from state.program import PROGRAM
from state.records import Evidence, Hypothesis, stamp, view_of

# -- Hypotheses and their evidence as answers show them.


class HypothesisView(Response):
    """A claim with the belief in it."""

    hypothesis_id: str
    statement: str
    type: str
    status: str
    phase: str
    settled: str | None
    """A verdict, which is valid however often results are looked at; null: none yet."""
    posterior_mean: float
    """P, the posterior mean of the share of its runs that win."""
    credible_interval_90: tuple[float, float]
    support_probability: float
    """Probability that this share is above 0.60."""
    refute_probability: float
    """Probability that it is below 0.40."""
    rope_probability: float
    alpha: float
    beta: float
    n_experiments: int
    effect_mu: float | None
    """Mean delta of its runs to their workers' baselines, below 0 is better; null: no run has one."""
    effect_sem: float | None
    contrast_mu: float | None
    """Mean difference of its runs to their reference runs."""
    contrast_sem: float | None
    inside_mu: float | None
    """Mean delta of its runs less that of runs outside its constraint; null: one of both is missing."""
    inside_sem: float | None
    importance: float
    dimensions: list[str]
    config_constraint: dict[str, Any]
    test_spec: dict[str, Any] | None
    parent_id: str | None
    source: str
    rationale: str | None
    created_at: str


def hypothesis_view(h: Hypothesis) -> HypothesisView:
    return view_of(
        HypothesisView,
        h,
        **vars(posterior_of(h.alpha, h.beta)),
        **vars(effect(h)),
        type=h.kind,
        created_at=stamp(h.created_at),
    )


class Belief(Response):
    """A hypothesis in one line, for an agent's brief."""

    hypothesis_id: str
    statement: str
    status: str
    posterior_mean: float
    """P, the posterior mean of the share of its runs that win."""
    n_experiments: int


def belief_of(h: Hypothesis) -> Belief:
    return Belief(
        hypothesis_id=h.hypothesis_id,
        statement=short(h.statement, 200),
        status=h.settled or h.status,
        posterior_mean=round(posterior_of(h.alpha, h.beta).posterior_mean, 3),
        n_experiments=h.n_experiments,
    )


class EvidenceView(Response):
    """The evidence of one run."""

    experiment_id: str
    outcome: float | None
    """1: a win, 0: a loss, between 0 and 1: stopped early, null: a tie."""
    against: str
    """reference, baseline, crash, stopped or test."""
    reference_id: str | None
    delta: float | None
    contrast: float | None


def evidence_view(e: Evidence) -> EvidenceView:
    return view_of(EvidenceView, e)


# -- A checkpoint of a swarm's journal as Markdown.
#
# Statements and rationales are words of models and people. They are put into code spans, so that they make no
# tables, links or HTML.

MOST_ROWS = 100
"""Most rows of a table; the others are counted."""
_T = TypeVar("_T")


def checkpoint_text(chapter: Chapter) -> str:
    return "\n".join(_lines(chapter))


def journal_text(pages: Pages, tag: str) -> str:
    """Checkpoints in order; the first line says how to read those that are left out."""
    texts = list(pages.texts)
    if pages.first > 1:
        command = f"`{PROGRAM} journal --tag {tag}`"
        texts.insert(0, f"Checkpoints 1 to {pages.first - 1} are left out here: {command} prints them too.\n")
    return "\n".join(texts)


def _lines(chapter: Chapter) -> Iterator[str]:
    now = chapter.now
    at = datetime.fromtimestamp(now.at, UTC).strftime("%Y-%m-%d %H:%M")
    yield f"## Checkpoint {now.number} · {now.results} experiments · {at}\n"
    yield "### Belief movements\n"
    header = "| Hypothesis | Prior P | Current P | Delta | n | Status |"
    yield from _table(header, chapter.movements, _moved, "There are no hypotheses.")
    yield "### Eliminated this cycle\n"
    header = "| Hypothesis | Verdict | Last evidence |"
    yield from _table(header, chapter.eliminated, _gone, "None was refuted, and none is irrelevant.")
    yield "### New hypotheses generated\n"
    header = "| Hypothesis | Source | Rationale |"
    yield from _table(header, chapter.proposed, _new, "None.")
    yield "### Population changes\n"
    header = "| Population | Hypothesis | Strategy | Target | Workers in | Workers out |"
    yield from _table(header, chapter.restaffed, _staffed, "None.")
    yield f"{_of_references(chapter)}\n"


def _table(header: str, rows: Sequence[_T], row: Callable[[_T], str], nothing: str) -> Iterator[str]:
    if not rows:
        yield f"{nothing}\n"
        return
    yield header
    yield "|---" * (header.count("|") - 1) + "|"
    yield from map(row, rows[:MOST_ROWS])
    yield f"\nAnd {len(rows) - MOST_ROWS} more.\n" if len(rows) > MOST_ROWS else ""


def _moved(m: Movement) -> str:
    now = m.now
    status = now.status if now.settled is None else f"settled: {now.settled}"
    figures = f"{m.prior:.2f} | {now.posterior_mean:.2f} | {m.delta:+.2f} | {now.n_experiments}"
    return f"| {code(m.statement)} | {figures} | {status} |"


def _gone(e: Elimination) -> str:
    said = "none is kept" if e.evidence is None else _quoted(e.evidence)
    return f"| {code(e.statement)} | {e.verdict} | {said} |"


def _quoted(e: Evidence) -> str:
    """The evidence of a run: outcome, comparison and size."""
    named = {
        "reference": f"against the reference run {e.reference_id}",
        "baseline": "against its worker's baseline",
        "crash": "by a crash",
        "stopped": "stopped early",
        "test": "by its test",
    }
    figure = ("contrast", e.contrast) if e.contrast is not None else ("delta", e.delta)
    by_how_much = "" if figure[1] is None else f", {figure[0]} {figure[1]:+.6f}"
    return f"{e.experiment_id}: {_outcome(e.outcome)} {named[e.against]}{by_how_much}"


def _outcome(outcome: float | None) -> str:
    if outcome is None:
        return "a tie"
    return {1.0: "a win", 0.0: "a loss"}.get(outcome, f"{outcome:.2f} of a win")


def _new(h: Hypothesis) -> str:
    return f"| {code(h.statement)} | {h.source} | {code(h.rationale or '') or 'none given'} |"


def _staffed(r: Restaffing) -> str:
    change = "new" if r.before is None else "ended" if r.now is None else None
    strategy = _changed(r, lambda staff: staff.strategy) + (f" ({change})" if change else "")
    target = _changed(r, lambda staff: str(staff.target))
    return f"| {r.population_id} | {code(r.statement)} | {strategy} | {target} | {r.came} | {r.left} |"


def _changed(r: Restaffing, told: Callable[[Staff], str]) -> str:
    """The old and the new value, or one of them if they are equal."""
    return " → ".join(dict.fromkeys(told(staff) for staff in (r.before, r.now) if staff))


def _of_references(chapter: Chapter) -> str:
    now, before = chapter.now, chapter.before
    newly = _share(now.references - before.references, now.results - before.results)
    return (
        f"Reference runs: {newly} since the checkpoint before, {_share(now.references, now.results)} in all."
    )


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({part / whole:.0%})" if whole else "")
