"""Experiments, ended: the facts of a run, the one way into a final status, and what retests change afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar
from weakref import WeakValueDictionary

from state.budgets import WARN_AT, is_spent
from state.change import Change, hmget, size
from state.client import Lab, time_of
from state.codes import noise_entry
from state.decisions import BrokenLease, Ended, Ending, Requeued, SameAttempt
from state.experiments.ranking import amounts, counted, counting, ends_at, trends_at
from state.experiments.reading import ExperimentReader, experiment_in
from state.experiments.walking import base_above, base_found
from state.experiments.writing import best_event, best_fields
from state.facts import Comparison, RunFacts, Spread
from state.ids import named_by
from state.keys import Keys
from state.moves import Arg
from state.noise import class_id, noise_args, noise_key, runs_at
from state.policy import read_policy
from state.records import (
    Best,
    Experiment,
    Gpu,
    SelectionRecord,
    SelectionStatus,
    Status,
    Tag,
    Trace,
    flatten,
    words,
)

EVIDENCE_KEPT = 100
COUNTERS: Mapping[Status, str] = {
    "keep": "kept",
    "discard": "discarded",
    "crash": "crashed",
    "timeout": "crashed",
    "stopped": "stopped",
    "lost": "lost",
    "invalid": "invalid",
}
"""The tag's counter of each final status."""
JUDGED: frozenset[Status] = frozenset({"keep", "discard", "crash", "timeout"})
"""Statuses that enter the finish order and the tag's total."""

_JSON = json.JSONEncoder(allow_nan=False)

T = TypeVar("T")
MoveKeys = dict[str, str | Sequence[str] | None]
MoveArgs = dict[str, Arg | Sequence[Arg] | None]


class EndingStore(ExperimentReader):
    """Part of `Experiments`."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab)
        self._retrying = WeakValueDictionary[str, asyncio.Lock]()

    async def in_turn(self, experiment_id: str, judged: Callable[[], Awaitable[T | None]]) -> T:
        """Read, judge and end a run, as `judged` does; again where it answers None: what it used has changed.

        Of runs of a tag that end at once in this process, those that have to be judged again are judged one after the
        other. So n runs of the same code take some 2 n judgements, not n * n / 2.
        """
        if (answer := await judged()) is not None:
            return answer
        _, tag = named_by(experiment_id)
        async with self._retrying.setdefault(tag, asyncio.Lock()):
            while (answer := await judged()) is None:
                pass
        return answer

    async def run_facts(self, experiment_id: str, attempt: int | None = None) -> RunFacts:
        """Facts to judge a report about this experiment or about one attempt; one round trip.

        Raises:
            NotFound: no such experiment.
        """
        keys, (first, tag) = self._keys, named_by(experiment_id)
        found = await self._lab.read(
            {
                "experiment": ("HGETALL", keys.experiment(experiment_id)),
                "first": ("HGETALL", keys.experiment(first)) if first != experiment_id else None,
                "tag": ("HGETALL", keys.tag(tag)),
                "policy": ("HMGET", keys("policy", tag), "values", "version"),
                "crashes": ("HGET", keys("crashes", tag), "consecutive"),
                "best": ("HGETALL", keys.best(tag)),
                "epoch": ("HGET", keys("forest", tag), "epoch"),
                "now": ("TIME",),
                "gpu_id": ("HGET", keys.attempts(experiment_id), f"{attempt}:gpu_id") if attempt else None,
            }
        )
        stored, (values, version) = found["experiment"], found["policy"]
        e = experiment_in(stored, experiment_id)
        return RunFacts(
            now=time_of(found["now"]),
            experiment=e,
            gpu_id=found["gpu_id"] or e.gpu_id,
            first=Experiment.found(found["first"]),
            answer=json.loads(stored["answer"]) if stored.get("answer") else None,
            tag=Tag.parse(found["tag"]),
            policy=read_policy(values),
            policy_version=int(version),
            crashes_in_a_row=int(found["crashes"] or 0),
            best=Best.found(found["best"]),
            epoch=int(found["epoch"] or 1),
        )

    async def comparison(
        self,
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
        counts = _counts_of_ends(keys, e, value)
        found = await self._lab.read(
            {
                "noise": (
                    *("HMGET", noise, "squares", "df"),
                    *(code, best_code or code, noise_entry(code, e.worker_id)),
                ),
                "gpu": ("HGETALL", keys.gpu(run.gpu_id)) if run.gpu_id else None,
                "best": ("HGETALL", keys.best(e.tag, other_key)) if other_key else None,
                "base": base_above(self._lab, keys.experiment(base_id)) if base_id else None,
                "reference": ("HMGET", keys("reference_times", e.tag), *e.time_classes),
                **{name: ("HGETALL", keys.trace(name)) for name in names},
                **counts,
            }
        )
        best = run.best if other_key is None else Best.found(found["best"])
        squares, df, own, bests, workers = found["noise"]
        of_baseline, of_first = found["reference"]
        if best is not None and best.code not in (code, best_code):
            bests = await self._lab.command("HGET", noise, best.code or "")
        traces = {name: Trace.parse(found[name]) for name in names if found[name]}
        trace = traces.pop(choice.trace_id, None) if choice else None
        stands_on = begins_on = await base_found(self._lab, found["base"]) if base_id else None
        if choice and trace and trace.base and _has_another_base(trace, e, choice, begins_on):
            stands_on = await self.base_above([trace.base])
        runs = (own or "", (bests or "") if best else "", workers or "")
        return Comparison(
            gpu=Gpu.found(found["gpu"]),
            best=best,
            noise_key=noise,
            noise=Spread(float(squares or 0), int(df or 0), runs),
            trace=trace,
            sources=tuple(traces.values()),
            base=stands_on,
            ends=counted([found[name] for name in counts], value) if counts and value is not None else None,
            begins_on=begins_on,
            references=(of_baseline or "", of_first or ""),
        )

    async def end(self, ending: Ending) -> bool:
        """Commit a final status; False where what the decision used has changed: read and decide again."""
        keys, args = self._ending(ending)
        return bool(await self._lab.move("end_experiment", keys=keys, args=args) == "ok")

    async def break_lease(self, broken: BrokenLease, *, stale_s: float) -> Status | Literal[""] | None:
        """End the lease of a holder that is gone; answers the experiment's new status ("" where it needed none).

        None where the lease was renewed, or what the decision used has changed: read and decide again. A GPU is
        silent after `stale_s` seconds without a heartbeat.
        """
        gpu, e, then = broken.gpu, broken.experiment, broken.then
        became: Status | Literal[""] = ""
        match then:
            case Ended():
                became = then.status
                keys, args = self._ending(Ending(e, became, {"error": broken.reason}, reason=broken.reason))
            case SameAttempt() | Requeued():
                became = "queued"
                keys, args = self._concerned(e, became)
                attempt = e.attempt + isinstance(then, Requeued)
                data = {"experiment_id": e.experiment_id, "attempt": attempt, "reason": broken.reason}
                args |= {
                    "next_attempt": attempt,
                    # a retest waits for the class of GPU that it has to run on
                    "forget_class": 1 if e.retest_of is None else None,
                    "event": "experiment.queued",
                    "event_data": json.dumps(data),
                }
            case None:
                keys, args = self._concerned(e, e.status)
        keys |= {"gpu": self._keys.gpu(gpu.gpu_id), "leases": self._keys("leases")}
        args |= {
            "gpu_id": gpu.gpu_id,
            "gpu_fence": gpu.fence,
            "why": broken.why,
            "reason": broken.reason,
            "stale_s": stale_s,
            "flags": words(flatten(broken.flags)),
            "cleared": list(broken.cleared),
            "stopping": "true" if e.stopping else "false",
        }
        answer = await self._lab.move("break_lease", keys=keys, args=args)
        return became if answer == "ok" else None

    def _concerned(self, e: Experiment, after: Status) -> tuple[MoveKeys, MoveArgs]:
        """The keys and guards of everything that an experiment's change of status may touch."""
        keys = self._keys
        return {
            "experiment": keys.experiment(e.experiment_id),
            "attempts": keys.attempts(e.experiment_id),
            "queue": keys.queue(e.pinned_gpu),
            "parked": keys.parked(e.tag, e.pinned_gpu),
            "trace": keys.trace(e.trace_id) if e.trace_id else None,
            "selection": keys.selection(e.selection_id) if e.selection_id else None,
            "gpu": keys.gpu(e.gpu_id) if e.gpu_id else None,
            **_of_swarm(keys, e),
            **keys.relisted(e, e.status, after),
        }, {
            "worker_id": e.worker_id,
            "fingerprint": e.fingerprint,
            "id": e.experiment_id,
            "number": e.number,
            "tag": e.tag,
            "category": e.category,
            "status_before": e.status,
            "attempt": e.attempt,
            "fence": e.fence,
            "experiment_traceparent": e.traceparent,
            "warn_at": WARN_AT,
        }

    def _ending(self, ending: Ending) -> tuple[MoveKeys, MoveArgs]:
        """The keys and values of a move that ends an experiment."""
        e, status = ending.experiment, ending.status
        keys, args = self._concerned(e, status)
        answer = {**ending.report, "answer": ending.answer} if ending.report else None
        is_retest = e.retest_of is not None
        counts = status in JUDGED and not is_retest and not ending.is_claim
        is_baseline = e.baseline and status == "keep"
        best, key, growth = ending.best, ending.key, ending.growth
        args |= {
            "status": status,
            "fields": words(flatten({**ending.fields, "answer": answer})),
            "event": _event(e, status),
            "event_data": _told(ending),
            "ending": _selection_after(ending),
            "reason": ending.reason,
            "counter": None if is_retest else _counter(ending),
            "is_baseline": 1 if is_baseline else None,
            "counter_before": None if is_retest else _counter_before(e),
            "was_claim": 1 if e.is_claim else None,
            "counts": 1 if counts else None,
            "follows": 1 if counts and _may_be_followed(ending) else None,
            "reported_s": (ending.training_seconds or 0.0)
            if is_spent(status, ending.training_seconds)
            else None,
            "training_seconds": ending.training_seconds,
            "near_miss_score": ending.near_miss_score,
            "led_by": None if is_retest else ending.led_by,
            "returned": ending.returned,
            "only_overdue": 1 if ending.only_overdue else None,
        }
        if best is not None:
            keys["best"] = self._keys.best(e.tag, best.other_key)
            args["best_version"] = best.version
            if best.after is not None:
                args["best_fields"] = words(best_fields(best.after))
                is_new = best.after.experiment_id == e.experiment_id
                args["best_event"] = _JSON.encode(best_event(best.after, best.other_key)) if is_new else None
        if key is not None:
            learned = dict(key.learned)
            if (gpu_class := key.learned.get("key_gpu_class")) is not None:
                learned["key_noise"] = class_id(str(gpu_class))
            args |= {"key_version": key.version, "key_fields": words(flatten(learned))}
        if ending.crashes is not None and not is_retest:
            args |= vars(ending.crashes)
        if ending.gpu is not None and e.gpu_id is not None and e.attempt > 0:
            args |= {"gpu_id": e.gpu_id, **vars(ending.gpu)}
        if ending.score is not None:
            other_key = best.other_key if best else None
            improved = ending.fields.get("improved")
            keys["standing"] = self._keys.standing(e.tag, other_key, status, improved=improved)
            args["score"] = ending.score
        if ending.reference is not None:
            args |= vars(ending.reference)
        if ending.repeat is not None and ending.noise_key is not None:
            keys["noise"] = ending.noise_key
            keys["same_code"] = runs_at(ending.noise_key, ending.repeat.code)
            args |= noise_args(ending.repeat)
        if ending.learnt is not None:
            keys |= of_ends(self._keys, e)
            args |= {"end_value": ending.learnt.value, "trend_sums": amounts(ending.learnt.trends)}
        if growth is not None:
            keys["sources"] = [self._keys.trace(source.trace_id) for source in growth.ends]
            keys["begins_on"] = self._keys.experiment(growth.begins_on) if growth.begins_on else None
            args |= {
                "trace_fields": words(flatten(growth.fields)),
                "trace_version": growth.trace.version,
                "epoch": growth.epoch,
                "trace_becomes": growth.status,
                "trace_why": growth.why,
                "source_versions": [source.version for source in growth.ends],
            }
        return keys, args

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


def _has_another_base(trace: Trace, e: Experiment, choice: SelectionRecord, found: Experiment | None) -> bool:
    """Whether a node of the branch, or a run that may become one, has another base now than when it was chosen.

    The base fell, or another one rose. A merge uses the best base of several traces.
    """
    if found is None or found.experiment_id != choice.base_experiment_id:
        return True
    goes_on = choice.expected_tip == trace.tip or (e.committed and not e.forked)
    return goes_on and choice.kind != "merge" and trace.base != choice.base_experiment_id


def _counts_of_ends(keys: Keys, e: Experiment, value: float | None) -> dict[str, tuple[str, ...]]:
    """Commands that rank a run's value among the final values of others. Empty if it was not ranked."""
    if value is None or e.rank_class is None:
        return {}
    commands = counting(ends_at(keys, e.tag, e.rank_class), e.experiment_id, value)
    return {f"ends {n}": command for n, command in enumerate(commands)}


def of_ends(keys: Keys, e: Experiment) -> MoveKeys:
    """Keys of the final values and of the trends that a ranked run enters."""
    where = e.rank_class or ""
    return {"ends": ends_at(keys, e.tag, where), "trends": trends_at(keys, e.tag, where)}


def _of_swarm(keys: Keys, e: Experiment) -> MoveKeys:
    """Keys of a swarm that the end of its run changes; empty for other runs."""
    if e.worker_id is None or e.population_id is None:
        return {}
    return {
        "swarm_worker": keys("swarm_workers", e.worker_id),
        "worker_runs": keys("worker_runs", e.worker_id),
        "leaders": keys("leaders", e.tag),
        "configs": keys("configs", e.tag),
        "proposals": keys("proposals", e.tag, e.population_id),
    }


def _counter(ending: Ending) -> str:
    if ending.experiment.baseline and ending.status == "keep":
        return "baselines"
    return "claimed" if ending.is_claim else COUNTERS[ending.status]


def _counter_before(e: Experiment) -> str | None:
    """The counter that an experiment leaves: it was lost, or a claim."""
    return "claimed" if e.is_claim else "lost" if e.status == "lost" else None


def _event(e: Experiment, status: Status) -> str:
    if e.retest_of is not None:
        return "experiment.retested"
    if e.is_claim:
        return "experiment.promoted" if status == "keep" else "experiment.refuted"
    return "experiment.lost" if status == "lost" else "experiment.finished"


def _told(ending: Ending) -> str:
    """Data of the event of an end."""
    e, fields = ending.experiment, ending.fields
    data = {
        "experiment_id": e.experiment_id,
        "number": e.number,
        "status": ending.status,
        "category": e.category,
        "val_bpb": fields.get("val_bpb"),
        "delta": fields.get("delta"),
        "p_better": fields.get("p_better"),
        "description": e.description,
        "agent": e.agent,
        "attempt": e.attempt or None,
        "gpu_id": e.gpu_id,
        "error_kind": fields.get("error_kind"),
        "reason": ending.reason,
        "retest_of": e.retest_of,
        "trust": fields.get("trust"),
        "over_budget": fields.get("over_budget") or None,
        "hung": fields.get("hung"),
        "claimed": True if ending.is_claim else None,
        "reported": fields.get("reported"),
        "base_commit_sha": fields.get("base_commit_sha") if e.is_claim else None,
    }
    return _JSON.encode({name: value for name, value in data.items() if value is not None})


def _may_be_followed(ending: Ending) -> bool:
    """Nothing is made from a fault of the infrastructure, or from what came in after its epoch."""
    return not ending.fields.get("outdated") and ending.fields.get("error_kind") != "infra"


def _selection_after(ending: Ending) -> SelectionStatus | None:
    """Status of the selection that ends with its experiment; None without a selection."""
    if ending.experiment.selection_id is None:
        return None
    if ending.growth is not None:
        return "committed"
    return "expired" if ending.status == "lost" else "released"
