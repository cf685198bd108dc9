"""Experiments, ended: the facts of a run, the one way into a final status, and what retests change afterwards."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from state.booking import due, warn
from state.change import NOW, Asked, Change, Decide, Word, clock, hgetall, hmget, size, zscore
from state.decisions import BrokenLease, Ending, Growth
from state.derived import Books, Derived, between, in_seconds, is_spent, milliseconds, step
from state.experiments.ranking import add_trends, counted, counting, ends_at, trends_at
from state.experiments.reading import ExperimentReader, retest_id
from state.experiments.writing import FLAGS, LEASED, keep_gpu, put_best, relist
from state.facts import UNCHANGED, Comparison, RunFacts, Spread
from state.forests import REMEMBERED_S, end_trace
from state.ids import named_by
from state.leases import Holding
from state.noise import class_id, noise_entry, noise_key, runs_at
from state.policy import read_policy
from state.reads import base_above, base_found, experiment_in
from state.records import (
    JUDGED,
    Best,
    Experiment,
    Gpu,
    RunVerdict,
    SelectionRecord,
    SelectionStatus,
    Status,
    Tag,
    Trace,
    flatten,
)
from state.refusals import no_gpu

EVIDENCE_KEPT = 100
RETURNED_FIRST = -2
"""Place among a population's proposals of a config that another worker is to run."""
OF_RUN = (
    *("status", "attempt", "fence", "measured_by", "stopping"),
    *("queue_round", "reserved_gpu_seconds", "gpu_id"),
)
"""Fields of an experiment that the end of its run rests on."""
OF_TAG = (
    *("key_version", "awaits_baseline", "baseline_id", "paused_at"),
    *("budget_gpu_seconds", "budget_runs", "warned_gpu_seconds", "warned_runs"),
)
"""Fields of a tag that the end of a run rests on; `key_version` covers the parts of its key."""
OF_LEASE = ("fence", "heartbeat_at", "leased_at", "lease_expires_at", "deadline", "runner")
"""Fields of a GPU that the end of its lease rests on."""
OF_CRASHES = ("consecutive_crashes", "tripped_until", "trips")
TOLD = (
    *("experiment_id", "number", "status", "category", "description", "agent", "gpu_id", "retest_of"),
    *("val_bpb", "reported", "hung", "error_kind"),
    *RunVerdict.model_fields,
    *("claimed", "attempt"),
)
"""Fields of an experiment in the event of its end."""

T = TypeVar("T")


class EndingStore(ExperimentReader):
    def judging(self, experiment_id: str, decide: Decide[T]) -> Awaitable[T]:
        """Read, judge and end a run in one change. Runs of a tag that have to be judged again take turns."""
        _, tag = named_by(experiment_id)
        return self._lab.change(decide, in_turn=f"end {tag}", at_once=True)

    async def run_facts(self, change: Change, experiment_id: str, attempt: int | None = None) -> RunFacts:
        """Facts to judge a report on an experiment or attempt. Raises NotFound: no such experiment."""
        keys, (first, tag) = self._keys, named_by(experiment_id)
        of_tag = keys.of(tag)

        def stored_run(stored: Mapping[str, str]) -> tuple[Experiment, str | None]:
            return experiment_in(stored, experiment_id), stored.get("answer")

        found = await change.read(
            {
                "now": clock(),
                "experiment": hgetall(keys.experiment(experiment_id), *OF_RUN, to=stored_run),
                "attempts": hgetall(keys.attempts(experiment_id)) if attempt is not None else None,
                "first": None
                if first == experiment_id
                else hgetall(keys.experiment(first), "status", to=Experiment.found),
                "tag": hgetall(of_tag.tag, *OF_TAG, to=Tag.parse),
                "policy": hgetall(of_tag.policy, "version"),
                "crashes": hmget(of_tag.crashes, "consecutive", is_held=False),
                "best": hgetall(of_tag.best, "version", to=Best.found),
            }
        )
        (e, answer), policy, crashes = found["experiment"], found["policy"], found.pop("crashes")
        of_attempt = found["attempts"] or {}
        answer = of_attempt.get(f"{attempt}:answer") or answer
        found |= {"experiment": e, "policy": read_policy(policy.get("values"))}
        return RunFacts(
            **found,
            gpu_id=of_attempt.get(f"{attempt}:gpu_id") or e.gpu_id,
            answer=json.loads(answer) if answer else None,
            policy_version=int(policy["version"]),
            crashes_in_a_row=int(crashes["consecutive"] or 0),
        )

    async def comparison(
        self,
        change: Change,
        run: RunFacts,
        gpu_class: str | None,
        other_key: str | None,
        code: str,
        value: float | None = None,
    ) -> Comparison:
        """Facts that a finished run on this class of GPU is compared with; one round trip.

        One more if another comparability key has its own best, and one more if retests took the base of its branch
        back.
        """
        e, keys = run.experiment, self._keys
        noise = noise_key(keys, e.tag, gpu_class)
        best_code = run.best.code if run.best and other_key is None else None
        choice = e.selection if e.retest_of is None else None
        base_id = choice.base_experiment_id if choice else None
        names = [choice.trace_id, *choice.sources] if choice else []
        own = noise_entry(code, e.worker_id)
        counts = self._counts_of_ends(e, e.rank_class, value) if e.rank_class and value is not None else {}
        classes, is_timed = e.time_classes, e.attempt > 0 or e.worker_id is not None
        found = await change.read(
            {
                "runs": hmget(noise, code, own),
                "noise": hmget(noise, "squares", "df", best_code or code, is_held=False),
                "gpu": hgetall(keys.gpu(run.gpu_id), *FLAGS, *OF_CRASHES) if run.gpu_id else None,
                "best": hgetall(keys.best(e.tag, other_key), "version", to=Best.found) if other_key else None,
                "base": base_above(self._lab, keys.experiment(base_id)) if base_id else None,
                "kept": hmget(keys.experiment(base_id), "status") if base_id else None,
                "forest": hmget(keys.of(e.tag).forest, "epoch") if choice else None,
                "reference": hmget(keys.of(e.tag).reference_times, *classes) if is_timed else None,
                **{name: hgetall(keys.trace(name), "version", "status", to=Trace.found) for name in names},
                **counts,
                **self._around(e),
            }
        )
        best = run.best if other_key is None else found["best"]
        spread, runs = found["noise"], found["runs"]
        bests = spread[best_code or code]
        if best is not None and best.code not in (code, best_code):
            (kept,) = await change.read(hmget(noise, best.code or ""))
            bests = kept[best.code or ""]
        traces: dict[str, Trace] = {name: found[name] for name in names if found[name]}
        trace = traces.pop(choice.trace_id, None) if choice else None
        stands_on = begins_on = await base_found(self._lab, found["base"]) if base_id else None
        if choice and trace and trace.base and _has_another_base(trace, e, choice, begins_on):
            stands_on = await self.base_above([trace.base])
        guarded: tuple[tuple[Experiment, ...], ...] = ()
        if run.policy.guards.slices and run.first is None:
            above = [each.experiment_id for each in (stands_on, best) if each is not None]
            above += [run.tag.baseline_id] if run.tag.baseline_id else []
            guarded = await self._with_retests(change, [*dict.fromkeys(above)])
        return Comparison(
            gpu=Gpu.found(found["gpu"]),
            best=best,
            noise_key=noise,
            noise=Spread(
                int(spread["df"] or 0),
                float(spread["squares"] or 0),
                (runs[code] or "", (bests or "") if best else "", runs[own] or ""),
            ),
            trace=trace,
            sources=tuple(traces.values()),
            base=stands_on,
            ends=counted([found[name] for name in counts], value) if counts and value is not None else None,
            begins_on=begins_on,
            references=tuple(found["reference"][name] or "" for name in classes) if is_timed else (),
            epoch=int(found["forest"]["epoch"] or 1) if choice else 1,
            guarded=guarded,
            around=found,
        )

    async def _with_retests(self, change: Change, names: Sequence[str]) -> tuple[tuple[Experiment, ...], ...]:
        """Runs with a value of each of these experiments, itself first; two round trips."""
        key = self._keys.experiment
        found = await change.read(*(hgetall(key(n), "status", "retests", to=Experiment.found) for n in names))
        firsts = [e for e in found if e is not None]
        again = [retest_id(e, nth) for e in firsts for nth in range(e.retests)]
        runs = await change.read(*(hgetall(key(name), "status", to=Experiment.found) for name in again))
        retests = [run for run in runs if run and run.is_evidence]
        return tuple((e, *(run for run in retests if run.retest_of == e.experiment_id)) for e in firsts)

    def _counts_of_ends(self, e: Experiment, rank_class: str, value: float) -> dict[str, Asked]:
        """Commands that rank a run's value among the final values of others."""
        commands = counting(ends_at(self._keys, e.tag, rank_class), e.experiment_id, value)
        return {f"ends {n}": command for n, command in enumerate(commands)}

    def _around(self, e: Experiment) -> dict[str, Asked | None]:
        """What else the end of a run changes: its selection, and its place in a swarm."""
        keys = self._keys
        found: dict[str, Asked | None] = {}
        if e.selection_id is not None:
            found["selection"] = hmget(keys.selection(e.selection_id), "status", "experiment_id")
            found["its trace"] = hmget(keys.trace(e.trace_id or ""), "status")
            found["in_flight"] = hmget(keys.trace(e.trace_id or ""), "in_flight", is_held=False)
        if e.worker_id is not None and e.population_id is not None:
            found["worker"] = hmget(keys("swarm_workers", e.worker_id), "run_id")
            found["handed_out"] = zscore(keys("handed_out"), e.experiment_id)
        return found

    async def finish(
        self,
        change: Change,
        run: RunFacts,
        ending: Ending,
        beside: Comparison | None = None,
        *,
        used_until: float | None = None,
        first: Callable[[], None] | None = None,
    ) -> None:
        """Give a run that `change` has read its final status, with everything that follows from it.

        `beside`: what it was compared with. `used_until`: when its GPU was used last, where that is not now. `first`
        writes what comes before its end.
        """
        e, keys, growth = ending.experiment, self._keys, ending.growth
        around = beside.around if beside else await change.read(self._around(e))
        is_claim = e.is_claim
        is_timed = e.attempt > 0 and not is_claim
        now = e.model_copy(update={**ending.fields, "status": ending.status})
        step(shift := Derived(), now, run.tag.direction, e)
        counts = now.status in JUDGED and e.retest_of is None and not now.is_claim
        is_source = not ending.fields.get("outdated") and now.error_kind != "infra"
        begins_on = growth.begins_on if growth else None
        after = _selection_after(ending, around)
        is_alone = after not in (None, "committed") and around["its trace"]["status"] == "pending"
        found = await change.read(
            {
                "attempts": hgetall(keys.attempts(e.experiment_id))
                if is_timed and run.attempts is None
                else None,
                "rounds": self._rounds_of(e),
                "newest": hmget(keys.of(e.tag).forest, "newest") if counts and not is_source else None,
                "begins_on": hmget(keys.experiment(begins_on), "status") if begins_on else None,
            }
        )
        if is_alone:
            change.hold(keys.trace(e.trace_id or ""))
        if ending.crashes or run.policy.on_abort == "block":
            change.hold(keys.of(e.tag).crashes)
        if ending.repeat and beside and ending.repeat.change != UNCHANGED:
            change.hold(beside.noise_key)
        ended_at = run.now if used_until is None else used_until
        started = (found["attempts"] or run.attempts or {}).get(f"{e.attempt}:started_at")
        booked = Books() if is_claim else _spent(e, ending, started, ended_at)
        warnings = await due(change, run.tag, booked)

        if first is not None:
            first()
        tag, record = keys.tag(e.tag), keys.experiment(e.experiment_id)
        nth = change.number(tag, "finishes") if counts else None
        fields: dict[str, Word] = {"status": ending.status, "finished_at": NOW}
        fields |= flatten({**ending.fields, "answer": _kept_answer(ending)})
        change.hset(record, fields if nth is None else {**fields, "finish_number": nth})
        change.apply(shift)
        if nth is not None:
            change.zadd(keys.of(e.tag).finished, {e.experiment_id: nth})
            if is_source:
                change.hset(keys.of(e.tag).forest, {"newest": e.experiment_id, "newest_nth": nth})
            elif not found["newest"]["newest"]:
                change.hset(keys.of(e.tag).forest, {"newest": "", "newest_nth": 0})
        self._learn(change, ending)
        change.apply(booked.shift(e.tag))
        for warning in warnings:
            warn(change, e.tag, *warning)
        if is_timed:
            told = {"status": ending.status, "ended_at": f"{ended_at:.6f}", "reason": ending.reason}
            attempt = {f"{e.attempt}:{name}": text for name, text in told.items() if text is not None}
            change.hset(keys.attempts(e.experiment_id), attempt)
        self._add_to_sums(change, ending, beside)
        self._count_crashes(change, run, ending, around)
        self._leave_queues(change, e, found["rounds"])
        self._leave_swarm(change, ending, shift, around)
        change.emit(
            _event(e, ending.status), e.tag, e.experiment_id, _told(now, ending.reason), e.traceparent
        )
        if ending.lifts_abort:
            lifted = {"lifted": "crashes", "crashes": run.crashes_in_a_row, "experiment_id": e.experiment_id}
            change.emit("tag.resumed", e.tag, e.tag, {"tag": e.tag, **lifted})
        if growth is not None:
            self._grow(change, e, growth)
        if after is not None:
            is_last = int(around["in_flight"]["in_flight"] or 0) == 1
            self._close_selection(change, ending, after, ends_trace=is_alone and is_last)
        if ending.best is not None:
            is_new = ending.best.experiment_id == e.experiment_id
            put_best(change, keys, e, ending.best, ending.other_key, is_new=is_new)

    def _learn(self, change: Change, ending: Ending) -> None:
        """The tag's training time, and the parts of its main key that the run is the first to know."""
        tag = self._keys.tag(ending.experiment.tag)
        if ending.training_seconds is not None:
            change.hincrby(tag, "training_ms", milliseconds(ending.training_seconds))
        if ending.learned:
            learned = flatten(ending.learned)
            if (gpu_class := ending.learned.get("key_gpu_class")) is not None:
                learned["key_noise"] = class_id(str(gpu_class))
            change.hset(tag, learned)
            change.hincrby(tag, "key_version")

    def _add_to_sums(self, change: Change, ending: Ending, beside: Comparison | None) -> None:
        """The noise, the times that runs are compared with, and the trends."""
        e, keys, repeat, learnt = ending.experiment, self._keys, ending.repeat, ending.learnt
        if repeat is not None and beside is not None:
            noise = beside.noise_key
            change.zadd(runs_at(noise, repeat.code), {e.experiment_id: NOW})
            change.hset(noise, {**repeat.entries, **beside.noise.changed(repeat.change)})
        if ending.references:
            change.hset(keys.of(e.tag).reference_times, ending.references)
        if learnt is not None and e.rank_class is not None:
            change.zadd(ends_at(keys, e.tag, e.rank_class), {e.experiment_id: learnt.value})
            add_trends(change, trends_at(keys, e.tag, e.rank_class), learnt.trends)

    def _count_crashes(
        self, change: Change, run: RunFacts, ending: Ending, around: Mapping[str, Any]
    ) -> None:
        """Crashes in a row, of the tag and of the GPU that it ran on."""
        e, crashes = ending.experiment, self._keys.of(ending.experiment.tag).crashes
        if ending.crashes is not None and e.retest_of is None:
            change.hset(crashes, {"consecutive": ending.crashes})
            if ending.crashes:
                change.hincrby(crashes, "total")
        of_gpu, before = ending.gpu, around.get("gpu")
        if of_gpu is None or e.gpu_id is None or e.attempt == 0 or before is None:
            return
        flags: dict[str, Word] = {**before, "consecutive_crashes": of_gpu.in_a_row}
        if not of_gpu.in_a_row:
            for name in ("tripped", "tripped_until", "trips"):
                flags.pop(name, None)
        if of_gpu.trip_reason is not None:
            until = NOW + (of_gpu.trip_s or 0.0)
            flags |= {"trips": int(before.get("trips") or 0) + 1, "tripped": of_gpu.trip_reason}
            flags |= {"tripped_until": until}
        keep_gpu(change, e.gpu_id, before, flags, "a run ended")

    def _rounds_of(self, e: Experiment) -> Asked | None:
        """The rounds of the wait queue, where it waits in one."""
        if e.queue_round is None:
            return None
        return hmget(self._keys("queue_clock"), f"agent:{e.agent or ''}", "round")

    def _leave_queues(self, change: Change, e: Experiment, rounds: Mapping[str, str | None] | None) -> None:
        """Its agent gets the turn back that it had not used, unless that round is over."""
        keys, name, agent = self._keys, e.experiment_id, f"agent:{e.agent or ''}"
        if e.status == "queued":
            change.zrem(keys.queue(e.pinned_gpu), name)
            change.zrem(keys.parked(e.tag, e.pinned_gpu), name)
        if e.attempt > 0:
            change.zrem(keys("starting"), name)
        change.zrem(keys("open"), name)
        if e.reserved_gpu_seconds is not None or e.queue_round is not None:
            change.hdel(keys.experiment(name), "reserved_gpu_seconds", "queue_round")
        if e.queue_round is None or rounds is None:
            return
        own, served = int(rounds[agent] or -1), int(rounds["round"] or 0)
        if e.queue_round >= served and own > served:
            change.hset(keys("queue_clock"), {agent: own - 1})
        elif e.queue_round >= served:
            change.hdel(keys("queue_clock"), agent)

    def _leave_swarm(self, change: Change, ending: Ending, shift: Derived, around: Mapping[str, Any]) -> None:
        """Its worker is free, and may lead by its value."""
        e, keys = ending.experiment, self._keys
        if e.worker_id is None or e.population_id is None:
            return
        if around["handed_out"] is not None:
            change.zrem(keys("handed_out"), e.experiment_id)
            if not e.is_extra and e.retest_of is None:
                change.hincrby(keys("in_flight", e.tag), e.population_id, -1)
            if ending.returned is not None:
                waiting = keys("proposals", e.tag, e.population_id)
                change.zadd(waiting, {ending.returned: RETURNED_FIRST})
        if around["worker"]["run_id"] == e.experiment_id:
            change.hdel(keys("swarm_workers", e.worker_id), "run_id")
        led_by = shift.scores.get((f"worker_runs:{e.worker_id}", e.experiment_id))
        if led_by is not None:
            change.zadd(keys("leaders", e.tag), {e.worker_id: led_by}, lowest=True)

    def _grow(self, change: Change, e: Experiment, growth: Growth) -> None:
        """The trace that it is a node of grows, begins or ends; a kept merge ends its sources."""
        keys, trace = self._keys, growth.trace
        change.hset(keys.trace(trace.trace_id), flatten(growth.fields))
        change.hincrby(keys.trace(trace.trace_id), "version")
        if growth.begins_on:  # who takes it back looks again
            change.hincrby(keys.experiment(growth.begins_on), "branches")
        if trace.status == "pending" and growth.status == "live":
            change.hset(keys.trace(trace.trace_id), {"status": "live"})
            opened = {"trace_id": trace.trace_id, "root": e.experiment_id}
            change.emit("trace.opened", e.tag, trace.trace_id, opened, e.traceparent)
        elif growth.status == "dead" and trace.status != "dead":
            end_trace(change, e.tag, trace.trace_id, "dead", growth.why)
        for source in growth.ends:
            change.hset(keys.trace(source.trace_id), {"merged_into": trace.trace_id})
            end_trace(change, e.tag, source.trace_id, "merged", f"it was merged by {e.experiment_id}")

    def _close_selection(
        self, change: Change, ending: Ending, after: SelectionStatus, *, ends_trace: bool
    ) -> None:
        """Close its selection with it: its slot and its trace's are free. `ends_trace`: the trace was made for it."""
        e, keys = ending.experiment, self._keys
        name, trace_id = e.selection_id or "", e.trace_id or ""
        change.hset(keys.selection(name), {"status": after, "ended_at": NOW})
        change.expire(keys.selection(name), REMEMBERED_S)
        change.zrem(keys("open_selections", e.tag), name)
        change.hincrby(keys.trace(trace_id), "in_flight", -1)
        told = {"selection_id": name, "trace_id": trace_id, "experiment_id": e.experiment_id}
        change.emit(f"selection.{after}", e.tag, name, told | {"reason": ending.reason or ending.status})
        if ends_trace:
            end_trace(change, e.tag, trace_id, "dead", "its first experiment was never finished")

    async def end(self, ending: Ending, *, only_overdue: bool = False) -> bool:
        """End a run that is not judged (`only_overdue`: a swarm's); False: status, attempt or fence has changed."""
        e = ending.experiment

        async def decide(change: Change) -> bool:
            run = await self.run_facts(change, e.experiment_id)
            if not is_as_read(ending, run):
                return change.idle(False)
            if only_overdue:
                (lost_at,) = await change.read(zscore(self._keys("handed_out"), e.experiment_id))
                if lost_at is None or lost_at > run.now:
                    return change.idle(False)
            await self.finish(change, run, ending)
            return True

        return await self.judging(e.experiment_id, decide)

    async def break_lease(
        self, gpu_id: str, decide: Callable[[Holding], BrokenLease | None]
    ) -> BrokenLease | None:
        """End the lease of a GPU whose holder is gone, as `decide` says of it; None: it goes on, or there is none.

        Raises:
            NotFound: the GPU is not registered. What `decide` raises.
        """
        keys = self._keys

        async def broken(change: Change) -> BrokenLease | None:
            of_gpu = hgetall(keys.gpu(gpu_id), *FLAGS, *OF_LEASE, "footprint", "good_samples")
            time, stored = await change.read(clock(), of_gpu)
            if not stored:
                raise no_gpu(gpu_id)
            gpu, run = Gpu.parse(stored), None
            held = Holding(time, gpu)
            if gpu.holder is not None:
                run = await self.run_facts(change, gpu.holder, gpu.attempt)
                held = Holding(time, gpu, run.experiment, run.policy, run.tag.stop_fence)
            lease = decide(held)
            if lease is None:
                return change.idle(None)
            e, then = lease.experiment, lease.then
            used_until = min(time, gpu.lease_expires_at or time)  # while the lab was off, it was not used

            def let_go() -> None:
                kept = {n: text for n, text in stored.items() if n not in (*LEASED, *lease.cleared)}
                keep_gpu(change, gpu_id, stored, {**kept, **flatten(lease.flags)}, lease.reason)
                change.zrem(keys("leases"), gpu_id)
                if then is not None:
                    change.hset(keys.experiment(e.experiment_id), {"fence": 0})
                    change.hdel(keys.experiment(e.experiment_id), "gpu_id", "started_at")

            if then is None or run is None:
                let_go()
            elif then == "stopped" or then == "lost":
                ending = Ending(e, then, {"error": lease.reason}, reason=lease.reason)
                await self.finish(change, run, ending, used_until=used_until, first=let_go)
            else:
                await self._requeue(
                    change,
                    run,
                    lease.reason,
                    used_until,
                    let_go,
                    "lost" if then == "requeued" else None,
                )
            return lease

        return await self._lab.change(broken)

    async def run_again(self, change: Change, run: RunFacts, ending: Ending) -> None:
        """Queue a run that was disturbed once more, before it has a verdict. Its report is kept with its attempt.

        Its GPU stays lent until its worker gives it back.
        """
        e, keys = run.experiment, self._keys
        record, attempts = keys.experiment(e.experiment_id), keys.attempts(e.experiment_id)
        reason, nth = ending.reason or "", e.attempt

        def note() -> None:
            kept = flatten({**ending.fields, "answer": _kept_answer(ending)})
            change.hset(attempts, {f"{nth}:{name}": it for name, it in kept.items()})
            change.hset(record, {"contended": "true", "avoided_gpu": e.gpu_id or "", "fence": 0})
            change.hdel(record, "gpu_id", "started_at")
            told = {"attempt": nth, "gpu_id": e.gpu_id, "reason": reason, **ending.fields}
            change.emit("experiment.contended", e.tag, e.experiment_id, told, e.traceparent)

        await self._requeue(change, run, reason, run.now, note, "contended")

    async def _requeue(
        self,
        change: Change,
        run: RunFacts,
        reason: str,
        used_until: float,
        first: Callable[[], None],
        ended_as: Literal["lost", "contended"] | None,
    ) -> None:
        """It waits again, in front of its priority: it had its turn.

        `ended_as`: the status of its attempt; None: that has not begun, and goes on. What was set aside for it stays
        so for its next attempt, but not what it has outlasted. What it used is spent.
        """
        e, keys = run.experiment, self._keys
        name, is_next = e.experiment_id, ended_as is not None
        attempt = e.attempt + is_next
        held, whole = milliseconds(e.reserved_gpu_seconds or 0.0), milliseconds(e.budget_s or 0.0)
        outlasted = max(held - whole, 0) if is_next and e.reserved_gpu_seconds and e.budget_s else 0
        started = (run.attempts or {}).get(f"{e.attempt}:started_at")
        spent = between(started, used_until) if is_next else 0
        booked = Books(reserved_ms=-outlasted, spent_ms=spent)
        warnings = await due(change, run.tag, booked)
        first()
        attempts: dict[str, Word] = {f"{e.attempt}:reason": reason, f"{attempt}:status": "queued"}
        if ended_as is not None:
            attempts |= {f"{e.attempt}:status": ended_as, f"{e.attempt}:ended_at": f"{used_until:.6f}"}
            attempts |= {f"{attempt}:queued_at": NOW}
        fields: dict[str, Word] = {"status": "queued", "queued_at": NOW, "attempt": attempt}
        if outlasted:
            fields["reserved_gpu_seconds"] = in_seconds(whole)
        change.apply(booked.shift(e.tag))
        for warning in warnings:
            warn(change, e.tag, *warning)
        change.hset(keys.attempts(name), attempts)
        change.hset(keys.experiment(name), fields)
        if e.retest_of is None:  # a retest waits for the class of GPU that it has to run on
            change.hdel(keys.experiment(name), "gpu_class")
        change.zrem(keys("starting"), name)
        relist(change, keys, e, e.status, "queued")
        aside = run.tag.holds_back(name)
        queue = keys.parked(e.tag, e.pinned_gpu) if aside else keys.queue(e.pinned_gpu)
        change.zadd(queue, {name: (7 - e.priority) * 10**15})
        told = {"experiment_id": name, "attempt": attempt, "reason": reason}
        change.emit("experiment.queued", e.tag, name, told, e.traceparent)

    async def keep_evidence(self, experiment_id: str, digest: str, result: Mapping[str, Any]) -> None:
        """Keep a late result, at most a hundred for each experiment."""
        key = self._keys("evidence", experiment_id)

        async def decide(change: Change) -> None:
            kept, count = await change.read(hmget(key, digest), size(key))
            if kept[digest] is None and count < EVIDENCE_KEPT:
                change.hset(key, {digest: json.dumps(dict(result), allow_nan=False)})

        await self._lab.change(decide)

    async def close_forgotten(self) -> dict[str, Status]:
        """End experiments as lost whose own agent has been silent too long; a late report still counts."""
        closed: dict[str, Status] = {}
        for e in await self.forgotten():
            reason = f"its agent was not heard of for {e.patience_s:g} s"
            if e.status == "registered" and await self.end(
                Ending(e, "lost", {"error": reason}, reason=reason)
            ):
                closed[e.experiment_id] = "lost"
        return closed


def is_as_read(ending: Ending, run: RunFacts) -> bool:
    """Whether a run has the status, attempt and fence that its end was decided on."""
    then, now = ending.experiment, run.experiment
    return (now.status, now.attempt, now.fence) == (then.status, then.attempt, then.fence)


def _has_another_base(trace: Trace, e: Experiment, choice: SelectionRecord, found: Experiment | None) -> bool:
    """Whether a node of the branch, or a run that may become one, has another base now than when it was chosen.

    The base fell, or another one rose. A merge uses the best base of several traces.
    """
    if found is None or found.experiment_id != choice.base_experiment_id:
        return True
    goes_on = choice.expected_tip == trace.tip or (e.committed and not e.forked)
    return goes_on and choice.kind != "merge" and trace.base != choice.base_experiment_id


def _spent(e: Experiment, ending: Ending, started: str | None, ended: float) -> Books:
    """Changes of its tag's budget at its end. The reserved amount is free again, and the used one is spent.

    What Nightjar trained is spent by Redis' clock, what an agent trained itself by its own report.
    """
    if e.attempt == 0:
        ran = is_spent(ending.status, ending.training_seconds)
        spent_ms = milliseconds(ending.training_seconds or 0.0) if ran else 0
    else:
        ran = started is not None or e.attempt > 1
        spent_ms = between(started, ended)
    held = e.reserved_gpu_seconds
    return Books(
        reserved_ms=-milliseconds(held or 0.0),
        reserved_runs=0 if held is None else -1,
        spent_ms=spent_ms,
        spent_runs=int(ran),
    )


def _kept_answer(ending: Ending) -> dict[str, Any] | None:
    """The answer as it is kept for a repetition of the report."""
    if ending.report is None or ending.answer is None:
        return None
    return {**ending.report, "answer": ending.answer.model_dump(exclude_defaults=True)}


def _event(e: Experiment, status: Status) -> str:
    if e.retest_of is not None:
        return "experiment.retested"
    if e.is_claim:
        return "experiment.promoted" if status == "keep" else "experiment.refuted"
    return "experiment.lost" if status == "lost" else "experiment.finished"


def _told(now: Experiment, reason: str | None) -> dict[str, Any]:
    """Data of the event of an end: its verdict, and `reason`, why it ended without one."""
    known = vars(now) | {
        "reason": reason or now.reason,
        "claimed": now.is_claim,
        "attempt": now.attempt or None,
    }
    return {name: it for name in TOLD if (it := known[name]) is not None and it is not False}


def _selection_after(ending: Ending, around: Mapping[str, Any]) -> SelectionStatus | None:
    """Status of the selection that ends with its experiment; None without an open selection."""
    if ending.experiment.selection_id is None or around["selection"]["status"] != "open":
        return None
    if ending.growth is not None:
        return "committed"
    return "expired" if ending.status == "lost" else "released"
