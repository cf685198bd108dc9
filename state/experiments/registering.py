"""Experiments, registered: a number, a record with its patch, a retest."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from state import reads
from state.booking import PATCHES, RUNS, Booking, PatchEntry, Resource, a_run, limits_of
from state.change import NOW, Asked, Change, Joined, Word, clock, exists, get, hgetall, hmget, loosely, zscore
from state.client import NOTHING
from state.decisions import Entered, Entry, EntryFacts, Parent, Run
from state.derived import in_seconds, milliseconds
from state.experiments.queueing import (
    BASELINE_FIELDS,
    GATE,
    Queueing,
    Waiting,
    begin_baseline,
    enter_queue,
    next_round,
    run_fields,
    waits_aside,
)
from state.ids import REQUEST_TTL_S, RequestKey
from state.policy import Policy, read_policy
from state.reads import fields_in
from state.records import Experiment, Idea, Selection, Status, Tag, Trace
from state.refusals import check_pinned, no_hypothesis, no_selection, unknown_tag

ENDLESS = Joined("+inf")
"""The end of a selection's lease that an experiment holds."""
HASH_LENGTHS = (40, 7, 8, 9, 10, 11, 12)
"""Usual lengths of abbreviated commit ids."""


class Registering(Queueing):
    async def entry_facts(
        self, change: Change, idea: Idea, asked: RequestKey | None, *, to_train: bool = False
    ) -> EntryFacts:
        """Facts for admitting an idea. GPUs and the budget are read only if it is `to_train`.

        Raises:
            NotFound: no such tag, selection or GPU. Conflict: no worker serves that GPU. Invalid: the request of this
                id had another body.
        """
        found = await change.read(self._named_by(idea, asked, to_train=to_train))
        if not found["tag"]:
            raise unknown_tag(idea.tag)
        if idea.selection_id is not None and not found["selection"]:
            raise no_selection(idea.selection_id)
        if idea.hypothesis_id is not None and not found["claim"]:
            raise no_hypothesis(idea.hypothesis_id, idea.tag)
        slots = found["slots"] or ()
        if to_train:
            is_confined = found["tag"].get("hidden_split") == "true"
            check_pinned(idea.pinned_gpu, slots, is_confined=is_confined)
        policy = read_policy(found["policy"]["values"])
        parents = {name: named for name in idea.parent_ids if (named := found[f"parent {name}"])}
        first = asked.registered(found["first"]) if asked and found["first"] else None
        if implied := self._implied_by(idea, policy, parents, first, found):
            found |= await change.read(implied)
        best = None
        if best_id := (found.get("best_now") or {}).get("experiment_id"):
            (best,) = await change.read(reads.experiment(self._keys, best_id))
        tag, newest = Tag.parse(found["tag"]), found["newest"]
        if newest is None:  # nothing has finished yet, or it did before this was kept
            newest = next(iter(found.get("finished") or ()), None)
        return EntryFacts(
            now=found["now"],
            tag=tag,
            policy=policy,
            policy_version=int(found["policy"]["version"]),
            crashes=int((found.get("crashes") or {}).get("consecutive") or 0),
            first=found.get("experiment"),
            parents=parents,
            epoch=int((found.get("epoch") or {}).get("epoch") or 1),
            selection=Selection.parse(found["selection"]) if idea.selection_id else None,
            selection_ends=found["ends"],
            branch=found.get("branch"),
            slots=slots,
            best=best,
            tried=found["tried"],
            tip=newest or tag.baseline_id,
            has_patch=bool(found["patch"]),
            of_tag=defaultdict(lambda: None, found["tag"]),
        )

    def _named_by(self, idea: Idea, asked: RequestKey | None, *, to_train: bool) -> dict[str, Asked | None]:
        """Reads of what an idea names. Guarded reads come first, so that loose ones are no older."""
        keys, tag, chosen = self._keys, idea.tag, idea.selection_id
        resources: list[Resource] = [*(PATCHES if idea.diff_id else ()), *(RUNS if to_train else ())]
        of_tag = hgetall(keys.tag(tag), *(GATE if to_train else ()), *limits_of(resources))
        selection = keys.selection(chosen or "none")
        guarded: dict[str, Asked | None] = {
            "policy": hgetall(keys("policy", tag), "version"),
            "tag": of_tag if resources else of_tag.loose(),
            "tried": hmget(keys("tried", tag), *names_of(idea)),
            "patch": exists(keys("diffs", idea.diff_id)) if idea.diff_id else None,
            "first": get(keys("requests", asked.name)) if asked else None,
            "epoch": hmget(keys("forest", tag), "epoch") if chosen else None,
            "chosen": hmget(selection, "status", "experiment_id") if chosen else None,
            "ends": zscore(keys("open_selections", tag), chosen) if chosen else None,
        }
        for name in idea.parent_ids:
            guarded[f"parent {name}"] = hmget(keys.experiment(name), *fields_in(Parent)).to(_parent)
        return {
            **guarded,
            "now": clock(),
            "of_best": ("HGET", keys.best(tag), "trace_id"),
            "newest": ("HGET", keys("forest", tag), "newest"),
            "claim": ("HGET", keys("hypotheses", tag), idea.hypothesis_id) if idea.hypothesis_id else None,
            "selection": ("HGETALL", selection) if chosen else None,
            "slots": reads.slots(self._lab) if to_train else None,
        }

    def _implied_by(
        self,
        idea: Idea,
        policy: Policy,
        parents: Mapping[str, Parent],
        first: str | None,
        found: Mapping[str, Any],
    ) -> dict[str, Asked | None]:
        """Second reads, which few ideas need."""
        keys, tag = self._keys, idea.tag
        more: dict[str, Asked | None] = {}
        if first is not None:
            more["experiment"] = reads.experiment(keys, first)
        if policy.on_abort == "block":
            more["crashes"] = hmget(keys("crashes", tag), "consecutive")
            more["best_now"] = hmget(keys.best(tag), "experiment_id", "version")
        if found["newest"] is None and int(found["tag"].get("finishes") or 0):
            more["finished"] = ("ZREVRANGE", keys("finished", tag), 0, 0)
        if policy.traces.mode == "multi" and idea.selection_id is None:
            more["epoch"] = hmget(keys("forest", tag), "epoch")
            named = parents.get(idea.parent_ids[0]) if idea.parent_ids else None
            trace_id = named.trace_id if named else None if idea.parent_ids else found["of_best"]
            if trace_id is not None:
                more["branch"] = loosely("HGETALL", keys.trace(trace_id), to=Trace.found)
        return more

    async def commits_of(self, tag: str, names: Sequence[str]) -> tuple[str | None, list[str]]:
        """The base commit of a tag, and the commits of these experiments, if they exist; one round trip."""
        base, *commits = await self._lab.pipeline(
            [
                ("HGET", self._keys.tag(tag), "base_commit"),
                *(("HGET", self._keys.experiment(name), "commit_sha") for name in names),
            ]
        )
        return base, [commit for commit in commits if commit]

    async def first_tried_of(self, tag: str, commits: Sequence[str]) -> tuple[str | None, str]:
        """(experiment, commit) of the first of these, maybe abbreviated, that one tried; else (None, the last)."""
        names = [f"commit:{commit[:length]}" for commit in commits for length in HASH_LENGTHS]
        found = await self._lab.command("HMGET", self._keys("tried", tag), *names)
        for at, name in enumerate(found):
            if name is not None:
                return str(name), commits[at // len(HASH_LENGTHS)]
        return None, commits[-1]

    async def register(
        self,
        change: Change,
        entry: Entry,
        facts: EntryFacts,
        patch: bytes | None = None,
        asked: RequestKey | None = None,
    ) -> Entered:
        """Store a new experiment with its patch, `packed`. Its agent trains it itself, or has it trained later.

        Raises:
            BudgetExhausted: the tag's budget has no room for the patch.
        """
        entered, name, _ = await self._enter(change, entry, facts, patch, asked)
        change.zadd(self._keys("open"), {name: NOW + entry.idea.patience_s})
        return entered

    async def submit(
        self,
        change: Change,
        entry: Entry,
        facts: EntryFacts,
        patch: bytes | None,
        asked: RequestKey | None,
        run: Run,
        workers: Sequence[str],
        *,
        is_baseline: bool = False,
    ) -> Entered:
        """Store a new experiment with its patch, `packed`, and put it into the wait queue, behind its agent's others.

        Other experiments wait for the end of one that `is_baseline`.

        Raises:
            BudgetExhausted: the tag's budget has no room for the patch or for the run.
        """
        idea, is_paused = entry.idea, facts.of_tag["paused_at"] is not None
        aside = is_paused if is_baseline else waits_aside(facts.of_tag)
        others: Waiting = {}
        if is_baseline:
            names = hmget(self._keys("tried", idea.tag), *names_of(idea))
            others, tried = await self._to_hold_back(change, idea.tag, names)
            facts = replace(facts, tried=tried)  # its commit is in the facts
        of_run = {**run_fields(run), **(BASELINE_FIELDS if is_baseline else {})}
        entered, name, attempts = await self._enter(change, entry, facts, patch, asked, run, of_run)
        in_round = next_round(change, idea.agent)
        change.hset(Joined(self._keys.experiment(""), name), {"queue_round": in_round})
        change.hset(attempts, {"1:status": "queued", "1:queued_at": NOW})
        change.emit(
            "experiment.queued", idea.tag, name, {"experiment_id": name, "attempt": 1}, idea.traceparent
        )
        if is_baseline:
            begin_baseline(change, idea.tag, name, others)
        room = self._room(idea.tag, run.pinned_gpu, aside=aside)
        enter_queue(change, room, name, run.priority, in_round)
        ahead = self._position(change, idea.tag, run, workers, in_round, aside=aside)
        return replace(entered, counts=ahead)

    async def _enter(
        self,
        change: Change,
        entry: Entry,
        facts: EntryFacts,
        patch: bytes | None,
        asked: RequestKey | None,
        run: Run | None = None,
        of_run: Mapping[str, Word] = NOTHING,
        *,
        is_handed_out: bool = False,
    ) -> tuple[Entered, Joined, Joined]:
        """Enter an experiment: record, patch, lineage, budget. Answers its id and the key of its attempts."""
        idea, keys, tag = entry.idea, self._keys, entry.idea.tag
        status: Status = "running" if is_handed_out else "queued" if run else "registered"
        stored = (
            await PatchEntry.of(change, idea.diff_id, patch, is_there=facts.has_patch)
            if idea.diff_id is not None and patch is not None
            else None
        )
        takes = [*(stored.takes if stored else []), *(a_run(run.budget_s) if run else [])]
        booking = Booking(change, tag, takes, limits=facts.of_tag, taken=facts.of_tag)
        await booking.check()
        if facts.selection_ends is not None:
            change.before(facts.selection_ends)
        if not is_handed_out:
            change.fit_quota()

        number = change.number(keys.tag(tag), "last_number")
        name, record, attempts = (
            Joined(before, number)
            for before in (f"{tag}-", keys.experiment(f"{tag}-"), keys.attempts(f"{tag}-"))
        )
        if stored:
            stored.write()
        booking.write()
        untried: dict[str, Word] = {known: name for known, first in facts.tried.items() if first is None}
        change.hset(keys("tried", tag), untried)
        fields = idea.flat()
        if entry.follows_tip and "baseline" not in of_run and facts.tip:
            fields["parent_ids"] = json.dumps([facts.tip])
        if facts.duplicate_of:
            fields["duplicate_of"] = facts.duplicate_of
        of_it: dict[str, Word] = {
            "experiment_id": name,
            "number": number,
            "status": status,
            "registered_at": NOW,
        }
        of_it |= {"attempt": int(status == "queued"), "fence": 0}
        if status == "queued":
            of_it["queued_at"] = NOW
        if run is not None:
            of_it["reserved_gpu_seconds"] = in_seconds(milliseconds(run.budget_s))
        change.hset(record, {**fields, **of_run, **of_it})
        indexes = [
            keys("lineage", tag),
            keys("category", tag, idea.category),
            *keys.status(tag, status, idea.category),
        ]
        for index in [*indexes, *([keys.of_trace(idea.trace_id)] if idea.trace_id else [])]:
            change.zadd(index, {name: number})
        if asked is not None:
            text = Joined(f"{tag}-", number, f" {asked.body_digest}")
            change.set(keys("requests", asked.name), text, lasts_s=REQUEST_TTL_S)
        if idea.selection_id is not None:
            change.hset(keys.selection(idea.selection_id), {"experiment_id": name})
            change.zadd(keys("open_selections", tag), {idea.selection_id: ENDLESS})
        about = {"category": idea.category, "hypothesis": idea.hypothesis, "agent": idea.agent}
        told = {"experiment_id": name, "number": number, **about}
        change.emit("experiment.registered", tag, name, told, idea.traceparent)
        parents = json.loads(fields.get("parent_ids", "[]"))
        return Entered(tag, number, facts.duplicate_of, parents), name, attempts

    async def touch(self, e: Experiment) -> None:
        """Record a sign of life of its agent."""

        async def decide(change: Change) -> None:
            change.zadd(self._keys("open"), {e.experiment_id: NOW + e.patience_s}, known=True)

        await self._lab.change(decide)


def names_of(idea: Idea) -> list[str]:
    """Names of some code: of its patch, of its commit, and the one that finds parents."""
    constants = json.dumps(idea.config_delta) if idea.config_delta else ""
    patch = [f"diff:{idea.diff_id}{constants}"] if idea.diff_id else []
    return [*patch, f"code:{idea.commit_sha}{constants}", f"commit:{idea.commit_sha}"]


def _parent(stored: Mapping[str, str | None]) -> Parent | None:
    return Parent.parse(stored) if stored["tag"] else None
