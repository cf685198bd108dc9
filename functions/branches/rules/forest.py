"""Traces of a tag: as schedulers see them, after a finished experiment, and when they end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from functions.branches.rules.ancestry import best_of
from functions.branches.rules.schedulers import ForestView, TraceView
from functions.experiments.rules.verdict import Key
from state.decisions import Growth
from state.derived import judged_score
from state.facts import Comparison, RunFacts
from state.ids import OWN_LINE
from state.policy import TracePolicy
from state.records import JUDGED, Direction, Experiment, Forest, SelectionRecord, Status, Trace, score

CRASH = "x"
"""A crash among a trace's scores."""
SCORES_KEPT = 100
"""Number of newest scores that schedulers see."""


def schedulers_view(forest: Forest, live: Sequence[Trace], params: Mapping[str, float]) -> ForestView:
    return ForestView(
        tag=forest.tag,
        select_seq=forest.select_seq + 1,
        traces=tuple(view_of(trace) for trace in live),
        virtual_time=forest.virtual_time,
        params=params,
    )


def view_of(trace: Trace) -> TraceView:
    return TraceView(
        trace_id=trace.trace_id,
        number=trace.number,
        virtual_time=trace.virtual_time,
        last_selected=trace.last_selected,
        length=trace.length,
        kept=trace.kept,
        children=trace.length,
        in_flight=trace.in_flight,
        scores=_scores(trace.scores),
        best_score=trace.best_score,
        priority=trace.priority,
    )


@lru_cache(512)
def _scores(text: str) -> tuple[float | None, ...]:
    """Cached, because few traces change from one selection to the next."""
    return tuple(None if score == CRASH else float(score) for score in text.split())


def replanted(forest: Forest) -> bool:
    """Whether a trace has ended and freed its slot. Until then all slots are for roots."""
    numbered = [t for t in forest.growing if t.number != OWN_LINE]
    return forest.branches > len(numbered)


def is_node(e: Experiment, status: Status) -> bool:
    """Whether an experiment with this final status is a node of the graph. A retracted one stays in it."""
    return (status in JUDGED or status == "retracted") and e.retest_of is None


def grown(
    run: RunFacts, beside: Comparison, status: Status, value: float | None, builds_on: bool
) -> tuple[Growth | None, dict[str, Any]]:
    """How a finished experiment changes its trace, and the fields that record this on the experiment.

    None if it is not a node of a trace. If tip and epoch are as at the selection, the tip advances to the node;
    else the node is a leaf beside the branch. The base advances with the tip to a keep that the branch builds on.
    The first node of a trace sets the base to the nearest keep above. A merge's sources end only if the merge is
    kept and its trace goes on. A node of an earlier epoch does not count for the trace's health. A discard without
    a value is a claim: it gets its score from `claim_measured`.
    """
    e, trace, epoch, rules = run.experiment, beside.trace, beside.epoch, run.policy.traces
    choice = e.selection
    if choice is None or trace is None or not is_node(e, status):
        return None, {}
    outdated = choice.epoch != epoch
    advances = not outdated and trace.tip == choice.expected_tip and trace.tip in (None, *choice.parent_ids)
    kept = status == "keep"
    points = score(value, run.tag.direction) if value is not None else None
    vitals = vitals_of(trace)
    if points is not None or status != "discard":
        vitals = after_commit(vitals, points, outdated=outdated)
    fields: dict[str, Any] = {"crashes_in_a_row": vitals.crashes_in_a_row, **_health(vitals)}
    base = beside.begins_on if advances and trace.root is None else None
    if advances:
        fields["tip"] = e.experiment_id
        if trace.root is None:
            fields |= {"root": e.experiment_id, **_base(base)}
        if kept and builds_on:
            fields |= _base(e)
    goes_on = advances and trace.status in ("pending", "live")
    growth = Growth(
        trace=trace,
        epoch=epoch,
        fields=fields,
        ends=_ended(choice, beside, kept and goes_on),
        begins_on=base.experiment_id if base else None,
        **_fate(trace, advances, vitals, rules),
    )
    return growth, {"committed": True, "forked": not advances, "outdated": outdated}


def _ended(choice: SelectionRecord, beside: Comparison, goes_on: bool) -> list[Trace]:
    """The sources of a merge that end with it, if it is kept and its trace `goes_on`."""
    tips = {t.trace_id: t.tip for t in beside.sources if t.status == "live" and t.tip}
    ends = ended_by_merge(choice.sources, tips, goes_on)
    return [source for source in beside.sources if source.trace_id in ends]


def _fate(trace: Trace, advances: bool, vitals: Vitals, rules: TracePolicy) -> dict[str, Any]:
    if trace.status == "pending" and not advances:
        return {"status": "dead", "why": "its first experiment finished after its epoch"}
    if trace.status not in ("pending", "live"):
        return {}
    if rules.mode == "multi":
        match death(vitals, rules.dead_after_crashes, rules.stale_after):
            case "crashes":
                return {"status": "dead", "why": f"{vitals.crashes_in_a_row} nodes in a row have crashed"}
            case "stale":
                return {"status": "dead", "why": f"no new best in {vitals.commits_since_best} nodes"}
    return {"status": "live"}


def regrown(trace: Trace, epoch: int, e: Experiment, kept: bool, base: Experiment | None) -> Growth:
    """How a trace changes when retests demote or promote its node or base `e`; `base` replaces a demoted base."""
    fields = raised(e) if kept and trace.trace_id == e.trace_id else {}
    if trace.base == e.experiment_id and not kept:
        fields |= _base(base)
    return Growth(trace=trace, epoch=epoch, fields=fields)


def raised(e: Experiment) -> dict[str, Any]:
    """Fields of a trace after its discard `e` became the tag's best: its base, unless a leaf or not comparable."""
    builds_on = e.committed and not e.forked and e.best_key is None
    return _base(e) if builds_on else {}


def claim_measured(
    beside: Comparison, epoch: int, e: Experiment, status: Status, points: float | None, builds_on: bool
) -> Growth | None:
    """How a trace changes after the lab has measured a claim; None if the claim is no node.

    The base moves to the claim if the claim is the tip, or was compared with the base. A claimed merge that is kept
    ends its sources.
    """
    trace, choice = beside.trace, e.selection
    if trace is None or choice is None or not e.committed:
        return None
    fields: dict[str, Any] = {}
    if points is not None:
        fields |= _health(after_commit(vitals_of(trace), points, outdated=e.outdated))
    kept = status == "keep"
    compared_with = beside.base.experiment_id if beside.base else None
    if kept and builds_on and not e.forked and (trace.tip == e.experiment_id or trace.base == compared_with):
        fields |= _base(e)
    ends = _ended(choice, beside, kept and not e.forked and trace.status == "live")
    return Growth(trace=trace, epoch=epoch, fields=fields, ends=ends)


def rescored(
    trace: Trace,
    nodes: Sequence[Experiment],
    direction: Direction,
    before: Collection[float],
    anew: Mapping[str, float | None],
) -> dict[str, Any]:
    """The scores of a trace from its newest nodes. `anew` has the changed scores; None: that result is gone.

    If the trace has more nodes, its best score stays, unless it is one of the changed scores `before` the change.
    """
    vitals = Vitals()
    for e in sorted(nodes, key=lambda e: e.finish_number or 0):
        if not e.committed or e.status not in JUDGED or (e.is_claim and e.status == "discard"):
            continue
        points = judged_score(e, direction)
        if points is not None:
            points = anew.get(e.experiment_id, points)
            if points is None:
                continue
        vitals = after_commit(vitals, points, outdated=e.outdated)
    fields: dict[str, Any] = {"scores": " ".join(vitals.scores)}
    if trace.length > len(nodes) and trace.best_score not in before:
        return fields
    best = "" if vitals.best is None else vitals.best
    return fields | {"best_score": best, "since_best": min(trace.since_best, vitals.commits_since_best)}


def _base(e: Experiment | None) -> dict[str, Any]:
    return {"base": e.experiment_id if e else "", "base_commit_sha": e.commit_sha if e else ""}


@dataclass(frozen=True)
class Vitals:
    """A trace's scores and counts, as of its newest committed node."""

    best: float | None = None
    """Its lowest score (see `verdict.score`)."""
    commits_since_best: int = 0
    crashes_in_a_row: int = 0
    scores: tuple[str, ...] = ()
    """The newest SCORES_KEPT."""


def vitals_of(trace: Trace) -> Vitals:
    return Vitals(trace.best_score, trace.since_best, trace.crashes_in_a_row, tuple(trace.scores.split()))


def _health(vitals: Vitals) -> dict[str, Any]:
    """The vitals as fields of a trace, its crashes aside."""
    scores, since_best = " ".join(vitals.scores), vitals.commits_since_best
    return {"scores": scores, "best_score": vitals.best, "since_best": since_best}


def after_commit(before: Vitals, score: float | None, *, outdated: bool = False) -> Vitals:
    """The vitals after one more committed node; a score of None is a crash. An outdated node only adds its score."""
    scores = (*before.scores, CRASH if score is None else repr(score))[-SCORES_KEPT:]
    if outdated:
        return replace(before, scores=scores)
    crashes = before.crashes_in_a_row + 1 if score is None else 0
    if score is not None and (before.best is None or score < before.best):
        return Vitals(score, 0, crashes, scores)
    return Vitals(before.best, before.commits_since_best + 1, crashes, scores)


def death(vitals: Vitals, dead_after_crashes: int, stale_after: int) -> Literal["crashes", "stale"] | None:
    """Why a trace has to end: too many crashes in a row, or too many commits without a new best."""
    if vitals.crashes_in_a_row >= dead_after_crashes:
        return "crashes"
    return "stale" if vitals.commits_since_best >= stale_after else None


def ended_by_merge(selected: Mapping[str, str], tips: Mapping[str, str], goes_on: bool) -> list[str]:
    """The sources that end with a merge: those that have not grown since, if the merge `goes_on`.

    `selected`: tip of each source trace when the merge was selected; `tips`: the same when it is committed.
    """
    return [trace for trace, tip in selected.items() if goes_on and tips.get(trace) == tip]


def next_start(
    kept: Iterable[Experiment], built_on: Collection[str], direction: Direction, main: Key
) -> Experiment | None:
    """Start of a trace that replaces a dead one: the best keep that is not in `built_on`; None: a new root."""
    return best_of((e for e in kept if e.experiment_id not in built_on), direction, main)
