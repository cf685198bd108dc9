"""How hypotheses hang together; changes between two checkpoints, and their Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from functions.beliefs.rules.theory import chapter, edges_of, is_due, neighbours, snapshot, summary_of
from functions.beliefs.views import MOST_ROWS, checkpoint_text
from functions.swarm.rules.populations import Population
from functions.swarm.rules.shapes import SwarmStrategy
from state.belief_facts import BeliefSnapshot, JournalFacts
from state.records import Evidence, Hypothesis
from tests.functions.beliefs.rules.sample import believed, claim, claims

NOON = 1_767_268_800.0
"""2026-01-01 12:00 UTC."""
NONE: Mapping[str, Evidence] = {}


def facts(*hypotheses: Hypothesis, before: BeliefSnapshot | None = None, **changes: Any) -> JournalFacts:
    """A tag after 100 results, 26 of them of reference runs."""
    given: dict[str, Any] = {"now": NOON, "version": 140, "results": 100, "references": 26}
    given |= {
        "hypotheses": hypotheses,
        "populations": {},
        "assigned": {},
        "before": before or BeliefSnapshot(),
    }
    return JournalFacts(**given | changes)


def staffed(name: str, strategy: SwarmStrategy, target: int) -> dict[str, str]:
    return {name: Population(name, strategy, "hyp_000001", "LR matters", target=target).text()}


def section(text: str, title: str) -> list[str]:
    """The lines below a heading."""
    return text.split(f"### {title}\n\n")[1].split("\n\n### ")[0].split("\n")


def rows(text: str) -> list[list[str]]:
    """The cells of every row of every table, as a reader's program takes them apart."""
    html = MarkdownIt().enable("table").render(text)
    assert "<table" in html
    assert not re.search(r"<(?!/?(h2|h3|p|table|thead|tbody|tr|th|td|code)\b)", html), html
    return [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)]


def test_what_was_eliminated_is_told_once_with_its_last_evidence() -> None:
    first = snapshot(facts(believed(0.3, 10, "hyp_000001"), believed(0.5, 20, "hyp_000002")))
    refuted = believed(0.1, 20, "hyp_000001", statement="WIDTH matters", settled="refuted", status="refuted")
    level = believed(0.5, 40, "hyp_000002", statement="SEED matters", settled="irrelevant")
    evidence = {
        "hyp_000001": Evidence(
            experiment_id="swarm-9", outcome=0.0, against="reference", reference_id="swarm-4", contrast=0.0125
        ),
        "hyp_000002": Evidence(experiment_id="swarm-8", outcome=None, against="baseline", delta=-0.001),
    }
    second = facts(refuted, level, before=first)

    text = checkpoint_text(chapter(second), evidence)

    assert section(text, "Eliminated this cycle")[2:] == [
        "| `WIDTH matters` | refuted | swarm-9: a loss against the reference run swarm-4, contrast +0.012500 |",
        "| `SEED matters` | irrelevant | swarm-8: a tie against its worker's baseline, delta -0.001000 |",
    ]
    assert "| `SEED matters` | 0.50 | 0.50 | +0.00 | 40 | settled: irrelevant |" in text
    third = facts(refuted, level, before=snapshot(second))
    assert chapter(third).eliminated == []
    assert "WIDTH" not in checkpoint_text(chapter(third), NONE)


def test_population_changes_say_what_was_what_is_and_who_moved() -> None:
    old = staffed("pop_1", "investigate", 3) | staffed("pop_2", "falsify", 1) | staffed("pop_4", "exploit", 1)
    first = snapshot(facts(populations=old, assigned={"a": "pop_1", "b": "pop_1", "c": "pop_2"}))
    new = staffed("pop_1", "exploit", 5) | staffed("pop_3", "moonshot", 1) | staffed("pop_4", "exploit", 1)

    text = checkpoint_text(
        chapter(facts(populations=new, assigned={"a": "pop_1", "b": "pop_3", "c": "pop_1"}, before=first)),
        NONE,
    )

    assert section(text, "Population changes")[2:5] == [
        "| pop_1 | `LR matters` | investigate → exploit | 3 → 5 | 1 | 1 |",
        "| pop_3 | `LR matters` | moonshot (new) | 1 | 1 | 0 |",
        "| pop_2 | `LR matters` | falsify (ended) | 1 | 0 | 1 |",
    ]
    assert "pop_4" not in text


def test_a_table_ends_after_a_hundred_rows_and_says_how_many_more_there_are() -> None:
    many = [claim(f"hyp_{n:06x}") for n in range(MOST_ROWS + 7)]
    text = checkpoint_text(chapter(facts(*many)), NONE)
    lines = section(text, "Belief movements")
    assert (len(lines), lines[-1]) == (2 + MOST_ROWS + 2, "And 7 more.")


@given(statement=st.text(min_size=1, max_size=60), rationale=st.text(max_size=60))
@example(statement="a | b \\| c\n\n# <img src=x>`` d", rationale="| --- |\n## Eliminated")
def test_words_of_a_model_never_break_a_table(statement: str, rationale: str) -> None:
    gone = claim(statement=statement, rationale=rationale, settled="refuted")
    population = Population("pop_1", "investigate", "hyp_000001", statement, target=2).text()
    text = checkpoint_text(chapter(facts(gone, populations={"pop_1": population})), NONE)
    assert [len(row) for row in rows(text) if row] == [6, 3, 3, 6]


@given(st.lists(claims(), min_size=1, max_size=4))
def test_each_checkpoint_begins_where_the_one_before_was_kept(history: list[list[Hypothesis]]) -> None:
    before = BeliefSnapshot()
    for nth, hypotheses in enumerate(history):
        told = chapter(facts(*hypotheses, before=before, version=nth + 1))

        kept = BeliefSnapshot.read(told.now.text())
        assert (kept, kept.number) == (told.now, nth + 1)
        stood = [before.beliefs.get(h.hypothesis_id) for h in hypotheses]
        priors = [0.5 if stand is None else stand.posterior_mean for stand in stood]
        assert sorted(prior for _, prior in told.moved) == sorted(priors)
        before = kept


def test_a_checkpoint_is_due_when_anything_is_new_and_none_tells_of_so_many_results() -> None:
    told = snapshot(facts())
    assert is_due(facts(), None)
    assert is_due(facts(), 100)
    assert not is_due(facts(before=told), None)
    assert is_due(facts(before=told, version=141), None)
    assert not is_due(facts(before=told, version=141), 100)
    assert is_due(facts(before=told, version=300, results=203), 200)


def about(name: str, **changes: Any) -> Hypothesis:
    fields: dict[str, Any] = {"tag": "swarm", "statement": f"{name} matters", "created_at": 1.0}
    return Hypothesis(**{**fields, "hypothesis_id": name, "dimensions": [name], **changes})


def test_parts_hang_below_their_parent_and_claims_of_one_dimension_are_linked() -> None:
    whole, part = about("LR"), about("warm", dimensions=["WARMUP"], parent_id="LR")
    near = about("low", dimensions=[], config_constraint={"LR": {"max": 0.01}})
    edges = edges_of([whole, part, near])
    told = [(e.type, e.source, e.target) for e in edges]
    assert told == [("decomposes_into", "LR", "warm"), ("linked", "LR", "low")]
    assert edges_of([about("a", parent_id="gone")]) == []
    assert neighbours(edges) == ({"LR": ["warm"]}, {"LR": ["low"], "low": ["LR"]})


def test_the_summary_says_what_is_known_what_is_not_and_what_was_given_up() -> None:
    told = summary_of(
        [
            about("LR", status="supported", alpha=22.0, beta=4.0, n_experiments=22),
            about("SEED", settled="irrelevant", n_experiments=60),
            about("DEPTH", n_experiments=1),
            about("BETA", settled="refuted", status="refuted", alpha=3.0, beta=21.0, n_experiments=20),
        ]
    )

    assert told.splitlines() == [
        "Supported (1): LR matters (P = 0.85, 22 runs).",
        "Refuted (1): BETA matters (P = 0.12, 20 runs).",
        "Irrelevant (1): SEED matters (P = 0.50, 60 runs).",
        "Undecided (1): DEPTH matters (P = 0.50, 1 run).",
    ]
    assert summary_of([]) == "No hypotheses yet."
    assert summary_of([about(f"D{n}") for n in range(7)]).endswith("and 2 more.")
