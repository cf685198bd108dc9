"""The hypotheses that a tag begins with: one for each dimension that may vary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from functions.rules.beliefs.declaring import hypothesis_id
from functions.rules.swarm.rooms import room_of
from state.records import Dimension, Hypothesis, Value


def bootstrapped(
    tag: str,
    dimensions: Sequence[Dimension],
    known: Mapping[str, str],
    reference_config: Mapping[str, Value],
    now: float,
) -> list[Hypothesis]:
    """ "<DIM> matters" for each dimension that is not frozen and has none, in their order, at Beta(2, 2).

    A dimension with one value only, a category that has no other, say, cannot matter. One that is on trial has to
    prove itself first.

    `known` are the statements by id of all hypotheses that the tag ever had: one that was settled is not begun anew.
    `now` in seconds since the epoch.
    """
    told, made = dict(known), list[Hypothesis]()
    for dimension in dimensions:
        statement = claim_of(dimension.name)
        if dimension.frozen or dimension.on_trial or _stands_still(dimension) or statement in told.values():
            continue
        name = hypothesis_id(tag, statement, told)
        told[name] = statement
        made.append(
            Hypothesis(
                hypothesis_id=name,
                tag=tag,
                statement=statement,
                dimensions=[dimension.name],
                created_at=now,
                reference_config=dict(reference_config),
            )
        )
    return made


def _stands_still(dimension: Dimension) -> bool:
    room = room_of(dimension)
    return room is not None and room.single


def claim_of(dimension: str) -> str:
    """What is claimed of a dimension in the beginning."""
    return f"{dimension} matters"
