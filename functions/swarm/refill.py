"""swarm::refill keeps configs waiting for the workers of a swarm."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import SystemRandom

from pydantic import Field

from functions.contract import Command, Every, On, Response, function
from functions.rules.swarm.populations import everyone, populations_of
from functions.rules.swarm.refilling import AT_ONCE, replenished
from state.change import Change
from state.ids import Tag as TagName
from state.swarm_facts import RefillFacts, Replenishing
from state.swarms import Swarms

REFILL_S = 60.0
LETTERS_AT_ONCE = 1_000_000
"""Most characters of configs in one commit: a longer one blocks Redis and its sender."""
MOST_QUEUES = 500
"""Most queues that one commit changes, in two commands each."""


class Refill(Command):
    tag: TagName | None = Field(
        None, description="only this tag; else every tag that has a swarm", examples=["swarm"]
    )


class Refilled(Response):
    waiting: dict[str, int]
    """Configs that wait now, by tag."""


@function(
    "swarm::refill",
    On(
        "proposals.few",
        "best.changed",
        "experiment.lost",
        "dimension.defined",
        "dimension.frozen",
        "dimension.unfrozen",
        "worker.joined",
        "hypothesis.proposed",
        "hypothesis.believed",
        "hypothesis.settled",
        debounce="tag",
    ),
    Every(REFILL_S),
    role="operator",
    writes=True,
)
async def refill(request: Refill, swarms: Swarms) -> Refilled:
    """Drop the configs that no longer fit, and propose new ones until enough wait; safe to run twice."""
    tags = [request.tag] if request.tag is not None else await swarms.tags()
    return Refilled(waiting={tag: count for tag in tags if (count := await _refill(tag, swarms)) is not None})


async def _refill(tag: str, swarms: Swarms) -> int | None:
    """How many configs wait in a tag then; None where it has no swarm."""

    async def decide(change: Change) -> tuple[int | None, bool]:
        named = await swarms.populations(tag)
        if named is None:
            return None, True
        facts = await swarms.refill_facts(tag, [*named, everyone(tag).population_id], change)
        # in a thread: the sampler takes milliseconds for each config
        changes = await asyncio.to_thread(_as_many_as_fit, _replenished(facts))
        swarms.refill(change, tag, changes)
        waiting = sum(map(len, facts.waiting.values()))
        waiting += sum(len(new.added) - len(new.dropped) for new in changes.values())
        is_done = len(changes) == len(facts.waiting) and all(len(c.added) < AT_ONCE for c in changes.values())
        return waiting, is_done

    while True:
        waiting, is_done = await swarms.change(decide)
        if is_done:
            return waiting


def _as_many_as_fit(changes: Iterator[tuple[str, Replenishing]]) -> dict[str, Replenishing]:
    """The next changes, as many as one commit takes; usually all."""
    part, letters, queues = dict[str, Replenishing](), 0, 0
    for name, change in changes:
        part[name] = change
        letters += sum(map(len, change.dropped)) + sum(len(text) for text, _ in change.added)
        queues += bool(change.dropped or change.added)
        if letters > LETTERS_AT_ONCE or queues == MOST_QUEUES:
            break
    return part


def _replenished(facts: RefillFacts) -> Iterator[tuple[str, Replenishing]]:
    """The changes of the queues that were read. Newer populations wait for the next refill.

    The queue for everyone is dropped once there are populations.
    """
    rng, known = SystemRandom(), {p.population_id: p for p in populations_of(facts)}
    for name, waiting in facts.waiting.items():
        yield name, replenished(facts, known[name], rng) if name in known else Replenishing(waiting, [])
