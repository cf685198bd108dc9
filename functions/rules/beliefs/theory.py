"""How the hypotheses of a tag hang together, and what they say in a few sentences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations
from typing import Literal

from functions.rules.beliefs.evidence import about
from functions.rules.beliefs.posterior import posterior
from state.records import Hypothesis

TOLD = 5
"""Hypotheses of a kind that a summary names."""


@dataclass(frozen=True)
class Edge:
    """From a hypothesis to another one."""

    source: str
    target: str
    kind: Literal["decomposes_into", "linked"]
    """The target is a part of the source; or both are about the same dimensions, each pair once."""


def edges_of(hypotheses: Sequence[Hypothesis]) -> list[Edge]:
    """Parents to their children, then pairs that share a dimension: what is learned of one bears on the other."""
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


def children_by_id(edges: Iterable[Edge]) -> Mapping[str, Sequence[str]]:
    """The parts of each hypothesis that has any."""
    found = defaultdict[str, list[str]](list)
    for e in edges:
        if e.kind == "decomposes_into":
            found[e.source].append(e.target)
    return found


def linked_by_id(edges: Iterable[Edge]) -> Mapping[str, Sequence[str]]:
    """The hypotheses that share a dimension with each one, of those that have any."""
    found = defaultdict[str, list[str]](list)
    for e in edges:
        if e.kind == "linked":
            found[e.source].append(e.target)
            found[e.target].append(e.source)
    return found


def summary_of(hypotheses: Sequence[Hypothesis]) -> str:
    """What is known, what is not, and what was given up, in that order."""
    return "\n".join(_sentences(hypotheses)) or "No hypotheses yet."


def _sentences(hypotheses: Sequence[Hypothesis]) -> Iterator[str]:
    found: dict[str, list[Hypothesis]] = {
        name: [] for name in ("Supported", "Refuted", "Irrelevant", "Undecided")
    }
    for h in sorted(hypotheses, key=lambda h: -h.n_experiments):
        found[_kind(h)].append(h)
    for kind, those in found.items():
        if those:
            yield f"{kind} ({len(those)}): {_listed(those)}."


def _kind(h: Hypothesis) -> str:
    if h.settled == "irrelevant":
        return "Irrelevant"
    believed = h.settled or h.status
    return "Undecided" if believed == "active" else believed.capitalize()


def _listed(hypotheses: Sequence[Hypothesis]) -> str:
    told = "; ".join(_told(h) for h in hypotheses[:TOLD])
    more = len(hypotheses) - TOLD
    return f"{told}; and {more} more" if more > 0 else told


def _told(h: Hypothesis) -> str:
    runs = "run" if h.n_experiments == 1 else "runs"
    return f"{h.statement} (P = {posterior(h).posterior_mean:.2f}, {h.n_experiments} {runs})"


def standing_digest(hypotheses: Iterable[Hypothesis]) -> str:
    """The same for beliefs in which every hypothesis stands as it did, whatever its figures."""
    stands = sorted((h.hypothesis_id, h.settled or h.status) for h in hypotheses)
    return sha256(repr(stands).encode()).hexdigest()[:16]


def least_decided(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Those whose P is nearest to 0.5 first."""
    return sorted(hypotheses, key=lambda h: (abs(h.alpha / (h.alpha + h.beta) - 0.5), h.hypothesis_id))
