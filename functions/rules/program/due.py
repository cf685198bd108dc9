"""When a tag's program is to be written anew, and whether a language model is asked for it first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from functions.rules.swarm.populations import Population
from state.program_facts import DueFacts, ProgramAsk, ProgramVersion

EVERY = 50
"""Results after which there is another version."""
APART = 10
"""Results after which a change of strategy makes one: what wavers costs a version each time."""
ANSWERED_S = 300.0
"""Seconds after which a language model that has not answered is asked again, at least."""
ATTEMPTS = 2
"""How often it is asked for one version; then the templates write it."""


def patience_s(timeout_s: float) -> float:
    """The same where writing one text may take `timeout_s` seconds: other texts may be written first."""
    return max(ANSWERED_S, 3 * timeout_s)


@dataclass(frozen=True)
class ProgramStep:
    """What a program needs now."""

    what: Literal["nothing", "ask", "wait", "templates"]
    """`wait`: a language model was asked. `templates`: there is none, or it has not answered."""
    reason: str = ""
    """Why another version is due."""
    attempt: int = 0
    """Of asking, from 1 on."""


def next_step(
    facts: DueFacts, *, has_author: bool, on_demand: str | None = None, answered_s: float = ANSWERED_S
) -> ProgramStep:
    """What a program needs now; `on_demand` is why an operator wants another version, whatever has come since.

    `has_author`: a process of the lane `pi` is alive that has a language model. `answered_s`: see `ANSWERED_S`.
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
    """Why another version is due; None: it is not."""
    before = facts.current
    since = facts.tag.results - (before.results if before else 0)
    if since >= EVERY:
        return f"{since} results came"
    strategy = strategy_of(facts)
    if before is not None and since >= APART and strategy != before.strategy:
        return f"the strategy was {before.strategy} and is {strategy}"
    return None


def begins_cycle(results: int, before: ProgramVersion | None) -> bool:
    """Whether a version that was drafted ahead is the first one of another EVERY results.

    Only such a version brings further hypotheses: drafts are adopted more often than that.
    """
    return results // EVERY > (0 if before is None else before.results // EVERY)


def strategy_of(facts: DueFacts) -> str:
    """What most of the workers of a swarm are there for; without populations, the mode of the tag's search."""
    return strategy_of_most(facts.populations, otherwise=facts.strategy.mode)


def strategy_of_most(populations: Iterable[str], *, otherwise: str) -> str:
    """The strategy with the most workers over all populations, given as texts; `otherwise` where there are none."""
    workers = Counter[str]()
    for p in map(Population.read, populations):
        workers[p.strategy] += p.target
    return max(sorted(workers), key=workers.__getitem__) if workers else otherwise


def ask_of(facts: DueFacts, step: ProgramStep) -> ProgramAsk:
    """The asking that a step stands for."""
    return ProgramAsk(facts.number, step.attempt, facts.now, step.reason)
