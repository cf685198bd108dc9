"""What changes of a tag's hypotheses as its dimensions change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from functions.rules.beliefs.bootstrap import bootstrapped
from functions.rules.beliefs.evidence import about
from functions.rules.beliefs.rivals import with_rival
from functions.rules.beliefs.sharing import reference_config
from functions.rules.swarm.rooms import own_value
from state.belief_facts import ProposalFacts
from state.records import Claim, Dimension, Hypothesis, Value


def begun(facts: ProposalFacts) -> list[Hypothesis]:
    """A claim for each dimension that may vary and has none."""
    known = {h.hypothesis_id: h.statement for h in (*facts.open, *facts.archived)}
    reference = reference_config(facts.dimensions, facts.best_config)
    return bootstrapped(facts.tag.name, facts.dimensions, known, reference, facts.now)


def adapted(facts: ProposalFacts) -> list[Hypothesis]:
    """Open hypotheses whose reference config no longer is a config, with one that is: every dimension has one of its
    values there, and a frozen one stands where it is frozen. Runs are compared with the new one from now on."""
    reference = reference_config(facts.dimensions, facts.best_config)
    held = [(h, _held(h.reference_config or reference, facts.dimensions, reference)) for h in facts.open]
    found = [(h, with_rival(h, config, facts.dimensions)) for h, config in held]
    return [h.model_copy(update={"reference_config": new}) for h, new in found if new != h.reference_config]


def reopened(facts: ProposalFacts, dimension: str) -> list[Hypothesis]:
    """The claims of a dimension that were irrelevant, begun anew: it varies again."""
    reference = reference_config(facts.dimensions, facts.best_config)
    return [
        Hypothesis(
            **{
                **h.model_dump(include=set(Claim.model_fields)),
                "created_at": facts.now,
                "reference_config": with_rival(h, reference, facts.dimensions),
            }
        )
        for h in facts.archived
        if h.settled == "irrelevant" and about(h) == {dimension}
    ]


def irrelevant_dimension(h: Hypothesis) -> str | None:
    """The dimension that is to be frozen, since its claim is irrelevant; None: there is no such one."""
    is_whole = h.settled == "irrelevant" and not h.config_constraint and len(h.dimensions) == 1
    return h.dimensions[0] if is_whole else None


def _held(
    config: Mapping[str, Value], dimensions: Sequence[Dimension], fallback: Mapping[str, Value]
) -> dict[str, Value]:
    by_name = {d.name: d for d in dimensions}
    return {name: _held_value(by_name[name], config.get(name), value) for name, value in fallback.items()}


def _held_value(dimension: Dimension, before: Value | None, fallback: Value) -> Value:
    if dimension.frozen and dimension.frozen_value is not None:
        return dimension.frozen_value
    # the dimension may have been defined anew since
    own = None if before is None else own_value(dimension, before)
    return fallback if own is None else own
