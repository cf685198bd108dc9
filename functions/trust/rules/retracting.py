"""Consequences of a retraction: the best before the result, later results judged with it, and the noise."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from functions.branches.rules.forest import raised, regrown, rescored
from functions.experiments.rules.keeping import restored
from functions.experiments.rules.opening import is_base_code
from functions.experiments.rules.verdict import FIRST
from functions.fold import CONTRADICTED, ClassNoise, largest_gain, measure
from functions.runs.rules.stopping import told_by
from functions.trust.rules.noise import change_of, parsed, without, written
from state.decisions import Growth, LeftNoise, Retraction
from state.derived import change
from state.errors import Conflict
from state.facts import RetractionFacts, Spread
from state.noise import code_of, noise_entry
from state.records import OPEN, RETESTED, Best, Experiment, Link, OneRun, Trace, score


class RetractAnswer(BaseModel):
    """The answer to the retraction of a result."""

    experiment_id: str
    status: str
    was: str
    """keep or discard: its status before."""
    val_bpb: float | None
    reason: str
    best_experiment_id: str | None
    """The best under its comparability key now; None: nothing is kept there any more."""
    best_val_bpb: float | None
    base_commit_sha: str | None
    """What to go back to."""
    retest: list[str]
    """Results that lost to it and beat the new best. The lab repeats those that it trained itself. The other agents
    repeat theirs with experiment::retest."""
    corrected: list[str]
    """Later results of the same code: they are judged without its runs now."""


def check_retractable(e: Experiment) -> None:
    """Raise Conflict for an open experiment, a retest, one without a result, or retracted for another reason."""
    if e.status in ("keep", "discard") and e.val_bpb is not None:
        return
    name, hint = e.experiment_id, "only what was kept or discarded can be taken back"
    detail = f"{name} is {e.status}: it has no result that counts"
    if e.retest_of is not None:
        detail = f"{name} is a retest: it counts only as evidence for {e.retest_of}"
        hint = f"retract {e.retest_of}, or stop the retest while it runs"
    elif e.status in OPEN:
        detail, hint = f"{name} is {e.status}: it has no result yet", "stop it: POST /api/experiment/stop"
    elif e.status == "retracted":
        detail = f"{name} was retracted before: {e.retracted_because}"
        hint = f"GET /api/experiment/{name} shows it"
    raise Conflict(detail, hint=hint, fields={"experiment_status": e.status})


def retraction_of(facts: RetractionFacts, reason: str, digest: str) -> Retraction:
    """All changes but those of traces. Raises Conflict: a keep was judged by a mean that has this run."""
    e, tag = facts.experiment, facts.tag
    leaving = [r.experiment_id for r in facts.runs if e.experiment_id in (r.experiment_id, r.retest_of)]
    judged_anew, noise = _judged_anew(facts, leaving)
    now = {after.experiment_id: after for _, after in judged_anew}
    beaten = [now.get(b.experiment_id, b) for b in facts.beaten if b.experiment_id != e.experiment_id]
    risen = _risen(facts, beaten)
    keeps = [k for k in facts.keeps if k.experiment_id != e.experiment_id]
    changed = [*judged_anew, *([risen] if risen else [])]
    if risen is not None:
        keeps = [risen[1]]
        beaten = [b for b in beaten if b is not risen[0]]
    after = _best_after(facts, keeps, beaten, now)
    main = after if e.best_key is None else facts.main_best
    rivals = after.rivals if after else []
    known = {link.experiment_id for link in facts.best.rivals} if facts.best else set[str]()
    answer = RetractAnswer(
        experiment_id=e.experiment_id,
        status="retracted",
        was=e.status,
        val_bpb=e.val_bpb,
        reason=reason,
        best_experiment_id=after.experiment_id if after else None,
        best_val_bpb=after.val_bpb if after else None,
        base_commit_sha=main.commit_sha if main else tag.base_commit,
        retest=[rival.experiment_id for rival in rivals if rival.experiment_id not in known],
        corrected=sorted(now),
    )
    fields: dict[str, Any] = {
        "retracted_from": e.status,
        "retracted_because": reason,
        "retraction": {"digest": digest, "answer": answer.model_dump()},
        "trust": "",
        "near_miss": False,
        "base_commit_sha": answer.base_commit_sha or "",
    }
    return Retraction(
        facts=facts,
        fields=fields,
        tag_fields=_baseline_now(facts, leaving, now) | largest_gain_now(facts),
        told={**answer.model_dump(), "number": e.number, "agent": e.agent, "key": e.best_key},
        after=after,
        leaving=leaving,
        left=_left_noise(facts, noise) if facts.noise.runs[0] and leaving else None,
        shift=change([(e, e.model_copy(update={"status": "retracted"})), *changed], tag.direction),
        changed=changed,
        learnt={} if e.end_place is None else told_by(e.places or {}, e.end_place),
    )


def with_growths(
    retraction: Retraction,
    traces: Iterable[Trace],
    nodes: Mapping[str, Sequence[Experiment]],
    bases: Mapping[str, Experiment | None],
    epoch: int,
) -> Retraction:
    """`retraction` with the changes of its own trace and of traces based on it.

    `nodes` are those of each trace that scored it. `bases` are the best other keeps of traces that are based on it.
    """
    e = retraction.facts.experiment
    anew: dict[str, float | None] = {
        now.experiment_id: _score(now, retraction.facts) for _, now in retraction.changed
    }
    anew[e.experiment_id] = None
    before = [
        _score(run, retraction.facts) for run in (e, *retraction.facts.runs) if run.experiment_id in anew
    ]
    growths: list[Growth] = []
    for trace in traces:
        growth = Growth(trace, epoch, {})
        if e.status == "keep" or trace.base == e.experiment_id:
            growth = regrown(trace, epoch, e, kept=False, base=bases.get(trace.trace_id))
        for was, now in retraction.changed:
            if (was.status, now.status) == ("discard", "keep") and trace.trace_id == now.trace_id:
                growth = replace(growth, fields={**growth.fields, **raised(now)})
        if trace.trace_id in nodes:
            direction = retraction.facts.tag.direction
            scores = rescored(trace, nodes[trace.trace_id], direction, before, anew)
            growth = replace(growth, fields={**growth.fields, **scores})
        growths.append(growth)
    return replace(retraction, growths=growths)


def _judged_anew(
    facts: RetractionFacts, leaving: Sequence[str]
) -> tuple[list[tuple[Experiment, Experiment]], ClassNoise]:
    """Results of the same code that were judged by a mean with the leaving runs; here they are judged without them.

    Answers the noise without the leaving runs, too.

    Raises:
        Conflict: one of them is a keep.
    """
    e, found = facts.experiment, list[tuple[Experiment, Experiment]]()
    noise, code = ClassNoise(_others(facts)), code_of(e, e.best_key)
    standing = facts.best.standing() if facts.best else []
    stands = code in {x.code for x in standing if x.experiment_id != e.experiment_id}
    begun = False
    for run in facts.runs:
        if run.experiment_id in leaving:
            begun = True
            continue
        if run.own_value is None or run.status not in ("keep", "discard", RETESTED):
            continue
        measure(noise, code, run.worker_id, run.own_value, run.steps_per_s)
        if not begun or run.retest_of is not None:
            continue
        if run.status == "keep":
            raise Conflict(
                f"{run.experiment_id} is a keep by the mean of runs that {e.experiment_id} is among",
                hint=f"retract {run.experiment_id} first, then {e.experiment_id}; its code can be submitted again",
                fields={"experiment_status": e.status, "retract_first": run.experiment_id},
            )
        repeats_best = run.repeats_best and stands
        several, mean = noise.runs[code].runs > 1, noise.runs[code].mean
        judged = {
            "judged_val_bpb": mean if several else None,
            "repeats_best": repeats_best,
            "reason": run.reason if repeats_best or (several and not run.repeats_best) else None,
        }
        found.append((run, run.model_copy(update=judged)))
    return found, noise


def _baseline_now(
    facts: RetractionFacts, leaving: Sequence[str], corrected: Mapping[str, Experiment]
) -> dict[str, Any]:
    """The tag's baseline value, by the first remaining run of the base commit's code."""
    e, tag = facts.experiment, facts.tag
    is_base = is_base_code(tag, e.commit_sha, e.config_delta, is_unpatched=e.is_unpatched)
    if tag.baseline_val_bpb is None or e.best_key is not None or not is_base:
        return {}
    firsts = [r for r in facts.runs if r.retest_of is None and r.experiment_id not in leaving]
    judged = [corrected.get(r.experiment_id, r).judged for r in firsts]
    return {"baseline_val_bpb": judged[0] if judged and judged[0] is not None else ""}


def has_fallen(e: OneRun) -> bool:
    """Whether results that lost to it may have to be judged again: it was retracted, demoted or contradicted."""
    return e.status == "retracted" or e.trust == "demoted" or e.reason == CONTRADICTED


def largest_gain_now(facts: RetractionFacts) -> dict[str, Any]:
    """The largest gain of the remaining keeps, if this keep had the largest."""
    e, largest = facts.experiment, None
    if e.best_key is not None or e.delta is None or e.delta != facts.tag.largest_gain:
        return {}
    for nth, k in enumerate(sorted(facts.keeps, key=lambda k: k.finish_number or 0)):
        largest = largest if k.experiment_id == e.experiment_id else largest_gain(largest, nth, k)
    return {"largest_gain": largest or ""}


def _left_noise(facts: RetractionFacts, after: ClassNoise) -> LeftNoise:
    entries, by = dict[str, tuple[str, str]](), Spread()
    for name, text in _of_code(facts).items():
        left = after.runs.get(name)
        entries[name] = text, written(left) if left else ""
        by = by.with_(change_of(parsed(text), left))
    return LeftNoise(entries, by)


def _of_code(facts: RetractionFacts) -> dict[str, str]:
    """Entries of the noise that hold runs of its code."""
    code = code_of(facts.experiment, facts.experiment.best_key)
    names = [code, *(noise_entry(code, worker) for worker in facts.noise_workers)]
    return dict(zip(names, facts.noise.runs, strict=True))


def _others(facts: RetractionFacts) -> Spread:
    others = facts.noise
    for text in _of_code(facts).values():
        others = without(others, parsed(text))
    return others


def _risen(facts: RetractionFacts, beaten: Sequence[Experiment]) -> tuple[Experiment, Experiment] | None:
    """The first other result, before and after, if no best is left: it would have been the first keep."""
    e, best = facts.experiment, facts.best
    standing = best.standing() if best else []
    stays = {link.experiment_id for link in standing} | {k.experiment_id for k in facts.keeps}
    if stays != {e.experiment_id}:
        return None
    first = min(beaten, key=lambda b: b.finish_number or 0, default=None)
    if first is None:
        return None
    fields = {
        **vars(FIRST),
        "status": "keep",
        "repeats_best": False,
        "base_commit_sha": first.commit_sha,
        "trust": "first",
    }
    return first, first.model_copy(update=fields)


def _best_after(
    facts: RetractionFacts,
    keeps: Sequence[Experiment],
    beaten: Sequence[Experiment],
    corrected: dict[str, Experiment],
) -> Best | None:
    """The best without the retracted result. Results that lost to it or were corrected may become rivals."""
    e, best, tag = facts.experiment, facts.best, facts.tag
    if best is None:
        return None
    stood = any(link.experiment_id == e.experiment_id for link in best.standing())
    return restored(
        best,
        e.experiment_id,
        [link_of(k) for k in keeps],
        lost_to(e if stood else None, beaten, corrected),
        tag.direction,
    )


def lost_to(
    e: Experiment | None, beaten: Iterable[Experiment], corrected: Collection[str] = ()
) -> list[Link]:
    """Results that lost to `e` or were corrected since: those that the lab can repeat, or else all."""
    lost = [
        b
        for b in beaten
        if b.experiment_id in corrected or (e and (b.finish_number or 0) > (e.finish_number or 0))
    ]
    lost = [b for b in lost if not (b.repeats_best or b.hidden_refused)]
    trained = [b for b in lost if b.can_run_again]
    return [link_of(b) for b in trained or lost]


def link_of(e: Experiment) -> Link:
    """An experiment with the value by which it is judged."""
    return Link(
        experiment_id=e.experiment_id,
        val_bpb=e.judged if e.judged is not None else 0.0,
        commit_sha=e.commit_sha,
        code=code_of(e, e.best_key),
        trace_id=e.trace_id,
    )


def _score(e: Experiment, facts: RetractionFacts) -> float:
    return score(e.judged if e.judged is not None else 0.0, facts.tag.direction)
