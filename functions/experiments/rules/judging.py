"""The verdict on a finished run: status, noise, trust, branch, near miss and best, in one `Ending`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from functions.branches.rules.forest import grown
from functions.experiments.rules.keeping import (
    KEEP_RULES,
    SURE_SIGMAS,
    SeedScores,
    is_hopeless,
    new_best,
    plausible_margin,
)
from functions.experiments.rules.opening import is_base_code
from functions.experiments.rules.verdict import (
    NOT_COMPARED,
    Key,
    compare,
    contradiction,
    judge,
    key_of,
    main_key,
    should_abort,
)
from functions.fold import ClassNoise, largest_gain, measure
from functions.pool.rules.leases import Breaker, is_probe
from functions.runs.rules.stopping import learnt
from functions.trust.rules.guarding import HINT as GUARD_HINT
from functions.trust.rules.guarding import broken_guard
from functions.trust.rules.noise import Mean, Repeats, cautious, near_margin, p_better, parsed, written
from functions.trust.rules.overruns import HINT, is_timed, overrun, reference_after
from functions.trust.rules.retests import next_seed, own_noise
from state.decisions import Ending, GpuCrashes, Repeat
from state.facts import NOTHING, Comparison, Noise, RunFacts
from state.noise import code_of, noise_entry
from state.policy import NO_GUARDS
from state.records import (
    RETESTED,
    Best,
    Experiment,
    Gpu,
    RunVerdict,
    Score,
    Status,
    Tag,
    TimeSpent,
    Trust,
    score,
)


class ResultReport(NamedTuple):
    value: float
    """The tag's metric."""
    key: Key
    """Conditions that the report names."""
    digest: str
    """Digest of the report; a repeated report has the same."""
    measured: Mapping[str, Any] = NOTHING
    """Further measurements, as fields of the experiment."""
    training_seconds: float | None = None
    time: TimeSpent | None = None
    """Training time, as its worker measured it."""
    score: Score = "reported"
    reported: float | None = None
    """Value printed by train.py if `value` is trusted."""


@dataclass(frozen=True)
class FailureReport:
    kind: str
    error: str
    digest: str
    training_seconds: float | None = None


class RunConditions(NamedTuple):
    """Conditions under which a run is compared."""

    key: Key
    """As reported. Missing parts come from the run and from the tag's main key."""
    other_key: str | None
    """Comparability key of the run; None: the tag's main key."""
    agrees: bool
    """Whether the key agrees with the main key; for a retest, with its first run's key."""
    same_evaluator: bool
    code: str
    """Id of the run's code among the repeats that measure noise."""


_FAILED: Mapping[str, Literal["crash", "timeout", "invalid", "discard"]] = {
    "timeout": "timeout",
    "evaluator": "invalid",
    "leak": "invalid",
    "guard": "discard",
}
"""Final status by kind of failure; all other kinds are a crash."""
MEASURES = frozenset(
    {
        *("peak_vram_mb", "training_seconds", "total_tokens_m", "mfu_percent"),
        *("num_steps", "num_params_m", "depth", "metrics"),
    }
)
"""Measurements beside the metric that an experiment keeps."""
_OF_THE_CODE = frozenset({"patch", "constant", "evaluator", "leak", "guard"})
"""Kinds of failure that do not count against the GPU."""


VERDICT = tuple(RunVerdict.model_fields)
_verdict_of = attrgetter(*VERDICT)


class QueuedRetest(BaseModel):
    retest_id: str
    seed: int


class AnsweredRun(BaseModel):
    """The run that an answer is about."""

    experiment_id: str
    status: Status
    val_bpb: float


class Completed(RunVerdict, AnsweredRun):
    """The answer to a reported result."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    # narrower than stored, which is safe: answers are frozen
    improved: bool  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]
    delta: float  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]
    near_miss: bool  # pyright: ignore[reportGeneralTypeIssues, reportIncompatibleVariableOverride]
    best_val_bpb: float | None
    action: Literal["keep_commit", "git_reset"]
    """What to do with the commit: keep_commit, or git_reset to `base_commit_sha`."""
    retest: QueuedRetest | None = None
    """The second run, which confirms or demotes a provisional keep."""
    hint: str | None = None
    """The remedy."""
    claimed: bool = False
    """Its agent measured it, in a tag that the lab measures. `retest` names the lab's run of its code, by which it
    is judged. No retest: even if the claim were true, it would not be kept."""
    score: Score = "reported"
    """Source of `val_bpb`: printed by the code that was scored, or measured by the tag's trusted evaluator."""
    reported: float | None = None
    """The value that train.py printed, where `val_bpb` is trusted."""
    replayed: bool = False
    """Whether this very report was answered before: then this is the first answer once more."""

    def kept(self) -> dict[str, Any]:
        """The fields that the experiment keeps. Retests change some of them (`ruling.py`)."""
        return dict(zip(VERDICT, _verdict_of(self), strict=True))


class CrashAnswer(BaseModel):
    """The answer to a report of a crash."""

    experiment_id: str
    status: Literal["crash", "timeout", "invalid", "discard"]
    """`discard`: it did not pass the command of the tag's guards."""
    consecutive_crashes: int
    should_abort: bool
    """So many crashes in a row that something is broken for all runs: find the cause before the next run. With the
    policy's `on_abort: block` register and submit are refused until then, except for the best unchanged."""
    action: Literal["git_reset"]
    """What to do with the commit: git_reset to `base_commit_sha`."""
    base_commit_sha: str | None
    guard: str | None = None
    """The guard that it broke, with the reason."""
    reason: str | None = None


class Weighed(NamedTuple):
    """A value together with the noise of its tag and GPU class."""

    runs: Repeats
    """All runs of its code, this one included."""
    repeat: Repeat
    noise: Noise | None
    p_better: float | None

    @property
    def value(self) -> float:
        """The mean of all runs of the code, by which it is judged."""
        return self.runs.mean


def conditions_of(key: Key, run: RunFacts) -> RunConditions:
    """Conditions under which a run that reports `key` is compared.

    A retest is evidence only under the conditions of its first run. The first retest of a claim sets the conditions.
    """
    e, main = run.experiment, main_key(run.tag)
    own_s = e.budget_s if e.attempt > 0 else None  # an agent that trains itself says for how long
    said = Key(key.gpu_class or e.gpu_class, key.evaluator_hash, key.budget_seconds or own_s)
    if run.first is not None and not run.first.is_claim:
        first = run.first
        whole, agrees = compare(key_of(first), said)
        return RunConditions(whole, first.best_key, agrees, agrees, code_of(first, first.best_key))
    whole, agrees = compare(main, said)
    other_key = None if agrees else contradiction(main, said).text
    same = main.evaluator_hash in (None, whole.evaluator_hash)
    if run.first is not None and same:  # what a claim's first run is judged under, it is measured under
        return RunConditions(whole, other_key, True, same, code_of(e, other_key))
    return RunConditions(whole, other_key, agrees, same, code_of(e, other_key))


def judge_run(report: ResultReport, run: RunFacts, under: RunConditions, beside: Comparison) -> Ending:
    """The verdict on a result, and every change that follows from it."""
    if run.first is not None:
        return _measured_again(report, run, under, beside)
    if not under.same_evaluator:
        return _invalid(report, run, under)
    if (why := _overrun(report, run, beside)) is not None:
        return _uncounted({"over_budget": True, "reason": why, "hint": HINT}, report, run, under, beside)
    if vars(run.policy.guards) != vars(NO_GUARDS) and (
        broken := broken_guard(report.value, report.measured, run, beside)
    ):
        return _uncounted({**vars(broken), "hint": GUARD_HINT}, report, run, under, beside)
    e, tag, policy, best = run.experiment, run.tag, run.policy, beside.best
    weighed = _weigh(report, run, under, beside)
    # a baseline is judged by itself: its repeats may end before it does, and others may have reported its code
    value = report.value if e.baseline else weighed.value
    points = score(value, tag.direction)
    standing = {best.code, *(link.code for link in best.chain)} if best and not e.baseline else set()
    repeats_best = under.code in standing
    margin = near_margin(policy, weighed.noise)
    baseline = 0.0 if policy.compare_by == "delta" else None  # of its worker: values are differences from it
    verdict = judge(value, best.val_bpb if best else baseline, tag.direction, margin)
    if repeats_best:  # one more run of the same code is no progress
        verdict = replace(NOT_COMPARED, delta=verdict.delta)
    refused = beside.hidden.best if verdict.improved else None
    if refused is not None:
        verdict = replace(NOT_COMPARED, delta=verdict.delta)
    is_worse = best is None and not verdict.improved  # than a swarm's baseline
    trust = None if repeats_best or is_worse or refused else _trust(value, run, beside, weighed.noise)
    runs_again = trust == "provisional" and not (best is not None and is_hopeless(points, best.seeds.bar))
    base = branch_base(run, under.key, beside)
    beats_base = None if base is None else base.is_beaten(value, under.code, tag)
    if repeats_best or (base is not None and base.experiment is None and _is_base_code(e, tag)):
        beats_base = None if beats_base is None else False
    if beats_base and beside.hidden.base is not None:
        refused, beats_base = beside.hidden.base, False
    kept = verdict.improved or bool(beats_base) or e.baseline
    moves_on = kept and under.other_key is None and (verdict.improved or not e.baseline)
    before = reset_to(run, base)
    answer = Completed(
        experiment_id=e.experiment_id,
        status="keep" if kept else "discard",
        val_bpb=report.value,
        **vars(verdict),
        best_val_bpb=value if verdict.improved else best.val_bpb if best else None,
        action="keep_commit" if moves_on else "git_reset",
        base_commit_sha=e.commit_sha if moves_on else before,
        p_better=weighed.p_better,
        trust=trust,
        retest=QueuedRetest(retest_id=f"{e.experiment_id}.{e.retests + 2}", seed=next_seed(e.seed, ()))
        if runs_again
        else None,
        branch_improved=beats_base,
        judged_val_bpb=value if value != report.value else None,
        compared_with=best.experiment_id if best else None,
        repeats_best=repeats_best,
        reason=refused or _reason(run, under, best, weighed.runs),
        hidden_refused=refused is not None and not kept,
        score=report.score,
        reported=report.reported,
    )
    builds_on = under.agrees and (base is None or bool(beats_base))
    growth, committed = grown(run, beside, answer.status, value, builds_on)
    after = (
        None if repeats_best or is_worse or refused else new_best(e, value, best, tag.direction, under.code)
    )
    verdict_on = {**answer.kept(), "best_key": under.other_key}
    gain = tag.largest_gain
    if kept:
        judged = e.model_copy(update={**verdict_on, "status": answer.status})
        gain = largest_gain(gain, tag.kept, judged)
    told = learnt(e, report.value, beside.ends, tag.direction) if beside.ends else None
    return Ending(
        e,
        answer.status,
        {
            **_measured(report, under.key, run),
            **verdict_on,
            "keep_rule": e.judged_by,
            **committed,
        }
        | ({"end_place": told.place, "places": e.places} if told else {}),
        answer=answer,
        report=_reported("complete", report.digest),
        best=after,
        other_key=under.other_key,
        crashes=0,
        lifts_abort=lifts_abort(run),
        gpu=GpuCrashes(0),
        learned=_lab_learned(run, under) | (_learned(run, under.key, value, gain) if under.agrees else {}),
        training_seconds=report.training_seconds,
        references=_references(report, run, beside),
        repeat=weighed.repeat,
        learnt=told,
        growth=growth,
    )


def _overrun(report: ResultReport, run: RunFacts, beside: Comparison) -> str | None:
    """Why a run is over its budget; None: it is not, or there is no reference time."""
    e, time = run.experiment, report.time
    reference = beside.reference_time if time is not None else None
    if reference is None or time is None or not is_timed(e) or reference.experiment_id == e.experiment_id:
        return None
    if e.baseline and run.first is None:
        return None
    return overrun(e, time, reference, run.policy.budgets.overrun)


def _references(report: ResultReport, run: RunFacts, beside: Comparison) -> dict[str, str]:
    """Reference time for later runs of its kind, by its class."""
    e = run.experiment
    if report.time is None or (after := reference_after(e, report.time, beside.reference_time)) is None:
        return {}
    of_baseline, of_first, _ = e.time_classes
    return {of_baseline if after.baseline else of_first: after.model_dump_json()}


def _uncounted(
    told: Mapping[str, Any], report: ResultReport, run: RunFacts, under: RunConditions, beside: Comparison
) -> Ending:
    """A discard over its budget, or for a broken guard; its value is compared with nothing."""
    e, base = run.experiment, branch_base(run, under.key, beside)
    answer = not_kept(report, run, beside.best, "discard", base)
    answer = answer.model_copy(update=told)
    growth, committed = grown(run, beside, "discard", None, builds_on=False)
    return Ending(
        e,
        "discard",
        {**_measured(report, under.key, run), **answer.kept(), **committed},
        answer=answer,
        report=_reported("complete", report.digest),
        crashes=0,
        lifts_abort=lifts_abort(run),
        gpu=GpuCrashes(0),
        training_seconds=report.training_seconds,
        growth=growth,
    )


def judge_failure(failure: FailureReport, run: RunFacts, beside: Comparison, breaker: Breaker) -> Ending:
    """The ending of a run without a result.

    A fault of the infrastructure counts against the GPU, never against the tag, and is no node of a trace. A changed
    evaluator or a patch that does not apply does not count against the GPU. A changed evaluator is no node either.
    """
    e, tag = run.experiment, run.tag
    status = _FAILED.get(failure.kind, "crash")
    if status == "discard" and (run.first is not None or e.baseline):
        status = "invalid" if run.first is not None else "crash"  # only ideas are discarded
    is_node = failure.kind != "infra" and status != "invalid"
    counts = is_node and run.first is None and status != "discard"
    broken = {"guard": "check", "reason": failure.error.partition("\n")[0]} if status == "discard" else {}
    base = branch_base(run, main_key(tag), beside)
    in_a_row = run.crashes_in_a_row + counts
    answer = CrashAnswer(
        experiment_id=e.experiment_id,
        status=status,
        consecutive_crashes=in_a_row,
        should_abort=should_abort(in_a_row, run.policy.crash_limit),
        action="git_reset",
        base_commit_sha=reset_to(run, base),
        **broken,
    )
    growth, committed = grown(run, beside, status, None, builds_on=False) if is_node else (None, {})
    fields = {
        "error": failure.error,
        "error_kind": failure.kind,
        "training_seconds": failure.training_seconds,
        "base_commit_sha": answer.base_commit_sha,
        "policy_version": run.policy_version,
    }
    return Ending(
        e,
        status,
        fields | committed | broken,
        answer=answer,
        report=_reported("crash", failure.digest),
        crashes=in_a_row if counts else None,
        gpu=None if failure.kind in _OF_THE_CODE else _gpu_crashes(run, beside.gpu, breaker),
        training_seconds=failure.training_seconds,
        growth=growth,
    )


def _gpu_crashes(run: RunFacts, gpu: Gpu | None, breaker: Breaker) -> GpuCrashes | None:
    """One more crash on this GPU."""
    if gpu is None:
        return None
    return breaker.after_crash(gpu, is_probe=is_probe(run.first))


@dataclass(frozen=True)
class BranchBase:
    """The best keep of a branch. `experiment` is None while the branch has kept nothing."""

    experiment: Experiment | None
    value: float | None
    """Its value; without an experiment, the value of the tag's base commit, if that has run."""
    commit_sha: str | None
    is_comparable: bool
    """Whether the base ran on the same hardware and budget as the run."""

    def is_beaten(self, value: float, code: str, tag: Tag) -> bool | None:
        """Whether this value is kept on the branch; None: it cannot be compared. A base without a value is beaten."""
        if not self.is_comparable:
            return None
        if self.experiment and code_of(self.experiment, self.experiment.best_key) == code:
            return False
        return judge(value, self.value, tag.direction, 0.0).improved


def branch_base(run: RunFacts, key: Key, beside: Comparison) -> BranchBase | None:
    """The branch base that a run is compared with; None in single mode, for a retest and without a trace."""
    if run.policy.traces.mode == "single" or run.experiment.selection is None or run.first is not None:
        return None
    base = beside.base
    theirs, value, commit_sha = main_key(run.tag), run.tag.baseline_val_bpb, run.tag.base_commit
    if base is not None:
        theirs, value, commit_sha = key_of(base), base.judged, base.commit_sha
    return BranchBase(base, value, commit_sha, is_comparable=compare(theirs, key)[1])


def reset_to(run: RunFacts, base: BranchBase | None = None) -> str | None:
    """Commit to reset to: the branch base's, else the best's, else the tag's base."""
    if base is not None:
        return base.commit_sha
    return run.best.commit_sha if run.best else run.tag.base_commit


def not_kept(
    report: ResultReport, run: RunFacts, best: Best | None, status: Status, base: BranchBase | None = None
) -> Completed:
    """The answer for a result that is not compared with the best."""
    return Completed(
        experiment_id=run.experiment.experiment_id,
        status=status,
        val_bpb=report.value,
        **vars(NOT_COMPARED),
        best_val_bpb=best.val_bpb if best else None,
        action="git_reset",
        base_commit_sha=reset_to(run, base),
        score=report.score,
        reported=report.reported,
    )


def _invalid(report: ResultReport, run: RunFacts, under: RunConditions) -> Ending:
    """The ending of a result that another evaluator than the tag's measured."""
    answer = not_kept(report, run, run.best, "invalid")
    return Ending(
        run.experiment,
        "invalid",
        {**_measured(report, under.key, run), **answer.kept()},
        answer=answer,
        report=_reported("complete", report.digest),
        crashes=0,
        lifts_abort=lifts_abort(run),
        gpu=GpuCrashes(0),
        training_seconds=report.training_seconds,
    )


def _measured_again(report: ResultReport, run: RunFacts, under: RunConditions, beside: Comparison) -> Ending:
    """The ending of a retest. Its value is evidence for the first run; the retest itself is not judged.

    It is no evidence under other conditions, over its budget, or once its experiment was retracted. For a claim it
    becomes the claim's own value (`claiming.py`).
    """
    e, best = run.experiment, beside.best
    first = run.first
    why = _overrun(report, run, beside)
    is_evidence = under.agrees and why is None
    counts = is_evidence and first is not None and first.status != "retracted" and not first.is_claim
    weighed = _weigh(report, run, under, beside) if counts else None
    answer = not_kept(report, run, best, RETESTED if is_evidence else "invalid").model_copy(
        update={
            "delta": judge(report.value, best.val_bpb if best else None, run.tag.direction, 0.0).delta,
            "base_commit_sha": best.commit_sha if best else run.tag.base_commit,
            "p_better": weighed.p_better if weighed else None,
            "over_budget": why is not None,
            "reason": why,
            "hint": HINT if why else None,
        }
    )
    kept = ("delta", "base_commit_sha", "over_budget", "reason")
    told = {name: getattr(answer, name) for name in kept}
    return Ending(
        e,
        answer.status,
        {**_measured(report, under.key, run), **told},
        answer=answer,
        report=_reported("complete", report.digest),
        gpu=GpuCrashes(0),
        training_seconds=report.training_seconds,
        references={} if why else _references(report, run, beside),
        repeat=weighed.repeat if weighed else None,
    )


def _weigh(report: ResultReport, run: RunFacts, under: RunConditions, beside: Comparison) -> Weighed:
    """What a result adds to the noise of its tag and GPU class, and its probability to beat the best."""
    value, steps = report.value, None
    if report.measured.get("num_steps"):
        steps = run.experiment.model_copy(update=_measured(report, under.key, run)).steps_per_s
    of_code, bests, of_worker = beside.noise.runs
    worker_id, known = run.experiment.worker_id, beside.noise
    before = {noise_entry(under.code, worker_id): of_worker, under.code: of_code}
    after = ClassNoise(known, {name: found for name, text in before.items() if (found := parsed(text))})
    learned = measure(after, under.code, worker_id, value, steps)
    entries = {name: written(after.runs[name]) for name in before}
    runs, noise = after.runs[under.code], after.sums.noise
    repeat = Repeat(under.code, entries, learned)
    if beside.best is None or noise is None:
        return Weighed(runs, repeat, noise, None)
    theirs = runs if beside.best.code == under.code else parsed(bests)
    incumbent = mean_of(theirs) or Mean(beside.best.val_bpb)
    chance = p_better(Mean(runs.mean, runs.runs), incumbent, noise, run.tag.direction)
    return Weighed(runs, repeat, noise, chance)


def _reason(run: RunFacts, under: RunConditions, best: Best | None, runs: Repeats) -> str | None:
    """Why the value was not simply compared with the tag's best; None: it was."""
    if under.other_key is not None:
        other = contradiction(main_key(run.tag), under.key)
        differs = {
            "GPU class": other.gpu_class,
            "evaluator": other.evaluator_hash,
            "budget": other.budget_seconds,
        }
        what = " and ".join(f"{name} ({is_now})" for name, is_now in differs.items() if is_now is not None)
        beside = (
            f"with {best.experiment_id}, the best there" if best else "with nothing: it is the first there"
        )
        return f"another {what} than the tag's best: it is compared {beside}; the tag's best stays what it is"
    if best is not None and best.code == under.code:
        return f"the same code as {best.experiment_id}, the best: one more run of it is no progress"
    if runs.runs > 1:
        return f"its code was measured before: it is judged by the mean of its {runs.runs} runs"
    return None


def mean_of(runs: Repeats | None) -> Mean | None:
    return Mean(runs.mean, runs.runs) if runs else None


def _trust(value: float, run: RunFacts, beside: Comparison, noise: Noise | None) -> Trust | None:
    """Evidence for a keep; None for a discard, and for later keeps under the strict rule."""
    e, direction, best = run.experiment, run.tag.direction, beside.best
    if best is None:
        return "first"
    if e.judged_by == "strict":
        return None
    own = own_noise(noise, best.seeds)
    sigma = cautious(own, SURE_SIGMAS) if own else None
    incumbent = SeedScores(best.experiment_id, score(best.val_bpb, direction))
    candidate = SeedScores(e.experiment_id, score(value, direction))
    plausible = plausible_margin(run.tag.largest_gain, run.tag.kept)
    match KEEP_RULES[e.judged_by](candidate, incumbent, sigma, plausible):
        case "discard":
            return None
        case "keep" if not beside.hidden.is_run_again:
            return "confirmed"
        case "keep" | "provisional":
            return "provisional" if e.can_run_again and run.policy.max_retests > 0 else "unconfirmed"


def _measured(report: ResultReport, key: Key, run: RunFacts) -> dict[str, Any]:
    """Fields with the measurements and their conditions."""
    return {
        **report.measured,
        **(report.time.model_dump() if report.time else {}),
        "val_bpb": report.value,
        "score": report.score,
        "reported": report.reported,
        "gpu_class": key.gpu_class,
        "evaluator_hash": key.evaluator_hash,
        "budget_seconds": key.budget_seconds,
        "policy_version": run.policy_version,
    }


def _reported(op: str, digest: str) -> dict[str, str]:
    return {"op": op, "digest": digest}


def lifts_abort(run: RunFacts) -> bool:
    """Whether a result ends a row of crashes that had the tag refuse what is new."""
    return run.policy.on_abort == "block" and should_abort(run.crashes_in_a_row, run.policy.crash_limit)


def _is_base_code(e: Experiment, tag: Tag) -> bool:
    return is_base_code(tag, e.commit_sha, e.config_delta, is_unpatched=e.is_unpatched)


def _lab_learned(run: RunFacts, under: RunConditions) -> dict[str, object]:
    """Fields of the tag after the lab's first measurement, with the class of GPU, if possible the main key's."""
    tag, gpu_class = run.tag, under.key.gpu_class
    if not run.experiment.was_trained_here:
        return {}
    is_better = under.agrees and gpu_class is not None and gpu_class != tag.lab_gpu_class
    if tag.lab_measured and not is_better:
        return {}
    return {"lab_measured": True, "lab_gpu_class": gpu_class}


def _learned(run: RunFacts, key: Key, value: float, gain: float | None) -> dict[str, object]:
    """Fields of the tag that this run sets: new parts of its main key, the base commit's value, the largest gain."""
    e, tag = run.experiment, run.tag
    learned: dict[str, object] = {}
    for name, part, known in zip(Key._fields, key, main_key(tag), strict=True):
        if part is not None and known is None:
            learned[f"key_{name}"] = part
    is_first = tag.baseline_id is None and tag.baseline_val_bpb is None
    if e.baseline or (is_first and _is_base_code(e, tag)):
        learned["baseline_val_bpb"] = value
    if gain != tag.largest_gain:
        learned["largest_gain"] = gain
    return learned
