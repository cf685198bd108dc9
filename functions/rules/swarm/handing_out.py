"""Which config a worker of a swarm runs next, for how long, and when it has lost the one that it has."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from functions.rules.swarm.canaries.trying import drawn_trial, trial_config
from functions.rules.swarm.dimensions import value_of
from functions.rules.swarm.duplicates import fingerprint
from functions.rules.swarm.populations import (
    Population,
    Purpose,
    is_reference,
    populations_of,
    purpose_of,
    queue_target,
    reference_config,
)
from functions.rules.swarm.shapes import Shape, drawn_config
from functions.rules.time_limits import default_timeout_s
from state.decisions import Ending, HandOut
from state.errors import BudgetExhausted, Conflict, Exhausted, Invalid
from state.policy import Policy
from state.records import Dimension, Experiment, Idea, SwarmWorker
from state.swarm_facts import NextFacts, SwarmFacts

if TYPE_CHECKING:
    from random import Random

LONGEST_S = 540
"""Seconds of a run with its extension: published workers kill theirs at 600."""
RETRY_S = 15.0
TRIES = 8
"""Tries to find a config below its limits; then the limits are dropped."""
DRAWN_PRIORITY = 0.5
REFERENCE_PRIORITY = 0.7
TRIAL_PRIORITY = 0.6
CATEGORY = "hyperparams"
SHOWN = 4
"""Constants that a run's description names."""
MOST_ACTIVE = 16
"""Runs that go on which a worker may have while it begins one of its own choice."""
MOST_HANDED_OUT = 2
"""Times that a worker is given the same run: a retrying proxy burns none, and a worker that lost it gets it back."""


@dataclass(frozen=True)
class RunTime:
    """How long a run of a swarm may take."""

    budget_s: int
    extend_s: float
    """More, once; 0: none."""


def run_time(policy: Policy) -> RunTime:
    """The policy's seconds, in the whole numbers of the protocol, within what published workers allow."""
    budget = max(1, min(round(policy.budgets.base_s), LONGEST_S))
    return RunTime(budget, extension_s(budget, policy))


def extension_s(budget_s: float, policy: Policy) -> float:
    """Seconds that a run of this budget may be given more, once; 0: none."""
    return max(0.0, min(policy.budgets.extend_s, LONGEST_S - budget_s))


def lost_after_s(budget_s: float, policy: Policy) -> float:
    """Seconds of silence after its hand-out after which a run counts as lost."""
    return budget_s + policy.stale_after_s


def silence_s(run: Experiment, policy: Policy, now: float, grace_s: float) -> float:
    """Seconds of silence after a tick after which a run counts as lost.

    Ticks keep no run beyond its time limit and the grace.
    """
    limit_s = default_timeout_s(run.budget_s or 0.0) + (run.extended_s or 0.0) + grace_s
    return max(0.0, min(policy.stale_after_s, (run.started_at or now) + limit_s - now))


def check_hands_out(facts: SwarmFacts) -> None:
    """Refuse a config while the tag is paused, or nothing may be varied in it.

    Raises:
        Exhausted: with when to come back.
    """
    if facts.tag.paused_at is not None:
        why = f": {facts.tag.pause_reason}" if facts.tag.pause_reason else ""
        raise Exhausted(
            f"the swarm {facts.tag.name!r} is paused{why}",
            hint="come back after Retry-After; an operator resumes it",
            retry_after=RETRY_S,
        )
    if not facts.dimensions:
        raise Exhausted(
            f"the swarm {facts.tag.name!r} has no dimensions",
            hint="come back after Retry-After; an operator defines them (nightjar dims define)",
            retry_after=RETRY_S,
        )


def check_begins_another(worker: SwarmWorker) -> None:
    """Refuse a run of a worker's own choice where it has as many as it may have at once.

    Raises:
        Conflict: it has to send results first.
    """
    if worker.active >= MOST_ACTIVE:
        raise Conflict(
            f"{worker.worker_id!r} has {worker.active} runs that go on: no worker has more than {MOST_ACTIVE}",
            hint="send the result of one of them first (POST /result); GET /runs/active lists them",
        )


def come_back(problem: BudgetExhausted) -> Exhausted:
    """What a worker is told where the tag's budget has no room: published workers know 503."""
    return Exhausted(problem.detail, hint=problem.hint, retry_after=RETRY_S, fields=problem.fields)


def after_asking_again(run: Experiment | None) -> Literal["new", "again", "lost", "stopped"]:
    """What becomes of the run that a worker has when it asks for the next one."""
    if run is None or run.status != "running":
        return "new"
    if run.stopping:
        return "stopped"
    return "again" if run.handed_out < MOST_HANDED_OUT else "lost"


def retest_for(facts: NextFacts) -> Experiment | None:
    """The retest that a worker runs before anything else: rather of another worker's keep.

    Of its own keep only where no other worker is active, or none has taken it for as long as two runs take.
    """
    patience_s = 2 * run_time(facts.policy).budget_s
    alone = facts.active_workers <= 1
    for retest in facts.retests:
        if retest.retest_of is None or retest.fingerprint is None:
            continue  # an agent's, in a tag that agents use, too
        of_another = retest.agent != facts.worker.worker_id
        if of_another or alone or facts.now - retest.registered_at > patience_s:
            return retest
    return None


def lost(run: Experiment, reason: str) -> Ending:
    """The end of a run that its worker lost: its config waits for another one.

    A retest is begun anew; what a worker chose itself is nobody else's.
    """
    if run.retest_of is not None or run.is_extra:
        return not_run(run, reason)
    proposal = Waiting(
        run.config_delta or {}, run.proposal_priority or DRAWN_PRIORITY, "its worker lost it", results=None
    )
    return Ending(run, "lost", {"error": reason}, reason=reason, returned=proposal.text(run.number))


def not_run(run: Experiment, reason: str) -> Ending:
    """The end of a run that says nothing of its config; that waits for no other worker."""
    return Ending(run, "lost", {"error": reason}, reason=reason)


@dataclass(frozen=True)
class Waiting:
    """A config that waits for a worker."""

    config: Mapping[str, Any]
    priority: float
    why: str
    results: int | None = 0
    """Of its tag, when it was proposed; None: a lost run's, which waits however much is known since."""
    around: Mapping[str, Any] | None = None
    """The config that was taken for the best, where this one is to be near it."""

    def text(self, nth: int) -> str:
        """As it waits; `nth` tells equal configs apart."""
        return json.dumps({**vars(self), "config": dict(self.config), "nth": nth}, allow_nan=False)

    @staticmethod
    def read(text: str) -> Waiting:
        stored = json.loads(text)
        stored.pop("nth")
        return Waiting(**stored)


def handed_out(facts: NextFacts, population: Population, owner: str | None, nth: int, rng: Random) -> HandOut:
    """The config that a worker runs next, at its `nth` try (from 0): one that waits, else one that is drawn.

    A trial of a new dimension comes first, in its share of the runs and however often it was run: it may have two
    values only. Else a reference run does, where it is time for one. Different workers take different ones of those
    that wait. A config that was tried often enough is handed out once more where nothing else is found: in a small
    space everything was.
    """
    duplicates = facts.policy.duplicates
    limits: dict[str, Any] = {
        "most_trials": duplicates.max_trials if nth < TRIES else None,
        "most_in_flight": duplicates.max_inflight if nth < TRIES else None,
    }
    if nth == 0 and (tried := drawn_trial(facts.dimensions, rng)) is not None:
        purpose = Purpose("exploit", Shape("exploit"))
        trying = replace(population, hypothesis_id=None, statement=f"{tried.name} is on trial")
        trial = trial_config(tried, facts.dimensions, facts.best_config, rng)
        return hand_out(facts, trying, owner, trial, purpose, priority=TRIAL_PRIORITY)
    purpose = purpose_of(population, populations_of(facts), facts.policy, rng.random())
    if purpose.strategy == "validate" or purpose.shape.is_of_claim:
        limits = {}
    reference = reference_config(facts.worker, purpose, facts.dimensions)
    if reference is not None:
        return hand_out(facts, population, owner, reference, purpose, priority=REFERENCE_PRIORITY)
    # not queued: the workers were shared out anew since the queue was read, or this run is for the claim
    is_queued = (
        population.population_id == facts.waiting_for and purpose.strategy == population.queued.strategy
    )
    text = rng.choice(facts.waiting) if facts.waiting and is_queued and nth < TRIES else None
    waiting = Waiting.read(text) if text is not None else None
    if waiting is not None and fits(waiting.config, facts.dimensions):
        given = waiting.config
        return hand_out(
            facts, population, owner, given, purpose, priority=waiting.priority, proposal=text, **limits
        )
    config = drawn_config(facts.dimensions, purpose.shape, rng)
    return hand_out(facts, population, owner, config, purpose, priority=DRAWN_PRIORITY, **limits)


def hand_out(
    facts: SwarmFacts,
    population: Population,
    owner: str | None,
    config: Mapping[str, Any],
    purpose: Purpose,
    *,
    priority: float,
    **more: Any,
) -> HandOut:
    """A config as a run of a worker; `owner` is whom its record is of."""
    name, budget_s = fingerprint(config, facts.dimensions), float(run_time(facts.policy).budget_s)
    changes = [f"{constant} = {value!r}" for constant, value in config.items()] or ["the unchanged train.py"]
    further = f" and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
    idea = Idea(
        tag=facts.tag.name,
        hypothesis=population.statement,
        hypothesis_id=population.hypothesis_id,
        description=", ".join(changes[:SHOWN])[:200] + further,
        category=CATEGORY,
        commit_sha=name[:7],
        diff_summary=", ".join(changes)[:1000],
        owner=owner,
        agent=owner,
        config_delta=dict(config),
        policy_version=facts.policy_version,
        keep_rule=facts.policy.keep_rule,
        patience_s=facts.policy.stale_after_s,
    )
    return HandOut(
        idea,
        name,
        population.population_id,
        purpose.strategy,
        priority,
        budget_s,
        lost_after_s(budget_s, facts.policy),
        facts.dimensions_version,
        is_compared=purpose.is_compared and not more.get("is_extra"),
        is_reference=is_reference(config, purpose),
        few=queue_target(facts.policy, population.target or facts.active_workers) // 2,
        **more,
    )


def fits(config: Mapping[str, Any], dimensions: Sequence[Dimension]) -> bool:
    """Whether this is a config of these dimensions: all have a value of theirs, frozen ones that they stand at.

    One that is on trial may be left out.
    """
    named = [d for d in dimensions if d.name in config or not d.on_trial]
    if config.keys() != {d.name for d in named}:
        return False
    try:
        values = {d.name: value_of(d, config[d.name]) for d in named}
    except Invalid:
        return False
    return all(values[d.name] == d.frozen_value for d in dimensions if d.frozen)


def checked_config(config: Mapping[str, Any], dimensions: Sequence[Dimension]) -> dict[str, Any]:
    """What a worker wants to run beside its assignment: some dimensions, each at one of its values.

    Raises:
        Invalid: an unknown name, or a value outside its dimension's range.
    """
    known = {d.name: d for d in dimensions}
    for name in config:
        if name not in known:
            raise Invalid(
                f"{str(name)[:64]!r} is no dimension of this swarm",
                hint=f"they are {', '.join(known) or 'not defined yet'}",
            )
    return {name: value_of(known[name], value) for name, value in config.items()}


def note(strategy: str, population_id: str, statement: str) -> str:
    """What a worker is told of its config."""
    return f"{strategy} · {population_id} — {statement}"
