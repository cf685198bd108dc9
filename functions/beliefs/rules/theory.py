"""The graph of a tag's hypotheses, and its summary in a few sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from typing import Literal

from functions.beliefs.rules.evidence import about
from state.records import Hypothesis

MOST_NAMED = 5
"""Hypotheses of each kind that a summary names."""


@dataclass(frozen=True)
class Edge:
    source: str
    target: str
    kind: Literal["decomposes_into", "linked"]
    """decomposes_into: the target is a part of the source. linked: both share a dimension; each pair once."""


def edges_of(hypotheses: Sequence[Hypothesis]) -> list[Edge]:
    """Edges from parents to children, then links between hypotheses that share a dimension."""
    known = {h.hypothesis_id for h in hypotheses}
    parts = [
        Edge(h.parent_id, h.hypothesis_id, "decomposes_into")
        for h in hypotheses
        if h.parent_id is not None and h.parent_id in known
    ]
    named = [(h.hypothesis_id, about(h)) for h in hypotheses]
    links = [
        Edge(one, other, "linked")
        for (one, its), (other, theirs) in combinations(named, 2)
        if not its.isdisjoint(theirs)
    ]
    return parts + links


def neighbours(edges: Iterable[Edge]) -> tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]]:
    """The children of each hypothesis that has some, and the hypotheses that share a dimension with it."""
    children, linked = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
    for e in edges:
        if e.kind == "decomposes_into":
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
