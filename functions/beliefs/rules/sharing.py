"""The populations of a tag: their targets, strategies and shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from functions.beliefs.rules.allocation import MOONSHOT, has_converged, steadied, targets
from functions.beliefs.rules.evidence import ARCHIVED, about
from functions.beliefs.rules.learning import DECIDED, ENOUGH_RUNS
from functions.beliefs.rules.posterior import posterior
from functions.beliefs.rules.protocols import is_blocked, is_test, spec_now
from functions.beliefs.rules.terms import (
    COMPARED,
    MOST_VARIED,
    REFERENCED,
    is_of_influence,
    shape_of,
    strategy_of,
)
from functions.swarm.rules.populations import Population, population_id
from functions.swarm.rules.shapes import Shape, contradictions, standing_config
from state.belief_facts import BeliefFacts
from state.records import Dimension, Hypothesis, Value

TESTS_FOR_REFERENCE = 3
"""Runs for each reference run of a claim that irrelevance will probably settle."""


def is_due(facts: BeliefFacts, opened: Sequence[Hypothesis]) -> bool:
    """Whether to reallocate workers: after one result for each active worker, or when the claims have changed."""
    tested = {Population.read(text).hypothesis_id for text in facts.populations.values()} - {None}
    others = tested != {h.hypothesis_id for h in opened if may_be_tested(h, facts.dimensions)}
    return others or facts.results + 1 - facts.allocated_at >= max(1, facts.active_workers)


def shared_out(
    facts: BeliefFacts, opened: Sequence[Hypothesis], best_config: Mapping[str, Value]
) -> list[Population]:
    """A population for each hypothesis that can be tested, and one of moonshots if workers are left."""
    tested = [h for h in opened if may_be_tested(h, facts.dimensions)]
    # a settled claim has converged, too: its e-value says more than a number of results
    converged = [
        h.hypothesis_id
        for h in tested
        if h.settled == "supported" or has_converged(posterior(h).support_probability, h.n_experiments)
    ]
    before = {p.hypothesis_id or MOONSHOT: p.target for p in map(Population.read, facts.populations.values())}
    temperature = facts.policy.allocation.temperature
    wanted = targets(tested, facts.active_workers, temperature, converged=converged, turn=facts.allocations)
    share = steadied(before, wanted)
    tag = facts.tag.name
    found = [
        _population(facts, h, share[h.hypothesis_id], best_config, is_converged=h.hypothesis_id in converged)
        for h in tested
    ]
    if shots := share.get(MOONSHOT):
        statement = "the ends of the ranges hold something better"
        shape = Shape("moonshot", center=best_config, at_most=MOST_VARIED)
        found.append(
            Population(population_id(tag, MOONSHOT), "moonshot", None, statement, target=shots, shape=shape)
        )
    return found


def reference_config(dimensions: Sequence[Dimension], best_config: Mapping[str, Value]) -> dict[str, Value]:
    """The reference config of a new hypothesis: the best known config, else the middle of the ranges."""
    return standing_config(dimensions, Shape("investigate", center=best_config))


def may_be_tested(h: Hypothesis, dimensions: Sequence[Dimension]) -> bool:
    """Whether workers can test it: it is not over, and configs can vary its dimensions.

    A claim waits while one of its dimensions is removed, on trial, or frozen at a value that the claim does not
    allow, and while all are frozen. A claim about no dimension is never tested by a swarm. A test waits while one of
    its cells cannot be run.
    """
    there = {d.name: d for d in dimensions if not d.on_trial}
    names = about(h)
    if is_over(h) or not names <= there.keys():
        return False
    if is_test(h):
        spec = spec_now(h.test_spec, dimensions)
        return spec is not None and not is_blocked(spec, dimensions)
    can_vary = any(not there[name].frozen for name in names)
    return can_vary and not any(
        contradictions(dimensions, Shape("investigate", constraint=h.config_constraint))
    )


def is_over(h: Hypothesis) -> bool:
    """Whether its testing has ended: it is refuted or irrelevant, or its test is complete."""
    return h.settled in ARCHIVED or (is_test(h) and h.settled is not None)


def texts(populations: Iterable[Population]) -> dict[str, str]:
    """Populations as they are stored, by id."""
    return {p.population_id: p.text() for p in populations}


def _tests_for_reference(h: Hypothesis) -> int:
    """Runs of its claim for each reference run: 1, so that each has its own, while pairs may settle it.

    Irrelevance compares them with all reference runs, those of other claims too. To compare k groups with one
    control, sqrt(k) runs of the control for each run of a group are best (Dunnett, J. Am. Stat. Assoc. 50, 1955).
    """
    may_win = h.n_experiments < ENOUGH_RUNS or posterior(h).support_probability > 1 - DECIDED
    return 1 if may_win or not is_of_influence(h) else TESTS_FOR_REFERENCE


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
        shape=shape_of(h, strategy, best_config, spec_now(h.test_spec, facts.dimensions)),
        test_spec=h.test_spec if strategy == "validate" else None,
        constraint=h.config_constraint,
        tested=None
        if strategy in COMPARED or h.settled == "supported"
        else shape_of(h, "investigate", best_config),
        searched=shape_of(h, "exploit", best_config)
        if strategy in REFERENCED and facts.policy.belief.evidence == "matched"
        else None,
        tests_for_reference=_tests_for_reference(h),
    )
