"""What an experiment's result means for the branch that it was made for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from functions.rules.branches.forest import grown, is_node, regrown
from functions.rules.keeps.verdict import Key, compare, judge
from state.decisions import Growth, Settled
from state.experiments import Experiments
from state.policy import Policy
from state.records import Experiment, Status, Tag
from state.traces import Traces


@dataclass(frozen=True)
class Base:
    """What a branch stands on; no experiment where it has kept nothing."""

    experiment: Experiment | None
    commit_sha: str | None
    is_comparable: bool
    """With what is judged: on other hardware, or after another budget, a value says nothing of it."""

    def is_beaten(self, value: float, tag: Tag) -> bool | None:
        """Whether this value is kept on the branch: its first one always is; None where they cannot be compared."""
        if not self.is_comparable:
            return None
        base = self.experiment.val_bpb if self.experiment else None
        return judge(value, base, tag.direction, 0.0).improved


async def base_of(
    e: Experiment, tag: Tag, policy: Policy, key: Key, experiments: Experiments, traces: Traces
) -> Base | None:
    """What it is judged against beside the best: its branch's base; None in single mode, and without a trace.

    That is the base it was selected with, unless retests have taken that back: then it is what the branch has now.
    """
    if policy.traces.mode == "single" or e.selection is None:
        return None
    base = await experiments.find(e.selection.base_experiment_id) if e.selection.base_experiment_id else None
    if base is not None and base.status != "keep":
        trace = next(iter(await traces.many([e.selection.trace_id])), None)
        base = await experiments.base_above([trace.base if trace and trace.base else base.experiment_id])
    theirs = (
        Key(base.gpu_class, base.evaluator_hash, base.budget_seconds)
        if base is not None
        else Key(tag.key_gpu_class, tag.key_evaluator_hash, tag.key_budget_seconds)
    )
    commit_sha = base.commit_sha if base is not None else tag.base_commit
    return Base(base, commit_sha, is_comparable=compare(theirs, key)[1])


async def growth_of(
    e: Experiment,
    status: Status,
    value: float | None,
    tag: Tag,
    policy: Policy,
    experiments: Experiments,
    traces: Traces,
    *,
    beats_base: bool = False,
) -> tuple[Growth | None, dict[str, Any]]:
    """What it changes of its trace to end like this, and fields of its own that tell; nothing without a trace."""
    if e.selection is None or not is_node(e, status):
        return None, {}
    names = [e.selection.trace_id, *e.selection.sources]
    found = {trace.trace_id: trace for trace in await traces.many(names)}
    if e.selection.trace_id not in found:
        return None, {}
    trace = found.pop(e.selection.trace_id)
    epoch = await traces.epoch(tag.name)
    begins_on = None
    if trace.root is None and e.selection.base_experiment_id is not None:  # retests may have taken it back
        begins_on = await experiments.base_above([e.selection.base_experiment_id])
    return grown(
        e,
        status,
        value,
        beats_base,
        e.selection,
        trace,
        begins_on,
        epoch,
        list(found.values()),
        tag.direction,
        policy.traces,
    )


async def regrowths_of(s: Settled, experiments: Experiments, traces: Traces) -> list[Growth]:
    """What it changes of its trace, and of all that stand on it, that retests took a keep back or made one."""
    e = s.experiment
    if s.status == e.status:
        return []
    kept = s.status == "keep"
    found = {trace.trace_id: trace for trace in await traces.many([e.trace_id] if e.trace_id else [])}
    base = None
    if not kept:
        found |= {trace.trace_id: trace for trace in await traces.standing_on(e.tag, e.experiment_id)}
        base = await experiments.base_above(e.parent_ids)
    epoch = await traces.epoch(e.tag)
    return [regrown(trace, epoch, e, kept, base) for trace in found.values()]
