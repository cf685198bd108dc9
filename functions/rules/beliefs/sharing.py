"""Who tests what: the populations of a tag, made of what is believed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from functions.rules.beliefs.allocation import MOONSHOT, USUAL, Allotting, has_converged, targets
from functions.rules.beliefs.evidence import ARCHIVED, about
from functions.rules.beliefs.posterior import posterior
from functions.rules.beliefs.rebalancing import steadied
from functions.rules.beliefs.strategies import COMPARED, REFERENCED, moonshot_shape, shape_of, strategy_of
from functions.rules.beliefs.testing import can_be_run, is_test, test_terms
from functions.rules.swarm.populations import Population, population_id
from functions.rules.swarm.shapes import Shape, contradictions, standing_config
from state.belief_facts import BeliefFacts
from state.policy import Policy
from state.records import Dimension, Hypothesis, Value


def is_due(facts: BeliefFacts, opened: Sequence[Hypothesis]) -> bool:
    """Whether the workers are to be shared out anew: after a result for each active worker, or for other claims."""
    tested = {Population.read(text).hypothesis_id for text in facts.populations.values()} - {None}
    others = tested != {h.hypothesis_id for h in opened if may_be_tested(h, facts.dimensions)}
    return others or facts.results + 1 - facts.allocated_at >= max(1, facts.active_workers)


def shared_out(
    facts: BeliefFacts, opened: Sequence[Hypothesis], best_config: Mapping[str, Value]
) -> list[Population]:
    """A population for each hypothesis that is to be tested, and one of moonshots where workers are left for it."""
    tested = [h for h in opened if may_be_tested(h, facts.dimensions)]
    allotting = allotting_of(facts.policy)
    converged = [h.hypothesis_id for h in tested if _has_converged(h, allotting)]
    before = {p.hypothesis_id or MOONSHOT: p.target for p in map(Population.read, facts.populations.values())}
    wanted = targets(tested, facts.active_workers, allotting, converged=converged, turn=facts.allocations)
    share = steadied(before, wanted)
    tag = facts.tag.name
    found = [
        _population(facts, h, share[h.hypothesis_id], best_config, is_converged=h.hypothesis_id in converged)
        for h in tested
    ]
    if shots := share.get(MOONSHOT):
        statement = "the ends of the ranges hold something better"
        shape = moonshot_shape(best_config)
        found.append(
            Population(population_id(tag, MOONSHOT), "moonshot", None, statement, target=shots, shape=shape)
        )
    return found


def reference_config(dimensions: Sequence[Dimension], best_config: Mapping[str, Value]) -> dict[str, Value]:
    """What reference runs of a hypothesis have that is proposed now: the best known config, else the middle."""
    return standing_config(dimensions, Shape("investigate", center=best_config))


def may_be_tested(h: Hypothesis, dimensions: Sequence[Dimension]) -> bool:
    """Whether workers test it: it is not over, and configs can vary what it is about.

    A claim waits while one of its dimensions was removed, is on trial, or is frozen where the claim does not allow
    it, and while all of them are frozen. One about no dimension is not tested: no run of a swarm bears on it. A test
    waits while one of its cells cannot be run.
    """
    there = {d.name: d for d in dimensions if not d.on_trial}
    names = about(h)
    if is_over(h) or not names <= there.keys():
        return False
    if is_test(h):
        return can_be_run(h, dimensions)
    can_vary = any(not there[name].frozen for name in names)
    return can_vary and not any(
        contradictions(dimensions, Shape("investigate", constraint=h.config_constraint))
    )


def is_over(h: Hypothesis) -> bool:
    """Whether no worker tests it any more: it is refuted or irrelevant, or its one test is complete."""
    return h.settled in ARCHIVED or (is_test(h) and h.settled is not None)


def texts(populations: Iterable[Population]) -> dict[str, str]:
    """Populations as they are kept, by id."""
    return {p.population_id: p.text() for p in populations}


def allotting_of(policy: Policy) -> Allotting:
    """What a tag's policy says of sharing out."""
    given = policy.allocation
    return Allotting(
        temperature=given.temperature,
        min_workers=given.min_workers,
        min_unproven=USUAL.min_unproven,
        moonshot_share=given.moonshot_share,
        converged_share=USUAL.converged_share,
    )


def _has_converged(h: Hypothesis, allotting: Allotting) -> bool:
    """A verdict is borne out by an e-value, which says more than a number of results."""
    return h.settled == "supported" or has_converged(
        posterior(h).support_probability, h.n_experiments, allotting
    )


def _population(
    facts: BeliefFacts, h: Hypothesis, target: int, best_config: Mapping[str, Value], *, is_converged: bool
) -> Population:
    tag = facts.tag.name
    strategy = strategy_of(h, converged=is_converged)
    return Population(
        population_id(tag, h.hypothesis_id),
        strategy,
        h.hypothesis_id,
        h.statement,
        target=target,
        shape=shape_of(h, strategy, best_config, test_terms(h, facts.dimensions)),
        test_spec=h.test_spec if strategy == "validate" else None,
        constraint=h.config_constraint,
        tested=None
        if strategy in COMPARED or h.settled == "supported"
        else shape_of(h, "investigate", best_config),
        searched=shape_of(h, "exploit", best_config)
        if strategy in REFERENCED and facts.policy.belief.evidence == "matched"
        else None,
    )
