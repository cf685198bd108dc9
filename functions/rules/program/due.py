"""When a new version of a tag's program is due, and whether a language model writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from functions.rules.swarm.populations import Population
from state.program_facts import DueFacts, ProgramAsk, ProgramVersion

EVERY = 50
"""Results between two versions."""
APART = 10
"""Least results between versions for a change of strategy, which may waver."""
ANSWERED_S = 300.0
"""Least seconds before a language model is asked again."""
ATTEMPTS = 2
"""Requests to a language model for one version; then the templates write it."""


def patience_s(timeout_s: float) -> float:
    """Seconds before a language model is asked again, where one text takes up to `timeout_s` and others may wait."""
    return max(ANSWERED_S, 3 * timeout_s)


@dataclass(frozen=True)
class ProgramStep:
    """The next step of a program."""

    what: Literal["nothing", "ask", "wait", "templates"]
    """`wait`: a language model was asked. `templates`: none is there, or it has not answered."""
    reason: str = ""
    """Why a version is due."""
    attempt: int = 0
    """Number of the request to a language model, from 1."""


def next_step(
    facts: DueFacts, *, has_author: bool, on_demand: str | None = None, answered_s: float = ANSWERED_S
) -> ProgramStep:
    """The next step of a program; `on_demand` is an operator's reason for a version that is not due.

    `has_author`: a process of the lane `pi` with a language model is alive. `answered_s`: see `ANSWERED_S`.
    """
    ask = facts.ask if facts.ask is not None and facts.ask.number == facts.number else None
    reason = (ask.reason if ask is not None else on_demand) or reason_due(facts)
    if reason is None:
        return ProgramStep("nothing")
    if not has_author:
        return ProgramStep("templates", reason)
    if ask is None:
        return ProgramStep("ask", reason, 1)
    if facts.now - ask.at < answered_s:
        return ProgramStep("wait", reason, ask.attempt)
    return (
        ProgramStep("templates", reason)
        if ask.attempt >= ATTEMPTS
        else ProgramStep("ask", reason, ask.attempt + 1)
    )


def reason_due(facts: DueFacts) -> str | None:
    """Why a version is due; None: none is."""
    before = facts.current
    since = facts.tag.results - (before.results if before else 0)
    if since >= EVERY:
        return f"{since} results came"
    strategy = strategy_of(facts)
    if before is not None and since >= APART and strategy != before.strategy:
        return f"the strategy was {before.strategy} and is {strategy}"
    return None


def begins_cycle(results: int, before: ProgramVersion | None) -> bool:
    """Whether a version that was drafted ahead is the first after another EVERY results.

    Drafts are adopted more often than that, and only such a version proposes hypotheses.
    """
    return results // EVERY > (0 if before is None else before.results // EVERY)


def strategy_of(facts: DueFacts) -> str:
    """The strategy of most workers; without populations the mode of the tag's search."""
    return strategy_of_most(facts.populations, otherwise=facts.strategy.mode)


def strategy_of_most(populations: Iterable[str], *, otherwise: str) -> str:
    """The strategy with the most workers in these stored populations; `otherwise` if there are none."""
    workers = Counter[str]()
    for p in map(Population.read, populations):
        workers[p.strategy] += p.target
    return max(sorted(workers), key=workers.__getitem__) if workers else otherwise


def ask_of(facts: DueFacts, step: ProgramStep) -> ProgramAsk:
    """The request to a language model that this step makes."""
    return ProgramAsk(facts.number, step.attempt, facts.now, step.reason)
