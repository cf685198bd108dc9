"""Claims that follow from a tag's dimensions: the first ones, and changes after a dimension has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from functions.beliefs.rules.constraints import with_rival
from functions.beliefs.rules.declaring import hypothesis_id
from functions.beliefs.rules.evidence import about
from functions.beliefs.rules.sharing import reference_config
from functions.swarm.rules.rooms import own_value, room_of
from state.belief_facts import ProposalFacts
from state.records import Dimension, Hypothesis, HypothesisClaim, Value


def begun(facts: ProposalFacts) -> list[Hypothesis]:
    """New claims, for dimensions that may vary and have none."""
    known = {h.hypothesis_id: h.statement for h in (*facts.open, *facts.archived)}
    reference = reference_config(facts.dimensions, facts.best_config)
    return bootstrapped(facts.tag.name, facts.dimensions, known, reference, facts.now)


def bootstrapped(
    tag: str,
    dimensions: Sequence[Dimension],
    known: Mapping[str, str],
    reference: Mapping[str, Value],
    now: float,
) -> list[Hypothesis]:
    """ "<DIM> matters" at Beta(2, 2), for each dimension that may vary and has no such claim.

    Dimensions with one value cannot matter, and those on trial have to prove themselves first. `known` are the
    statements by id of all hypotheses that the tag ever had, settled ones too. `now` in seconds since the epoch.
    """
    statements, made = dict(known), list[Hypothesis]()
    for dimension in dimensions:
        statement = claim_of(dimension.name)
        if (
            dimension.frozen
            or dimension.on_trial
            or _has_one_value(dimension)
            or statement in statements.values()
        ):
            continue
        name = hypothesis_id(tag, statement, statements)
        statements[name] = statement
        made.append(
            Hypothesis(
                hypothesis_id=name,
                tag=tag,
                statement=statement,
                dimensions=[dimension.name],
                created_at=now,
                reference_config=dict(reference),
            )
        )
    return made


def _has_one_value(dimension: Dimension) -> bool:
    room = room_of(dimension)
    return room is not None and room.single


def claim_of(dimension: str) -> str:
    """The first claim about a dimension."""
    return f"{dimension} matters"


def adapted(facts: ProposalFacts) -> list[Hypothesis]:
    """Open hypotheses whose reference config has become invalid, with a valid one.

    In a valid config each dimension has one of its values, and a frozen one its frozen value.
    """
    reference = reference_config(facts.dimensions, facts.best_config)
    valid = [(h, _valid(h.reference_config or reference, facts.dimensions, reference)) for h in facts.open]
    found = [(h, with_rival(h, config, facts.dimensions)) for h, config in valid]
    return [h.model_copy(update={"reference_config": new}) for h, new in found if new != h.reference_config]


def reopened(facts: ProposalFacts, dimension: str) -> list[Hypothesis]:
    """Irrelevant claims about a dimension, begun anew because it varies again."""
    reference = reference_config(facts.dimensions, facts.best_config)
    return [
        Hypothesis(
            **{
                **h.model_dump(include=set(HypothesisClaim.model_fields)),
                "created_at": facts.now,
                "reference_config": with_rival(h, reference, facts.dimensions),
            }
        )
        for h in facts.archived
        if h.settled == "irrelevant" and about(h) == {dimension}
    ]


def irrelevant_dimension(h: Hypothesis) -> str | None:
    """The dimension to freeze because this claim is irrelevant; None: there is none."""
    is_whole = h.settled == "irrelevant" and not h.config_constraint and len(h.dimensions) == 1
    return h.dimensions[0] if is_whole else None


def _valid(
    config: Mapping[str, Value], dimensions: Sequence[Dimension], fallback: Mapping[str, Value]
) -> dict[str, Value]:
    by_name = {d.name: d for d in dimensions}
    return {name: _valid_value(by_name[name], config.get(name), value) for name, value in fallback.items()}


def _valid_value(dimension: Dimension, before: Value | None, fallback: Value) -> Value:
    if dimension.frozen and dimension.frozen_value is not None:
        return dimension.frozen_value
    # the dimension may have been defined anew since
    own = None if before is None else own_value(dimension, before)
    return fallback if own is None else own
