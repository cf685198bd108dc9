"""Hands configs out to a swarm's workers: which one, for how long, and when a run counts as lost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from functions.runs.rules.time_limits import default_timeout_s
from functions.swarm.rules.dimensions import value_of
from functions.swarm.rules.populations import (
    Population,
    Purpose,
    is_reference,
    populations_of,
    purpose_of,
    queue_target,
    reference_config,
)
from functions.swarm.rules.proposals import fingerprint
from functions.swarm.rules.shapes import Shape, drawn_config
from functions.swarm.rules.trial_verdicts import drawn_trial, trial_config
from state.decisions import Ending, HandOut
from state.errors import BudgetExhausted, Conflict, Exhausted, Invalid
from state.policy import Policy
from state.records import Dimension, Experiment, Idea, SwarmWorker
from state.swarm_facts import NextFacts, SwarmFacts

if TYPE_CHECKING:
    from random import Random


LONGEST_S = 540
"""Most seconds of a run with its extension: published workers kill theirs at 600."""
RETRY_S = 15.0
TRIES = 8
"""Tries to find a config below its limits, after which the limits are dropped."""
DRAWN_PRIORITY = 0.5
REFERENCE_PRIORITY = 0.7
TRIAL_PRIORITY = 0.6
CATEGORY = "hyperparams"
SHOWN = 4
"""Most constants in a run's description."""
MOST_ACTIVE = 16
"""Most runs in flight of a worker that begins runs of its own choice."""
MOST_HANDED_OUT = 2
"""Times that a worker gets the same run: a retrying proxy then wastes none, and a restarted worker gets it back."""


def run_time_s(policy: Policy) -> int:
    """The policy's time for a run in whole seconds, within the limit of published workers."""
    return max(1, min(round(policy.budgets.base_s), LONGEST_S))


def extension_s(budget_s: float, policy: Policy) -> float:
    """Seconds of the one extension of a run with this budget; 0: none."""
    return max(0.0, min(policy.budgets.extend_s, LONGEST_S - budget_s))


def lost_after_s(budget_s: float, policy: Policy) -> float:
    """Seconds without a tick after its hand-out until a run is lost."""
    return budget_s + policy.stale_after_s


def silence_s(run: Experiment, policy: Policy, now: float, grace_s: float) -> float:
    """Seconds after a tick until a silent run is lost. No tick keeps a run beyond its time limit and the grace."""
    limit_s = default_timeout_s(run.budget_s or 0.0) + (run.extended_s or 0.0) + grace_s
    return max(0.0, min(policy.stale_after_s, (run.started_at or now) + limit_s - now))


def check_hands_out(facts: SwarmFacts) -> None:
    """Raise Exhausted for a config of a paused tag, or of one without dimensions, saying when to come back."""
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
    """Refuse a further run of a worker's own choice. Raises Conflict: it has MOST_ACTIVE runs in flight."""
    if worker.active >= MOST_ACTIVE:
        raise Conflict(
            f"{worker.worker_id!r} has {worker.active} runs that go on: no worker has more than {MOST_ACTIVE}",
            hint="send the result of one of them first (POST /result); GET /runs/active lists them",
        )


def come_back(problem: BudgetExhausted) -> Exhausted:
    """A spent budget as a 503 with Retry-After, which published workers understand."""
    return Exhausted(problem.detail, hint=problem.hint, retry_after=RETRY_S, fields=problem.fields)


def after_asking_again(run: Experiment | None) -> Literal["new", "again", "lost", "stopped"]:
    """The fate of a worker's unfinished run when it asks for the next one."""
    if run is None or run.status != "running":
        return "new"
    if run.stopping:
        return "stopped"
    return "again" if run.handed_out < MOST_HANDED_OUT else "lost"


def retest_for(facts: NextFacts) -> Experiment | None:
    """The retest that a worker must run first; None if there is none for it.

    Another worker's keep is preferred. A worker repeats its own keep only if no other worker is active, or none took
    the retest within the time of two runs.
    """
    patience_s = 2 * run_time_s(facts.policy)
    alone = facts.active_workers <= 1
    for retest in facts.retests:
        if retest.retest_of is None or retest.fingerprint is None:
            continue  # an agent's, in a tag that agents use, too
        of_another = retest.agent != facts.worker.worker_id
        if of_another or alone or facts.now - retest.registered_at > patience_s:
            return retest
    return None


def lost(run: Experiment, reason: str) -> Ending:
    """The end of a lost run. Its config returns to the queue, unless the worker chose it, or it is a retest."""
    if run.retest_of is not None or run.is_extra:
        return not_run(run, reason)
    proposal = QueuedConfig(
        run.config_delta or {}, run.proposal_priority or DRAWN_PRIORITY, "its worker lost it", results=None
    )
    return Ending(run, "lost", {"error": reason}, reason=reason, returned=proposal.text(run.number))


def not_run(run: Experiment, reason: str) -> Ending:
    """The end of a run that is no evidence about its config, which does not return to the queue."""
    return Ending(run, "lost", {"error": reason}, reason=reason)


@dataclass(frozen=True)
class QueuedConfig:
    config: Mapping[str, Any]
    priority: float
    why: str
    results: int | None = 0
    """Results of the tag when it was proposed; None for a lost run's config, which never becomes stale."""
    around: Mapping[str, Any] | None = None
    """The presumed best config that it is near; None if it is near none."""

    def text(self, nth: int) -> str:
        """The stored text; `nth` distinguishes equal configs."""
        return json.dumps({**vars(self), "config": dict(self.config), "nth": nth}, allow_nan=False)

    @staticmethod
    def read(text: str) -> QueuedConfig:
        stored = json.loads(text)
        stored.pop("nth")
        return QueuedConfig(**stored)


def handed_out(facts: NextFacts, population: Population, owner: str | None, nth: int, rng: Random) -> HandOut:
    """The config that a worker runs next, at its `nth` try (from 0).

    In this order: a trial of a new dimension, in its share of the runs and without limits on repeats; a reference
    run, if one is due; a random config of the queue, so that workers take different ones; a config drawn at random.
    After TRIES tries the limits on repeats are dropped: in a small space every config was run often.
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
    # False if the worker changed its population since the queue was read, or if this run tests the claim
    is_queued = (
        population.population_id == facts.waiting_for and purpose.strategy == population.queued.strategy
    )
    text = rng.choice(facts.waiting) if facts.waiting and is_queued and nth < TRIES else None
    waiting = QueuedConfig.read(text) if text is not None else None
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
    """A config as a run of a worker; `owner` is the agent of its record."""
    name, budget_s = fingerprint(config, facts.dimensions), float(run_time_s(facts.policy))
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
    """Whether a config has a valid value (the frozen one) for each dimension; those on trial may be left out."""
    named = [d for d in dimensions if d.name in config or not d.on_trial]
    if config.keys() != {d.name for d in named}:
        return False
    try:
        values = {d.name: value_of(d, config[d.name]) for d in named}
    except Invalid:
        return False
    return all(values[d.name] == d.frozen_value for d in dimensions if d.frozen)


def checked_config(config: Mapping[str, Any], dimensions: Sequence[Dimension]) -> dict[str, Any]:
    """A config of a worker's own choice, maybe partial. Raises Invalid: an unknown name, or out of range."""
    known = {d.name: d for d in dimensions}
    for name in config:
        if name not in known:
            raise Invalid(
                f"{str(name)[:64]!r} is no dimension of this swarm",
                hint=f"they are {', '.join(known) or 'not defined yet'}",
            )
    return {name: value_of(known[name], value) for name, value in config.items()}
