"""The graph of a tag's hypotheses, its summary, and changes since the newest checkpoint of the journal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from functions.beliefs.rules.evidence import ARCHIVED, about
from functions.swarm.rules.populations import Population
from state.belief_facts import BeliefSnapshot, JournalBelief, JournalFacts, Staff
from state.records import Hypothesis

MOST_NAMED = 5
"""Hypotheses of each kind that a summary names."""


class GraphEdge(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True, serialize_by_alias=True)

    type: Literal["decomposes_into", "linked"]
    """decomposes_into: the target is a part of the source. linked: both share a dimension; each pair once."""
    source: str = Field(serialization_alias="from")
    target: str = Field(serialization_alias="to")


def edges_of(hypotheses: Sequence[Hypothesis]) -> list[GraphEdge]:
    """Edges from parents to children, then links between hypotheses that share a dimension."""
    known = {h.hypothesis_id for h in hypotheses}
    parts = [
        GraphEdge(type="decomposes_into", source=h.parent_id, target=h.hypothesis_id)
        for h in hypotheses
        if h.parent_id is not None and h.parent_id in known
    ]
    named = [(h.hypothesis_id, about(h)) for h in hypotheses]
    links = [
        GraphEdge(type="linked", source=one, target=other)
        for (one, its), (other, theirs) in combinations(named, 2)
        if not its.isdisjoint(theirs)
    ]
    return parts + links


def neighbours(edges: Iterable[GraphEdge]) -> tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]]:
    """The children of each hypothesis that has some, and the hypotheses that share a dimension with it."""
    children, linked = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for e in edges:
        if e.type == "decomposes_into":
            children[e.source].append(e.target)
        else:
            linked[e.source].append(e.target)
            linked[e.target].append(e.source)
    return children, linked


def summary_of(hypotheses: Sequence[Hypothesis]) -> str:
    """Supported, refuted, irrelevant and undecided hypotheses, each kind in a sentence."""
    found: dict[str, list[Hypothesis]] = {
        name: [] for name in ("Supported", "Refuted", "Irrelevant", "Undecided")
    }
    for h in sorted(hypotheses, key=lambda h: -h.n_experiments):
        found[_kind(h)].append(h)
    told = (f"{kind} ({len(those)}): {_listed(those)}." for kind, those in found.items() if those)
    return "\n".join(told) or "No hypotheses yet."


def _kind(h: Hypothesis) -> str:
    if h.settled == "irrelevant":
        return "Irrelevant"
    believed = h.settled or h.status
    return "Undecided" if believed == "active" else believed.capitalize()


def _listed(hypotheses: Sequence[Hypothesis]) -> str:
    named = "; ".join(_with_belief(h) for h in hypotheses[:MOST_NAMED])
    more = len(hypotheses) - MOST_NAMED
    return f"{named}; and {more} more" if more > 0 else named


def _with_belief(h: Hypothesis) -> str:
    runs = "run" if h.n_experiments == 1 else "runs"
    return f"{h.statement} (P = {h.probability:.2f}, {h.n_experiments} {runs})"


def status_digest(hypotheses: Iterable[Hypothesis]) -> str:
    """Digest of the hypotheses and their verdicts or statuses; figures alone do not change it."""
    statuses = sorted((h.hypothesis_id, h.settled or h.status) for h in hypotheses)
    return sha256(repr(statuses).encode()).hexdigest()[:16]


def least_decided(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Hypotheses by the distance of P from 0.5, the nearest first."""
    return sorted(hypotheses, key=lambda h: (abs(h.probability - 0.5), h.hypothesis_id))


# -- Changes of a tag's beliefs since the newest checkpoint of its journal.

UNKNOWN = 0.5
"""P of a hypothesis before its first result, by the prior Beta(2, 2)."""


@dataclass(frozen=True)
class Chapter:
    """The content of a checkpoint."""

    before: BeliefSnapshot
    now: BeliefSnapshot
    moved: Sequence[tuple[Hypothesis, float]]
    """Hypotheses with their P at the last checkpoint, the largest movement first."""
    eliminated: Sequence[Hypothesis]
    """Those that lost their workers because they are refuted or irrelevant."""
    proposed: Sequence[Hypothesis]
    """Those that were proposed or reopened."""
    restaffed: Sequence[str]
    """Ids of populations whose workers, target or strategy have changed: present ones, then those that ended."""


def is_due(facts: JournalFacts, results: int | None) -> bool:
    """Whether to write a checkpoint: something is new, and no checkpoint covers this many results."""
    return facts.version > facts.before.version and (results is None or facts.before.results < results)


def snapshot(facts: JournalFacts) -> BeliefSnapshot:
    """The present state of the tag, for comparison with the next checkpoint."""
    return BeliefSnapshot(
        number=facts.before.number + 1,
        at=facts.now,
        version=facts.version,
        results=facts.results,
        references=facts.references,
        beliefs={
            h.hypothesis_id: JournalBelief(h.probability, h.n_experiments, h.status, h.settled)
            for h in facts.hypotheses
        },
        populations=_staffs(facts),
    )


def chapter(facts: JournalFacts) -> Chapter:
    """The content of the next checkpoint."""
    before, now = facts.before, snapshot(facts)
    earlier = {h.hypothesis_id: before.beliefs.get(h.hypothesis_id) for h in facts.hypotheses}
    shown = [
        h
        for h in facts.hypotheses
        if h.settled not in ARCHIVED or earlier[h.hypothesis_id] != now.beliefs[h.hypothesis_id]
    ]
    moved = [(h, then.posterior_mean if (then := earlier[h.hypothesis_id]) else UNKNOWN) for h in shown]
    staffed = [*now.populations, *(name for name in before.populations if name not in now.populations)]
    return Chapter(
        before,
        now,
        sorted(moved, key=lambda m: -round(abs(now.beliefs[m[0].hypothesis_id].posterior_mean - m[1]), 6)),
        eliminated=[h for h in shown if h.settled in ARCHIVED],
        proposed=[h for h in facts.hypotheses if _is_new(h, earlier[h.hypothesis_id])],
        restaffed=[name for name in staffed if before.populations.get(name) != now.populations.get(name)],
    )


def _is_new(h: Hypothesis, earlier: JournalBelief | None) -> bool:
    """Whether it was proposed or reopened since the last checkpoint."""
    return earlier is None or (earlier.settled in ARCHIVED and h.settled not in ARCHIVED)


def _staffs(facts: JournalFacts) -> dict[str, Staff]:
    workers: dict[str, list[str]] = {name: [] for name in facts.populations}
    for worker, population in sorted(facts.assigned.items()):
        if population in workers:
            workers[population].append(worker)
    given = ((name, Population.read(text)) for name, text in facts.populations.items())
    return {name: Staff(p.statement, p.strategy, p.target, workers[name]) for name, p in given}
