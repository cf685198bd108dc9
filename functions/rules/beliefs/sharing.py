"""Who tests what: the populations of a tag, made of what is believed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from functions.rules.beliefs.allocation import MOONSHOT, USUAL, Allotting, has_converged, targets
from functions.rules.beliefs.evidence import ARCHIVED, about
from functions.rules.beliefs.posterior import posterior
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


# -- moving workers


def population_for(
    current: str | None, targets: Mapping[str, int], assigned: Mapping[str, int]
) -> str | None:
    """The population of a worker that asks for its next run; None where there is none.

    `targets` are workers by population, `assigned` its active workers now, with this one where it is in `current`
    (None: its first contact). A worker without a population joins the one that lacks most workers; so does one whose
    population has ended. Another one moves only out of a population with too many workers into one with too few,
    so no move calls for another: with the same targets no worker moves twice. Once each worker has asked, membership
    agrees with targets for as many workers as there are.

    Of populations that lack equally many the one with the larger target comes first, then the lower id.
    """
    if not targets:
        return None
    others = dict(assigned)
    if current is not None and current in targets:
        if others.get(current, 0) <= targets[current]:
            return current
        others[current] -= 1
    lacking = min(targets, key=lambda name: (others.get(name, 0) - targets[name], -targets[name], name))
    if current is not None and current in targets and others.get(lacking, 0) >= targets[lacking]:
        return current  # all have enough: there are more workers than the targets are for
    return lacking


def steadied(before: Mapping[str, int], wanted: Mapping[str, int]) -> dict[str, int]:
    """The targets in force after others were computed: those before, while no population gains or loses 2 workers.

    A difference of 1 comes from rounding, and would have workers change their population after every allocation.
    Other populations, another number of workers, and a population that gets its first worker or loses its last one
    always count.
    """
    same = before.keys() == wanted.keys() and sum(before.values()) == sum(wanted.values())
    if same and all(_is_close(before[name], wanted[name]) for name in wanted):
        return dict(before)
    return dict(wanted)


def _is_close(before: int, wanted: int) -> bool:
    return abs(before - wanted) <= 1 and (before == 0) == (wanted == 0)
