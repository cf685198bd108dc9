"""Whether an idea may enter the lab, and what it is made from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from functions.experiments.rules.entering import admitted
from functions.kernel.rules.access import LOCAL, Caller
from state.decisions import EntryFacts, Parent
from state.errors import Conflict, Forbidden, Invalid
from state.policy import Policy
from state.records import Idea, Selection, Tag, Trace
from tests.functions.sample import experiment

ADA, BOB = (Caller(name, "agent", token_id=name) for name in ("ada", "bob"))
MULTI = Policy().changed({"traces.mode": "multi"})
BLOCK = Policy(on_abort="block", crash_limit=3)


def idea(**fields: Any) -> Idea:
    plain = {"tag": "mar11", "category": "optimizer", "commit_sha": "abc1234"}
    return Idea.model_validate(plain | {"hypothesis": "h", "description": "d", "diff_summary": "s"} | fields)


def facts(**known: Any) -> EntryFacts:
    nothing = EntryFacts(
        now=100.0, tag=Tag(name="mar11", branch="b", created_at=0.0), policy=Policy(), policy_version=7
    )
    return replace(nothing, **known)


def selected(*, ends: float | None = 200.0, **fields: Any) -> dict[str, Any]:
    """Facts of an open selection."""
    plain: dict[str, Any] = {
        "selection_id": "mar11-s1",
        "tag": "mar11",
        "select_seq": 1,
        "epoch": 1,
        "kind": "extend",
    }
    plain |= {"trace_id": "mar11-t1", "parent_ids": ["mar11-4"], "local_selection": [4]}
    plain |= {"created_at": 0.0, "lease_expires_at": 200.0}
    return {"selection": Selection.model_validate(plain | fields), "selection_ends": ends}


def parent(tag: str = "mar11", *, outdated: bool = False, retest_of: str | None = None) -> Parent:
    return Parent(tag=tag, retest_of=retest_of, outdated=outdated, trace_id="mar11-t1")


def branch(tip: str | None = "mar11-9") -> Trace:
    return Trace(
        trace_id="mar11-t1", tag="mar11", number=1, status="live", created_at=0.0, tip=tip, base="mar11-8"
    )


BEST = experiment(commit_sha="badcafe0", diff_id="d1", config_delta={"WIDTH": 96, "SEED": 1})
ABORTED = facts(policy=BLOCK, crashes=3, best=BEST)
BASED = Tag(name="mar11", branch="b", created_at=0.0, base_commit="0123456789")
NO_BEST = facts(policy=BLOCK, crashes=3, tag=BASED)
WIDE, PLAIN = {"config_delta": {"WIDTH": 96}}, {"commit_sha": "0123456789"}


@pytest.mark.parametrize(
    ("aborted", "what", "is_unchanged"),
    [
        *((ABORTED, {**WIDE, "commit_sha": cut}, True) for cut in ("badcafe0", "badcafe")),
        *(
            (ABORTED, {**WIDE, "commit_sha": any_, "diff_id": "d1"}, True)
            for any_ in ("badcafe0", "feedbee0")
        ),
        (ABORTED, {**WIDE, "commit_sha": "feedbee0"}, False),
        (ABORTED, {**WIDE, "commit_sha": "badcafe0", "diff_id": "d2"}, False),
        *(
            (ABORTED, {"commit_sha": "badcafe0", "config_delta": delta}, False)
            for delta in (None, {"WIDTH": 48}, {"WIDTH": 96, "DEPTH": 3})
        ),
        (NO_BEST, {**PLAIN, "config_delta": {"SEED": 7}}, True),
        *((NO_BEST, {**PLAIN, **change}, False) for change in ({"diff_id": "d1"}, WIDE)),
    ],
)
def test_after_too_many_crashes_the_unchanged_best_or_base_commit_is_let_in(
    aborted: EntryFacts, what: dict[str, Any], is_unchanged: bool
) -> None:
    if is_unchanged:
        assert admitted(idea(**what), aborted, LOCAL).idea.commit_sha == what["commit_sha"]
        return
    with pytest.raises(Conflict, match="3 experiments of 'mar11' in a row have crashed") as refusal:
        admitted(idea(**what), aborted, LOCAL)
    named = f"{BEST.experiment_id}, the best," if aborted is ABORTED else "the base commit"
    commit = "badcafe0" if aborted is ABORTED else "0123456789"
    assert f"submit or register {named} unchanged (commit {commit}" in (refusal.value.hint or "")


def test_only_a_blocking_policy_refuses_and_without_code_to_run_again_only_an_operator_lifts_that() -> None:
    assert admitted(idea(), facts(crashes=9), LOCAL)
    assert admitted(idea(), facts(policy=BLOCK, crashes=2), LOCAL)
    with pytest.raises(Conflict) as refusal:
        admitted(idea(), facts(policy=BLOCK, crashes=3), LOCAL)
    assert refusal.value.hint == (
        "find the common cause: have an operator lift it with POST /api/experiment/resume"
    )


@pytest.mark.parametrize(
    ("policy", "named", "kind", "problem"),
    [
        (Policy(), None, Invalid, "is no experiment of 'mar11'"),
        (Policy(), parent("other"), Invalid, "is no experiment of 'mar11'"),
        (Policy(), parent(retest_of="mar11-1"), Invalid, "is a retest"),
        (MULTI, parent(outdated=True), Conflict, "when its epoch was over"),
    ],
)
def test_a_parent_is_an_experiment_of_the_tag_and_its_epoch_and_no_retest(
    policy: Policy, named: Parent | None, kind: type[Exception], problem: str
) -> None:
    known = facts(policy=policy, parents={"mar11-2": named} if named else {}, branch=branch())
    with pytest.raises(kind, match=problem):
        admitted(idea(parent_ids=["mar11-2"]), known, LOCAL)


@pytest.mark.parametrize(
    ("selection", "code"),
    [
        (selected(experiment_id="mar11-5"), "selection_used"),
        (selected(epoch=0), "stale_epoch"),
        (selected(epoch=0, status="expired"), "stale_epoch"),
        (selected(status="expired"), "selection_expired"),
        (selected(status="released"), "selection_released"),
        (selected(status="committed", epoch=0), "selection_committed"),
        (selected(ends=100.0), "selection_expired"),
        (selected(ends=None), "selection_expired"),
    ],
)
def test_a_selection_that_is_over_is_refused_with_its_code(selection: dict[str, Any], code: str) -> None:
    with pytest.raises(Conflict) as refusal:
        admitted(idea(selection_id="mar11-s1"), facts(**selection), LOCAL)
    assert refusal.value.fields["code"] == code


def test_nobody_registers_with_a_selection_of_another_or_for_other_parents() -> None:
    mine = facts(**selected(owner="ada"))
    named = replace(mine, parents={"mar11-3": parent()})

    with pytest.raises(Forbidden):
        admitted(idea(selection_id="mar11-s1"), mine, BOB)
    with pytest.raises(Invalid, match="with the parents"):
        admitted(idea(selection_id="mar11-s1", parent_ids=["mar11-3"]), named, ADA)
    found = admitted(idea(selection_id="mar11-s1"), mine, ADA).idea
    assert (found.parent_ids, found.local_selection, found.trace_id) == (["mar11-4"], [4], "mar11-t1")
    assert found.selection is not None
    assert found.selection.selection_id == "mar11-s1"


def test_without_a_selection_it_is_made_from_the_tip_of_the_branch_of_the_best() -> None:
    entry = admitted(idea(), facts(policy=MULTI, epoch=3, branch=branch()), LOCAL)
    choice = entry.idea.selection
    assert choice is not None
    assert (choice.kind, choice.expected_tip, choice.base_experiment_id) == ("extend", "mar11-9", "mar11-8")
    assert (entry.idea.parent_ids, entry.idea.local_selection, choice.epoch) == (["mar11-9"], [9], 3)
    assert (entry.idea.policy_version, entry.idea.patience_s) == (7, MULTI.stale_after_s)
