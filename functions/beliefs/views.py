"""Hypotheses and their evidence in answers, and a checkpoint of the journal as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from functions.beliefs.rules.learning import EffectSizes, effect
from functions.beliefs.rules.posterior import Posterior, posterior
from functions.beliefs.rules.theory import Chapter
from functions.formats.markdown import code, table, text_of
from functions.kernel.contract import Response
from functions.search.rules.suggestions import short
from state.belief_facts import JournalBelief, Pages, Staff
from state.program import PROGRAM
from state.records import Evidence, Hypothesis, stamp, view_of

# -- Hypotheses and their evidence as answers show them.


class HypothesisView(Response, Posterior, EffectSizes):
    """A claim with the belief in it."""

    hypothesis_id: str
    statement: str
    type: str
    status: str
    phase: str
    settled: str | None
    """A verdict, which is valid however often results are looked at; null: none yet."""
    alpha: float
    beta: float
    n_experiments: int
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
        **vars(posterior(h)),
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
    p = round(h.probability, 3)
    return view_of(
        Belief, h, statement=short(h.statement, 200), status=h.settled or h.status, posterior_mean=p
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


# -- A checkpoint of a swarm's journal as Markdown.
#
# Statements and rationales are words of models and people. They are put into code spans, so that they make no
# tables, links or HTML.

MOST_ROWS = 100
"""Most rows of a table; the others are counted."""


@text_of
def journal_text(pages: Pages, tag: str) -> Iterator[str]:
    """Checkpoints in order; the first line says how to read those that are left out."""
    if pages.first > 1:
        command = f"`{PROGRAM} journal --tag {tag}`"
        yield f"Checkpoints 1 to {pages.first - 1} are left out here: {command} prints them too.\n"
    yield from pages.texts


@text_of
def checkpoint_text(chapter: Chapter, evidence: Mapping[str, Evidence]) -> Iterator[str]:
    """A checkpoint; `evidence` is the newest for each hypothesis that was eliminated."""
    now = chapter.now
    at = datetime.fromtimestamp(now.at, UTC).strftime("%Y-%m-%d %H:%M")
    yield f"## Checkpoint {now.number} · {now.results} experiments · {at}\n"
    yield "### Belief movements\n"
    names = ("Hypothesis", "Prior P", "Current P", "Delta", "n", "Status")
    moved = [_moved(h, prior, now.beliefs[h.hypothesis_id]) for h, prior in chapter.moved]
    yield from _table(names, moved, "There are no hypotheses.")
    yield "### Eliminated this cycle\n"
    gone = [
        (code(h.statement), h.settled, _quoted(evidence.get(h.hypothesis_id))) for h in chapter.eliminated
    ]
    nothing = "None was refuted, and none is irrelevant."
    yield from _table(("Hypothesis", "Verdict", "Last evidence"), gone, nothing)
    yield "### New hypotheses generated\n"
    new = [(code(h.statement), h.source, code(h.rationale or "") or "none given") for h in chapter.proposed]
    yield from _table(("Hypothesis", "Source", "Rationale"), new, "None.")
    yield "### Population changes\n"
    names = ("Population", "Hypothesis", "Strategy", "Target", "Workers in", "Workers out")
    before = chapter.before.populations
    staffed = [_staffed(name, before.get(name), now.populations.get(name)) for name in chapter.restaffed]
    yield from _table(names, staffed, "None.")
    newly = _share(now.references - chapter.before.references, now.results - chapter.before.results)
    whole = _share(now.references, now.results)
    yield f"Reference runs: {newly} since the checkpoint before, {whole} in all.\n"


def _table(names: Sequence[str], rows: Sequence[Sequence[object]], nothing: str) -> Iterator[str]:
    if not rows:
        yield f"{nothing}\n"
        return
    yield from table(names, rows[:MOST_ROWS])
    yield f"\nAnd {len(rows) - MOST_ROWS} more.\n" if len(rows) > MOST_ROWS else ""


def _moved(h: Hypothesis, prior: float, now: JournalBelief) -> Sequence[object]:
    status = now.status if now.settled is None else f"settled: {now.settled}"
    p = now.posterior_mean
    return code(h.statement), f"{prior:.2f}", f"{p:.2f}", f"{p - prior:+.2f}", now.n_experiments, status


def _quoted(e: Evidence | None) -> str:
    """The evidence of a run: outcome, comparison and size."""
    if e is None:
        return "none is kept"
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


def _staffed(name: str, before: Staff | None, now: Staff | None) -> Sequence[object]:
    """A population's old and new values, or one of them if they are equal; workers that came, and that left."""
    both = [staff for staff in (before, now) if staff is not None]
    change = " (new)" if before is None else " (ended)" if now is None else ""
    then, after = (set(staff.workers) if staff else set() for staff in (before, now))
    return (
        *(
            name,
            code(both[-1].statement),
            " → ".join(dict.fromkeys(staff.strategy for staff in both)) + change,
        ),
        *(
            " → ".join(dict.fromkeys(str(staff.target) for staff in both)),
            len(after - then),
            len(then - after),
        ),
    )


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({part / whole:.0%})" if whole else "")
