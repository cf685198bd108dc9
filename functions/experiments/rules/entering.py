"""Whether an idea may enter the lab, and its parents."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from functions.experiments.rules.opening import is_base_code, is_same_commit
from functions.experiments.rules.verdict import should_abort
from functions.formats.train_command import SCRIPT
from functions.kernel.rules.access import Caller, check_own
from functions.runs.rules.time_limits import check_allowed, default_timeout_s, longest_s
from state.decisions import Entry, EntryFacts, Parent, Run
from state.errors import Conflict, Invalid
from state.ids import number_of
from state.noise import unseeded
from state.policy import Policy
from state.records import GpuState, Idea, Selection, SelectionRecord
from state.refusals import over

SELECT_AGAIN = "POST /api/trace/select makes a new one"


def admitted(idea: Idea, facts: EntryFacts, caller: Caller, *, follows_tip: bool = True) -> Entry:
    """The idea as an entry, with its parents and values of the tag's policy.

    Without parents it `follows_tip` in single mode; else it is a root.

    Raises:
        Conflict: the tag is a swarm's, its selection is over, or too many experiments in a row have crashed and the
            idea is not the best unchanged. Invalid: a wrong parent. Forbidden: the selection is another agent's.
    """
    policy = facts.policy
    if policy.compare_by == "delta":
        raise Conflict(
            f"{idea.tag!r} is a swarm's: its runs are compared by what they have gained on their worker's baseline",
            hint="work in a tag of your own; a swarm's workers join with POST /register",
        )
    aborted = policy.on_abort == "block" and should_abort(facts.crashes, policy.crash_limit)
    if aborted and not is_unchanged_best(idea, facts):
        raise _aborted(facts)
    for name in idea.parent_ids:
        _check_parent(name, facts.parents.get(name), idea.tag)
    made_from = _made_from(idea, facts, caller)
    of_policy = {
        "policy_version": facts.policy_version,
        "keep_rule": policy.keep_rule,
        "patience_s": policy.stale_after_s,
        "is_confined": facts.tag.hidden_split,
    }
    return Entry(
        idea.model_copy(update={**made_from, **of_policy}),
        follows_tip=follows_tip
        and policy.traces.mode == "single"
        and not idea.parent_ids
        and facts.selection is None,
    )


def is_unchanged_best(idea: Idea, facts: EntryFacts) -> bool:
    """Whether it is the best's (else the base's) own code, whatever its seed and commit: one patch is one code."""
    best = facts.best
    if best is None:
        return is_base_code(facts.tag, idea.commit_sha, idea.config_delta, is_unpatched=idea.is_unpatched)
    if unseeded(idea.config_delta) != unseeded(best.config_delta):
        return False
    if idea.is_unpatched:
        return is_same_commit(idea.commit_sha, best.commit_sha)
    return idea.diff_id == best.diff_id


def _aborted(facts: EntryFacts) -> Conflict:
    """Refusal after too many crashes in a row, with what is still accepted."""
    tag, best = facts.tag, facts.best
    named = f"{best.experiment_id}, the best," if best else "the base commit"
    commit = best.commit_sha if best else tag.base_commit
    verbs = "submit" if tag.lab_measured else "submit or register"
    way = (
        f"{verbs} {named} unchanged (commit {commit}, the same diff and config_delta): its success lifts this; or "
        if commit
        else ""
    )
    return Conflict(
        f"{facts.crashes} experiments of {tag.name!r} in a row have crashed",
        hint=f"find the common cause: {way}have an operator lift it with POST /api/experiment/resume",
        fields={"consecutive_crashes": facts.crashes, "base_commit_sha": commit},
    )


def scripts_of_run(
    slots: Sequence[GpuState], alive: Collection[str], pinned: str | None
) -> set[tuple[str, ...]]:
    """Scripts of the slots that may run it. Without a live slot all slots of the lab count."""
    of_lab = [slot for slot in slots if not slot.of_agent]
    may_run = [slot for slot in of_lab if slot.gpu_id == pinned or (pinned is None and slot.gpu_id in alive)]
    return {tuple(slot.scripts) for slot in may_run or of_lab} or {(SCRIPT,)}


def run_of(
    policy: Policy,
    *,
    priority: int,
    budget_s: float | None = None,
    timeout_s: float | None = None,
    pinned_gpu: str | None = None,
    config_delta: dict[str, Any] | None = None,
) -> Run:
    """A run with the policy's values as defaults. Raises Invalid: more seconds than the policy allows."""
    check_allowed(policy, timeout_s=timeout_s, budget_s=budget_s)
    budget = budget_s or policy.budgets.base_s
    limit = timeout_s or min(default_timeout_s(budget), longest_s(policy))
    return Run(priority, budget, limit, pinned_gpu, config_delta)


def _check_parent(name: str, parent: Parent | None, tag: str) -> None:
    if parent is None or parent.tag != tag:
        raise Invalid(
            f"parent {name!r} is no experiment of {tag!r}",
            hint="POST /api/experiment/history lists them; a first experiment has no parent",
        )
    if parent.retest_of is not None:
        raise Invalid(
            f"parent {name!r} is a retest: it tried nothing of its own",
            hint=f"name {parent.retest_of}, the experiment whose code it ran again",
        )


def _made_from(idea: Idea, facts: EntryFacts, caller: Caller) -> dict[str, Any]:
    """Fields with its origin: the selection, else the named parents, else the branch of the best.

    Empty in single mode without a selection: there the parents are those named, else the tip.
    """
    if facts.selection is not None:
        return _selected(idea, facts.selection, facts, caller)
    if facts.policy.traces.mode == "multi":
        return _implied(idea, facts)
    return {}


def _selected(idea: Idea, s: Selection, facts: EntryFacts, caller: Caller) -> dict[str, Any]:
    check_own(caller, s.owner, s.selection_id)
    if s.tag != idea.tag or idea.parent_ids not in ([], s.parent_ids):
        raise Invalid(
            f"{s.selection_id} is a selection of {s.tag!r} with the parents {s.parent_ids}",
            hint="register in its tag, and leave parent_ids out: the selection names them",
        )
    if (refusal := _refusal_of(s, facts)) is not None:
        raise refusal
    return {
        "parent_ids": s.parent_ids,
        "trace_id": s.trace_id,
        "local_selection": s.local_selection,
        "selection": SelectionRecord.model_validate(s.model_dump()),
    }


def _refusal_of(s: Selection, facts: EntryFacts) -> Conflict | None:
    """Refusal of a selection that is used, old or over; None: it is valid."""
    if s.status == "open" and s.experiment_id is not None:
        return Conflict(
            f"{s.experiment_id} was registered with {s.selection_id}: a selection is for one experiment",
            hint=SELECT_AGAIN,
            fields={"code": "selection_used", "experiment_id": s.experiment_id},
        )
    if s.status in ("open", "expired") and s.epoch != facts.epoch:
        return Conflict(
            f"{s.selection_id} is of an earlier epoch: the tag's traces are in epoch {facts.epoch} by now",
            hint=SELECT_AGAIN,
            fields={"code": "stale_epoch", "epoch": facts.epoch},
        )
    if s.status != "open":
        return over(s)
    if facts.selection_ends is None or facts.selection_ends <= facts.now:
        return Conflict(
            f"{s.selection_id} is over: its lease ended before an experiment was registered, or it was released",
            hint=f"{SELECT_AGAIN}; a long search for an idea renews its selection with POST /api/trace/renew",
            fields={"code": "selection_expired"},
        )
    return None


def _implied(idea: Idea, facts: EntryFacts) -> dict[str, Any]:
    """Origin of an idea without a selection: the first parent's trace, or the trace of the best."""
    for name in idea.parent_ids:
        if facts.parents[name].outdated:
            raise Conflict(
                f"parent {name!r} came in when its epoch was over: it cannot be a parent",
                hint="build on a node of the present epoch: POST /api/trace/list shows them",
                fields={"code": "stale_epoch"},
            )
    if (branch := facts.branch) is None:
        return {}
    ids = idea.parent_ids or ([branch.tip] if branch.tip is not None else [])
    return {
        "parent_ids": ids,
        "trace_id": branch.trace_id,
        "local_selection": [number_of(i) for i in ids],
        "selection": SelectionRecord(
            kind="extend" if len(ids) == 1 else "merge",
            trace_id=branch.trace_id,
            parent_ids=ids,
            expected_tip=ids[0] if ids else None,
            base_experiment_id=branch.base,
            base_commit_sha=branch.base_commit_sha,
            epoch=facts.epoch,
            reason="nothing was selected: the parent that was named, else the branch of the best",
        ),
    }
