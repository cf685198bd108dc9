"""Tags: lines of research, each with counters, a policy and a strategy."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from state import reads
from state.booking import RESOURCES, SUMS, Resource, is_due, warn
from state.change import NOW, Change, Read, clock, exists, hgetall, hmget, loosely
from state.client import Lab
from state.errors import Conflict
from state.facts import Spread
from state.forests import begin_epoch, check_traces
from state.keys import Keys
from state.moves import wire
from state.policy import Policy, read_policy
from state.reads import Store
from state.records import Best, Strategy, Tag
from state.refusals import unknown_tag

TRIES = 20
"""Tries to pause a tag while experiments are queued for other GPUs."""

Limit = float | Literal["none", "same"]


@dataclass(frozen=True)
class Paused:
    changed: bool
    """Whether it was not paused before."""
    since: float
    reason: str | None
    waiting: int
    """Experiments that keep their place while the tag is paused."""
    stopping: list[str]
    """Experiments in progress that have to stop."""


@dataclass(frozen=True)
class StrategyFacts:
    now: float
    tag: Tag
    strategy: Strategy
    policy: Policy
    best: Best | None
    noise: Spread
    """Noise on the tag's main class of GPU."""


@dataclass(frozen=True)
class _Waiting:
    pins: list[str]
    """GPUs that waiting experiments are pinned to."""
    in_progress: list[str]
    self_trained: list[str]
    """Registered ones that hold a GPU: their agents train them."""


class Tags(Store):
    async def find(self, tag: str) -> Tag | None:
        stored = await self._lab.hash(self._lab.keys.tag(tag))
        return Tag.found(stored)

    async def get(self, tag: str) -> Tag:
        """The tag. Raises NotFound: no such tag."""
        return await self._lab.one(reads.tag(self._keys, tag))

    async def create(self, tag: Tag, strategy: Strategy, policy: Policy) -> Tag | None:
        """Store a new tag; None where the name is taken."""

        async def decide(change: Change) -> Change | None:
            return change if await begin(change, tag, strategy, policy) else None

        made = await self._lab.change(decide)
        return None if made is None else tag.model_copy(update={"created_at": made.at})

    async def existing(self, tag: str) -> tuple[Tag, Best | None] | None:
        """A tag with its best; None where there is none of this name."""
        keys = self._lab.keys
        stored, best = await self._lab.hashes([keys.tag(tag), keys.best(tag)])
        return (Tag.parse(stored), Best.found(best)) if stored else None

    async def newest(self, offset: int, limit: int) -> list[Tag]:
        """Tags, newest first."""
        names = await self._lab.command("ZREVRANGE", self._lab.keys("tags"), offset, offset + limit - 1)
        stored = await self._lab.hashes([self._lab.keys.tag(name) for name in names])
        return [Tag.parse(fields) for fields in stored if fields]

    async def names(self) -> list[str]:
        """The names of all tags, oldest first."""
        found: list[str] = await self._lab.command("ZRANGE", self._lab.keys("tags"), 0, -1)
        return found

    async def paused(self) -> list[str]:
        """The names of paused tags, longest paused first."""
        found: list[str] = await self._lab.command("ZRANGE", self._lab.keys("paused"), 0, -1)
        return found

    async def count(self) -> int:
        return int(await self._lab.command("ZCARD", self._lab.keys("tags")))

    async def resume(self, tag: str) -> int:
        """Forget the crashes in a row; answers how many they were. Raises NotFound: no such tag."""
        keys = self._keys

        async def decide(change: Change) -> int:
            is_there, crashes = await change.read(
                exists(keys.tag(tag)), hmget(keys("crashes", tag), "consecutive")
            )
            if not is_there:
                raise unknown_tag(tag)
            if before := int(crashes["consecutive"] or 0):
                change.hset(keys("crashes", tag), {"consecutive": 0})
                change.emit("tag.resumed", tag, tag, {"tag": tag, "lifted": "crashes", "crashes": before})
            return before

        return await self._lab.change(decide)

    async def pause(self, tag: str, reason: str | None, *, stop_reason: str | None = None) -> Paused:
        """Take waiting experiments out of the queues; with `stop_reason` runs stop. Raises NotFound: no such tag."""
        keys = self._keys

        def in_progress(found: _Waiting) -> dict[str, str | list[str]]:
            return {
                "leased": keys.status(tag, "leased", "")[0],
                "running": keys.status(tag, "running", "")[0],
                "in_progress": [keys.experiment(i) for i in found.in_progress],
            }

        found, (became, since, why, waiting) = await self._moved(
            "pause_tag",
            tag,
            in_progress,
            running=stop_reason is not None,
            reason=reason,
            stop_reason=stop_reason,
        )
        told = [*found.in_progress, *found.self_trained]
        return Paused(became == "paused", float(since), why or None, int(waiting), told)

    async def unpause(self, tag: str) -> tuple[bool, int]:
        """Put waiting experiments back: whether it was paused, how many wait. Raises NotFound: no such tag."""
        _, (became, waiting) = await self._moved("unpause_tag", tag)
        return became == "resumed", int(waiting)

    async def open_gate(self, tag: str, baseline_id: str) -> bool:
        """Release experiments that wait for the tag's baseline. False if that was done before, or the baseline has
        not ended.

        Raises:
            Conflict: the tag's experiments do not stand still, or one waits in no queue.
        """
        baseline = self._keys.experiment(baseline_id)
        _, answer = await self._moved("open_gate", tag, lambda _: {"baseline": baseline})
        return bool(answer == "opened")

    async def _moved(
        self,
        move: str,
        tag: str,
        keys: Callable[[_Waiting], Mapping[str, str | list[str]]] = lambda _: {},
        *,
        running: bool = False,
        **args: str | None,
    ) -> tuple[_Waiting, Any]:
        """Move the tag's waiting experiments, again where some have gone elsewhere meanwhile; answers what was moved.

        Raises:
            NotFound: no such tag. Conflict: its experiments do not stand still.
        """
        for _ in range(TRIES):
            found = await self._waiting(tag, running=running)
            places = places_of(self._keys, tag, found.pins)
            answer = await self._lab.move(move, keys={**places, **keys(found)}, args={"tag": tag, **args})
            if answer == ["no_tag"]:
                raise unknown_tag(tag)
            if answer not in ("stale", ["stale"]):
                return found, answer
        raise Conflict(
            f"the queue of {tag!r} does not stand still",
            hint="try again; POST /api/lab/audit checks the queue",
        )

    async def _waiting(self, tag: str, *, running: bool = False) -> _Waiting:
        """Queues of the tag's waiting experiments, and its experiments in progress."""
        keys = self._lab.keys
        registered, *in_progress = [
            keys.status(tag, status, "")[0]
            for status in ("registered", *(("leased", "running") if running else ()))
        ]
        leases = reads.members(self._lab, keys("leases"), keys.gpu(""), limit=-1, fields=("holder",))
        pinned, *ids = await self._lab.read(
            reading_pins(self._lab, tag),
            *(loosely("ZRANGE", index, 0, -1) for index in in_progress),
            *([loosely("ZRANGE", registered, 0, -1), leases] if running else ()),
        )
        pins = sorted({pin for (pin,) in pinned.values() if pin})
        if not running:
            return _Waiting(pins, [], [])
        *of_workers, by_agents, lent = ids
        holders: set[str] = {holder for (holder,) in lent.values() if holder}
        return _Waiting(pins, [i for its in of_workers for i in its], [i for i in by_agents if i in holders])

    async def set_budget(self, tag: str, limits: Mapping[Resource, Limit]) -> bool:
        """Limit what the tag may spend; False: the limits were these. Raises NotFound: no such tag."""
        key = self._keys.tag(tag)

        async def decide(change: Change) -> bool:
            names = [n for name in RESOURCES for n in (f"budget_{name}", *SUMS[name])]
            (found,) = await change.read(hmget(key, "created_at", *names))
            if found["created_at"] is None:
                raise unknown_tag(tag)
            before: dict[str, str | None] = {name: found[f"budget_{name}"] for name in RESOURCES}
            asked = {name: limit for name, limit in limits.items() if limit != "same"}
            after = before | {n: None if limit == "none" else str(wire(limit)) for n, limit in asked.items()}
            if after == before:
                return False
            for name, limit in after.items():
                if limit != before[name]:
                    change.hdel(key, f"budget_{name}", f"warned_{name}")
                if limit is not None and limit != before[name]:
                    change.hset(key, {f"budget_{name}": limit})
                    reserved, spent = (int(found[field] or 0) for field in SUMS[name])
                    if is_due(name, json.loads(limit), reserved, spent):
                        warn(change, tag, name, json.loads(limit), reserved, spent)
            told = {name: json.loads(limit or "null") for name, limit in after.items()}
            change.emit("tag.budget_changed", tag, tag, {"tag": tag, **told})
            return True

        return await self._lab.change(decide)


class Strategies(Store):
    async def get(self, tag: str) -> Strategy:
        """The current strategy. Raises NotFound: no such tag."""
        stored = await self._lab.hash(self._lab.keys("strategy", tag))
        if not stored:
            raise unknown_tag(tag)
        return Strategy.parse(stored)

    async def replace(
        self, tag: str, choose: Callable[[StrategyFacts], Awaitable[Strategy | None]]
    ) -> tuple[Strategy, Strategy]:
        """Replace a strategy, unless None is chosen; before and after. Raises NotFound: no such tag."""
        keys = self._keys

        async def decide(change: Change) -> tuple[Strategy, Strategy]:
            found = await change.read(
                {
                    "now": clock(),
                    "tag": reads.tag(keys, tag),
                    "strategy": hgetall(keys("strategy", tag), to=Strategy.parse),
                    "policy": reads.policy(keys, tag),
                    "best": reads.best(keys, tag),
                    "noise": reads.main_noise(self._lab, tag),
                }
            )
            facts = StrategyFacts(**found)
            before, after = facts.strategy, await choose(facts)
            return before, replaced(change, tag, before, after, facts.now)

        return await self._lab.change(decide)


def replaced(change: Change, tag: str, before: Strategy, after: Strategy | None, at: float) -> Strategy:
    """Replace a tag's strategy; None leaves it. Answers the strategy then."""
    if after is None:
        return before
    after = after.model_copy(update={"version": before.version + 1, "updated_at": at})
    change.hset(change.lab.keys("strategy", tag), after.flat() | {"updated_at": f"{at:.6f}"})
    if after.mode != before.mode:
        told = {"tag": tag, "mode": after.mode, "before": before.mode, "reason": after.reason}
        change.emit("strategy.changed", tag, tag, told)
    return after


async def begin(change: Change, tag: Tag, strategy: Strategy, policy: Policy) -> bool:
    """Create a tag with its strategy and its policy; False where the name is taken."""
    keys, name = change.lab.keys, tag.name
    (is_there,) = await change.read(exists(keys.tag(name)))
    if is_there:
        return False
    change.hset(keys.tag(name), {**tag.flat(), "created_at": NOW})
    change.zadd(keys("tags"), {name: NOW})
    change.hset(keys("strategy", name), {**strategy.flat(), "updated_at": NOW})
    change.hset(keys("policy", name), {"values": policy.model_dump_json(), "version": 1})
    change.emit("tag.created", name, name, {"tag": name, "branch": tag.branch})
    return True


def reading_pins(lab: Lab, tag: str) -> Read[dict[str, Any]]:
    """The GPU that each waiting experiment of the tag is pinned to, in a list of one."""
    queued = lab.keys.status(tag, "queued", "")[0]
    return reads.members(lab, queued, limit=-1, fields=("pinned_gpu",))


def places_of(keys: Keys, tag: str, pins: Sequence[str]) -> dict[str, str | list[str]]:
    """The keys of a tag's waiting experiments: the common queue and those of these GPUs, and what waits aside."""
    waits_for = (None, *pins)
    return {
        "queued": keys.status(tag, "queued", "")[0],
        "queues": [keys.queue(gpu) for gpu in waits_for],
        "asides": [keys.parked(tag, gpu) for gpu in waits_for],
    }


NO_PRIORITIES: Mapping[str, float] = {}


class Policies:
    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    async def get(self, tag: str) -> tuple[Policy, int]:
        """A tag's policy and its version. Raises NotFound: no such tag."""
        return _policy(await self._lab.hash(self._lab.keys("policy", tag)), tag)

    async def change(
        self,
        tag: str,
        changes: dict[str, Any],
        expected: int | None = None,
        *,
        check: Callable[[Policy, Policy], Awaitable[None]] | None = None,
        new_epoch: bool = False,
        priorities: Mapping[str, float] = NO_PRIORITIES,
    ) -> tuple[Policy, int]:
        """Replace some values, if the version still is `expected` (None: whatever it is); answers the new version.

        `check` gets the policy before and after, and refuses what this store cannot know to be wrong. A new
        `traces.mode` begins a new epoch of the tag's traces, and so does `new_epoch`. `priorities` say how much
        single traces are wanted, higher first.

        Raises:
            Conflict: it was changed meanwhile. Invalid: the values. NotFound: no such tag.
        """
        key = self._lab.keys("policy", tag)

        async def decide(change: Change) -> tuple[Policy, int]:
            (stored,) = await change.read(hgetall(key))
            policy, version = _policy(stored, tag)
            if expected is not None and expected != version:
                raise Conflict(
                    f"the policy of {tag!r} is at version {version}, not {expected}",
                    hint="read it again and repeat the change",
                )
            new = policy.changed(changes)
            if check is not None:
                await check(policy, new)
            await check_traces(change, tag, priorities)
            if new_epoch or policy.traces.mode != new.traces.mode:
                await begin_epoch(change, tag, policy.traces.mode, new.traces)
            for trace_id, priority in priorities.items():
                change.hset(self._lab.keys.trace(trace_id), {"priority": priority})
            change.hset(key, {"values": new.model_dump_json(), "version": version + 1})
            return new, version + 1

        return await self._lab.change(decide)


def _policy(stored: Mapping[str, str], tag: str) -> tuple[Policy, int]:
    if not stored:
        raise unknown_tag(tag)
    return read_policy(stored["values"]), int(stored["version"])
