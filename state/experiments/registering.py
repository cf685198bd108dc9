"""Experiments, registered: a number, a record with its patch, a retest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from state.budgets import WARN_AT
from state.change import NOW, Change
from state.client import time_of
from state.decided import code_text, constants_text, limits_text, tag_with
from state.digests import REQUEST_TTL_S, RequestKey
from state.entries import Entered, Entry, EntryFacts, Parent, Run, Turn, WaitQueue
from state.experiments.queueing import (
    BASELINE_FIELDS,
    Decide,
    Queueing,
    rounds_of,
    run_fields,
    slots,
    slots_of,
    turn_of,
)
from state.moves import Arg
from state.patches import packed
from state.policy import Policy, read_policy
from state.records import Experiment, Idea, Selection, Status, Tag, Trace, words
from state.refusals import check_pinned, no_hypothesis, no_selection
from state.tags import exhausted, unknown

HASH_LENGTHS = (40, 7, 8, 9, 10, 11, 12)
"""Usual lengths of abbreviated commit ids."""


class Registering(Queueing):
    """Part of `Experiments`."""

    async def entry_facts(
        self, idea: Idea, asked: RequestKey | None, *, to_train: bool = False
    ) -> EntryFacts:
        """Facts for admitting an idea. GPUs and rounds of the queue are read only if it is `to_train`.

        Raises:
            NotFound: no such tag, selection or GPU. Conflict: no worker serves that GPU. Invalid: the request of this
                id had another body.
        """
        found = await self._lab.read(self._named_by(idea, asked, to_train=to_train))
        if not found["tag"]:
            raise unknown(idea.tag)
        if idea.selection_id is not None and not found["selection"]:
            raise no_selection(idea.selection_id)
        if idea.hypothesis_id is not None and not found["claim"]:
            raise no_hypothesis(idea.hypothesis_id, idea.tag)
        slots = slots_of(found.get("slots", ()))
        if to_train:
            check_pinned(idea.pinned_gpu, slots)
        values, version = found["policy"]
        policy = read_policy(values)
        named = {name: _parent(found[f"parent {name}"]) for name in idea.parent_ids}
        parents = {name: parent for name, parent in named.items() if parent is not None}
        first = asked.registered(found["first"]) if asked and found["first"] else None
        found |= await self._lab.read(self._implied_by(idea, policy, parents, first, found["best"]))
        return EntryFacts(
            now=time_of(found["now"]),
            tag=Tag.parse(tag_with(found["tag"], found["decided"])),
            policy=policy,
            policy_version=int(version),
            crashes=int(found.get("crashes") or 0),
            first=Experiment.parse(found["experiment"]) if first else None,
            parents=parents,
            epoch=int(found.get("epoch") or 1),
            selection=Selection.parse(found["selection"]) if idea.selection_id else None,
            selection_ends=float(found["ends"]) if found.get("ends") else None,
            branch=Trace.parse(found["branch"]) if found.get("branch") else None,
            rounds=rounds_of(found.get("rounds", (None, None))),
            slots=slots,
            waiting=int(found.get("waiting") or 0),
            best=Experiment.found(found.get("best_run") or {}),
            best_version=int(found["best"][2] or 0),
        )

    def _named_by(self, idea: Idea, asked: RequestKey | None, *, to_train: bool) -> dict[str, Sequence[Arg]]:
        """Commands that read what an idea names."""
        keys, tag = self._keys, idea.tag
        reads: dict[str, Sequence[Arg]] = {
            "now": ("TIME",),
            "tag": ("HGETALL", keys.tag(tag)),
            "decided": ("HGET", keys("decided", tag), "tag"),
            "policy": ("HMGET", keys("policy", tag), "values", "version"),
            "best": ("HMGET", keys.best(tag), "experiment_id", "trace_id", "version"),
        }
        if idea.hypothesis_id is not None:
            reads["claim"] = ("HGET", keys("hypotheses", tag), idea.hypothesis_id)
        if asked is not None:
            reads["first"] = ("GET", keys("requests", asked.name))
        for name in idea.parent_ids:
            fields = ("tag", "retest_of", "outdated", "trace_id")
            reads[f"parent {name}"] = ("HMGET", keys.experiment(name), *fields)
        if idea.selection_id is not None:
            reads["selection"] = ("HGETALL", keys.selection(idea.selection_id))
            reads["ends"] = ("ZSCORE", keys("open_selections", tag), idea.selection_id)
            reads["epoch"] = ("HGET", keys("forest", tag), "epoch")
        if to_train:
            reads["rounds"] = self._rounds(idea.agent)
            reads["slots"] = slots(self._lab)
            reads["waiting"] = ("ZCARD", keys.status(tag, "queued", "")[0])
        return reads

    def _implied_by(
        self,
        idea: Idea,
        policy: Policy,
        parents: Mapping[str, Parent],
        first: str | None,
        best: Sequence[str | None],
    ) -> dict[str, Sequence[Arg]]:
        """Second reads, which few ideas need."""
        keys, tag, (best_id, of_best, _) = self._keys, idea.tag, best
        reads: dict[str, Sequence[Arg]] = {}
        if first is not None:
            reads["experiment"] = ("HGETALL", keys.experiment(first))
        if policy.on_abort == "block":
            reads["crashes"] = ("HGET", keys("crashes", tag), "consecutive")
            if best_id is not None:
                reads["best_run"] = ("HGETALL", keys.experiment(best_id))
        if policy.traces.mode == "multi" and idea.selection_id is None:
            reads["epoch"] = ("HGET", keys("forest", tag), "epoch")
            named = parents.get(idea.parent_ids[0]) if idea.parent_ids else None
            trace_id = named.trace_id if named else None if idea.parent_ids else of_best
            if trace_id is not None:
                reads["branch"] = ("HGETALL", keys.trace(trace_id))
        return reads

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
        """The first of these commits that an experiment tried, after that experiment; else None and the last commit.

        Agents may have named a commit by its first digits.
        """
        names = [f"commit:{commit[:length]}" for commit in commits for length in HASH_LENGTHS]
        found = await self._lab.command("HMGET", self._keys("tried", tag), *names)
        for at, name in enumerate(found):
            if name is not None:
                return str(name), commits[at // len(HASH_LENGTHS)]
        return None, commits[-1]

    async def register(
        self,
        entry: Entry,
        patch: bytes | None,
        asked: RequestKey | None,
    ) -> Entered | None:
        """Store a new experiment with its patch; None if its facts have changed."""
        keys, args = await self._entering(entry, patch, asked, "registered")
        answer = await self._lab.move(
            "register_experiment",
            keys=keys,
            args={**args, "patience_s": entry.idea.patience_s},
        )
        return self._entered(entry, answer)

    async def submit(
        self,
        entry: Entry,
        patch: bytes | None,
        asked: RequestKey | None,
        run: Run,
        queue: WaitQueue,
        decide: Decide,
        *,
        is_baseline: bool = False,
    ) -> Entered | None:
        """Store a new experiment with its patch, and put it into the wait queue in the round that `decide` chooses.

        Other experiments wait for the end of one that `is_baseline`. None if its facts have changed.

        Raises:
            BudgetExhausted: the tag's budget has no room for the run.
        """
        idea, keys = entry.idea, self._keys
        entry_keys, args = await self._entering(entry, patch, asked, "queued", run, is_baseline=is_baseline)
        places = await self._places(idea.tag, queue.waiting if is_baseline else 0)

        async def move(turn: Turn) -> Any:
            return await self._lab.move(
                "submit_experiment",
                keys={
                    **entry_keys,
                    **places,
                    "attempts": keys.attempts(f"{idea.tag}-"),
                    "queue": keys.queue(run.pinned_gpu),
                    "parked": keys.parked(idea.tag, run.pinned_gpu),
                    "rivals": self._rivals(idea.tag, run.pinned_gpu, queue.workers, paused=queue.paused),
                },
                args={
                    **args,
                    "agent": idea.agent or "",
                    "priority": run.priority,
                    "run_s": run.budget_s,
                    "baseline": 1 if is_baseline else None,
                    **turn_of(turn),
                },
            )

        return self._entered(entry, await self._in_turn(idea.agent, queue.rounds, decide, move))

    async def _entering(
        self,
        entry: Entry,
        patch: bytes | None,
        asked: RequestKey | None,
        status: Status,
        run: Run | None = None,
        *,
        is_baseline: bool = False,
    ) -> tuple[dict[str, str | None], dict[str, Arg | Sequence[Arg] | None]]:
        """Arguments of the part `_registration.lua`."""
        idea, keys = entry.idea, self._keys
        follows_tip = entry.follows_tip and not is_baseline
        diff_id, content = await packed(patch)
        fields = {**(run_fields(run) if run else {}), **(BASELINE_FIELDS if is_baseline else {})}
        of_status, of_status_and_category = keys.status(idea.tag, status, idea.category)
        stored = {**idea.flat(), **fields} | ({"diff_id": diff_id} if diff_id else {})
        about = {"category": idea.category, "hypothesis": idea.hypothesis, "agent": idea.agent}
        return {
            "experiments": keys.experiment(f"{idea.tag}-"),
            "of_category": keys("category", idea.tag, idea.category),
            "of_status": of_status,
            "of_status_and_category": of_status_and_category,
            "of_trace": keys.of_trace(idea.trace_id) if idea.trace_id else None,
            "patch": keys("diffs", diff_id) if diff_id else None,
            "request": keys("requests", asked.name) if asked else None,
            "selection": keys.selection(idea.selection_id) if idea.selection_id else None,
        }, {
            "tag": idea.tag,
            "policy_version": idea.policy_version,
            "crashes": entry.crashes,
            "best_version": entry.best_version,
            "epoch": entry.epoch,
            "selection_id": idea.selection_id,
            "commit": idea.commit_sha,
            "patch_id": diff_id,
            "patch": content,
            "warn_at": WARN_AT,
            "request_digest": asked.body_digest if asked else None,
            "request_ttl_s": REQUEST_TTL_S,
            "fields": words(stored),
            "about": json.dumps(about)[1:-1],
            "experiment_traceparent": idea.traceparent,
            "follows_tip": 1 if follows_tip else None,
            "code": code_text(idea.commit_sha, diff_id, idea.seed),
            "constants": constants_text(idea.config_delta),
            "limits": limits_text(run),
        }

    @staticmethod
    def _entered(entry: Entry, answer: Sequence[Any]) -> Entered | None:
        tag = entry.idea.tag
        match answer:
            case ["ok", number, first, parents, *place]:
                return Entered(f"{tag}-{number}", int(number), first or None, json.loads(parents), *place)
            case ["exhausted", *_]:
                raise exhausted(tag, answer)
            case _:
                return None

    async def touch(self, e: Experiment) -> None:
        """Record a sign of life of its agent."""

        async def decide(change: Change) -> None:
            change.zadd(self._keys("open"), {e.experiment_id: NOW + e.patience_s}, known=True)

        await self._lab.change(decide)


def _parent(stored: Sequence[str | None]) -> Parent | None:
    tag, retest_of, outdated, trace_id = stored
    return None if tag is None else Parent(tag, retest_of, outdated == "true", trace_id)
