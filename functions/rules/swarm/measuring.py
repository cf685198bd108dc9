"""How much the dimensions of a swarm matter, and when it is time to measure it again."""

from __future__ import annotations

from functions.rules.swarm.replenishing import observations_of
from state.records import Dimension
from state.swarm_facts import RefillFacts

NEWS = 0.1
"""Share of the results that have to be new."""
LEAST_NEWS = 10


def is_due(facts: RefillFacts) -> bool:
    """Whether enough results are new since the dimensions were measured, or one was defined since."""
    results = facts.tag.results
    before = min((d.n_samples for d in facts.dimensions), default=results)
    return results - before >= max(LEAST_NEWS, NEWS * results)


def measured(facts: RefillFacts) -> list[Dimension]:
    """The dimensions with how much they matter, measured on what the newest runs have shown.

    As they were where too few runs have finished; so is what stands of one that is on trial.
    """
    # numpy and scipy take most of a second to import, and few processes measure
    from functions.rules.swarm.gaussian_process.importance import importances

    observations = observations_of(facts)
    found = importances([d for d in facts.dimensions if not d.on_trial], observations)

    def with_shares(d: Dimension) -> Dimension:
        if d.on_trial:
            return d.model_copy(update={"n_samples": facts.tag.results})
        shares = {
            "importance": round(found[d.name].alone, 4),
            "interaction": round(found[d.name].together, 4),
            "interacts_with": {name: round(share, 4) for name, share in found[d.name].pairs.items()},
        }
        return d.model_copy(update={**shares, "n_samples": facts.tag.results})

    return [with_shares(d) if found else d for d in facts.dimensions]
