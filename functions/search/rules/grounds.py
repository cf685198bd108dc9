"""The ground of a suggestion: the tag's best, or the base of the selected branch, with what is near it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from functions.branches.rules.ancestry import branch
from functions.experiments.rules.verdict import main_key
from functions.search.rules.suggestions import near_to
from functions.trust.rules.noise import near_margin, noise_of
from state.facts import BranchGround, SearchFacts
from state.records import Mention, Sketch

RECENT = 10


@dataclass(frozen=True)
class Ground:
    """What the next idea builds on."""

    base: Sketch | None
    commit_sha: str | None
    near: Sequence[Mention]
    """Near misses of the base, best first."""
    near_count: int
    recent: Sequence[Sketch]
    """Oldest first."""
    merging: Sequence[Sketch] = ()
    """The experiments that a merge combines."""
    beside: Sequence[Sketch] | None = None
    """For a new root: the roots of the other branches."""


def ground_of(facts: SearchFacts) -> Ground:
    """The tag's best, near misses and newest results; or, with a selection, those of its branch."""
    if isinstance(facts.ground, BranchGround):
        return _of_branch(facts, facts.ground)
    found = facts.ground
    return Ground(
        base=found.base,
        commit_sha=found.best.commit_sha if found.best else facts.tag.base_commit,
        near=found.near,
        near_count=facts.near_count,
        recent=found.recent,
    )


def _of_branch(facts: SearchFacts, found: BranchGround) -> Ground:
    tag, chosen = facts.tag, found.chosen
    main = main_key(tag)
    above = branch(chosen.parent_ids, found.ancestors, tag.direction, main).ancestors
    noise = noise_of(facts.noise.squares, facts.noise.df)
    margin = near_margin(facts.policy, noise)
    near = near_to(found.base, above, tag.direction, margin)
    return Ground(
        base=found.base,
        commit_sha=chosen.base_commit_sha or tag.base_commit,
        near=near,
        near_count=len(near),
        recent=above[-RECENT:],
        merging=found.merging,
        beside=found.beside,
    )
