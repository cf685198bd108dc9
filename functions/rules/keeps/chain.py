"""The chain of keeps that led to the best: each with the keep whose code it changed, or in a swarm, that it beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from state.records import Keep


@dataclass(frozen=True)
class Step:
    """A keep on the way to the best."""

    keep: Keep
    above: Keep | None
    """What it was made from, in a swarm what it beat; None: the tag's base commit, or a keep that was taken back."""


def chain(best_id: str | None, keeps: Sequence[Keep]) -> list[Step]:
    """The steps from the first keep to the best, in their order.

    A keep whose own base is none any more (it was demoted, or retracted) stands on the last one that finished before
    it. Each is older than what was made from it, so that the chain ends whatever the records say.
    """
    known = {e.experiment_id: e for e in keeps}
    here, found = known.get(best_id or ""), list[Step]()
    while here is not None:
        above = _above(here, known)
        found.append(Step(here, above))
        here = above
    return found[::-1]


def _above(keep: Keep, known: dict[str, Keep]) -> Keep | None:
    if keep.baseline:
        return None
    named = known.get(keep.made_from or "")
    if named is not None and named.number < keep.number:
        return named
    return max((e for e in known.values() if e.number < keep.number), key=lambda e: e.number, default=None)
