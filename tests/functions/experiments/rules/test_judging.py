"""Verdicts as tables: one report, judged beside what stood when it came in."""

from __future__ import annotations

from typing import Any

import pytest

from functions.experiments.rules.judging import (
    Completed,
    FailureReport,
    ResultReport,
    conditions_of,
    judge_failure,
    judge_run,
)
from functions.experiments.rules.verdict import Key
from functions.pool.rules.leases import Breaker
from functions.trust.rules.noise import Repeats, run_again, written
from state.decisions import Ending
from state.facts import Comparison, Refusals, RunFacts, Spread
from state.noise import code_of
from state.policy import Policy
from state.records import Best, Experiment, Tag
from tests.functions.sample import experiment, gpu

SIGMA = 0.001
KEY = Key("H100", "e1", 300.0)
TAG = Tag(
    name="mar11",
    branch="b",
    created_at=0.0,
    base_commit="0000000",
    key_gpu_class="H100",
    key_evaluator_hash="e1",
    key_budget_seconds=300.0,
)
BEST = experiment(1, status="keep", val_bpb=1.0, commit_sha="aaaaaaa", gpu_class="H100")
MULTI = Policy().changed({"traces.mode": "multi"})
CHOICE = {"selection_id": "mar11-s1", "epoch": 1, "kind": "extend", "trace_id": "mar11-t1", "parent_ids": []}


def best_of(e: Experiment, value: float = 1.0) -> Best:
    return Best(
        experiment_id=e.experiment_id,
        val_bpb=value,
        commit_sha=e.commit_sha,
        code=code_of(e, None),
        updated_at=0.0,
    )


def repeats(*values: float) -> str:
    """The stored runs of a code, from its earlier values."""
    runs: Repeats | None = None
    for value in values:
        runs, _ = run_again(runs, value, Spread())
    return written(runs) if runs else ""


def facts(run: Experiment, **known: Any) -> RunFacts:
    """A run of a tag whose best is `BEST`."""
    plain: dict[str, Any] = {"gpu_id": None, "first": None, "answer": None, "tag": TAG, "policy": Policy()}
    more = {"policy_version": 1, "crashes_in_a_row": 0, "best": best_of(BEST)}
    return RunFacts(now=100.0, experiment=run, **plain | more | known)


def judged(
    value: float,
    *,
    key: Key = KEY,
    before: tuple[float, ...] = (),
    sigma: float | None = None,
    beside: dict[str, Any] | None = None,
    known: dict[str, Any] | None = None,
    **run: Any,
) -> Ending:
    """The ending of a run of this value; `before` is what other runs of its code measured."""
    e = experiment(2, **{"status": "running", "commit_sha": "bbbbbbb", **run})
    noise = Spread(
        0 if sigma is None else 50, 0.0 if sigma is None else 50 * sigma**2, (repeats(*before), "", "")
    )
    about = facts(e, **known or {})
    under = conditions_of(key, about)
    there = about.best if under.other_key is None else None
    compared = Comparison(None, there, "noise", noise)._replace(**beside or {})
    return judge_run(ResultReport(value, key, "d"), about, under, compared)


TRAINED = {"attempt": 1, "keep_rule": "confirmed"}
PLAUSIBLE = {"known": {"tag": TAG.model_copy(update={"largest_gain": 0.01, "kept": 10})}}
NO_BEST: dict[str, Any] = {"known": {"best": None}, "beside": {"best": None}}
ON_A_BRANCH: dict[str, Any] = {"selection": CHOICE, "known": {"policy": MULTI}}
WORSE_BASE = experiment(3, status="keep", val_bpb=1.2, commit_sha="ccccccc", gpu_class="H100")

VERDICTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the first result is kept": (
        {"value": 2.0, **NO_BEST},
        {
            "status": "keep",
            "trust": "first",
            "delta": 0.0,
            "action": "keep_commit",
            "base_commit_sha": "bbbbbbb",
        },
    ),
    "what is better is kept": (
        {"value": 0.75},
        {"status": "keep", "delta": 0.25, "best_val_bpb": 0.75, "trust": None, "compared_with": "mar11-1"},
    ),
    "what is worse goes back to the best": (
        {"value": 1.25},
        {"status": "discard", "delta": -0.25, "action": "git_reset", "base_commit_sha": "aaaaaaa"},
    ),
    "what is within the margin is a near miss": ({"value": 1.002}, {"status": "discard", "near_miss": True}),
    "what is beyond it is none": ({"value": 1.0021}, {"status": "discard", "near_miss": False}),
    "a lucky run of the best's code is no progress": (
        {"value": 0.9, "before": (1.0,), "commit_sha": "aaaaaaa"},
        {
            "status": "discard",
            "repeats_best": True,
            "near_miss": False,
            "judged_val_bpb": pytest.approx(0.95),
        },
    ),
    "code that was measured before is judged by its mean": (
        {"value": 0.9, "before": (1.2,)},
        {"status": "discard", "judged_val_bpb": pytest.approx(1.05), "delta": pytest.approx(-0.05)},
    ),
    "and kept by its mean": (
        {"value": 0.75, "before": (1.2, 0.9)},
        {"status": "keep", "val_bpb": 0.75, "best_val_bpb": pytest.approx(0.95)},
    ),
    "a baseline is judged by itself though its repeats ended first": (
        {"value": 1.5, "before": (1.9,), "baseline": True, "attempt": 1, **NO_BEST},
        {"status": "keep", "judged_val_bpb": None, "trust": "first", "best_val_bpb": 1.5},
    ),
    "a baseline beside a better number of an agent's is kept": (
        {"value": 1.5, "baseline": True, "attempt": 1, "beside": {"best": None}},
        {"status": "keep", "improved": True, "retest": None, "trust": "first"},
    ),
    "another class of GPU is compared with nothing of the tag's": (
        {"value": 2.0, "key": Key("A100", "e1", 300.0)},
        {"status": "keep", "compared_with": None, "action": "git_reset", "base_commit_sha": "aaaaaaa"},
    ),
    "nor is another budget": (
        {"value": 2.0, "key": Key("H100", "e1", 600.0)},
        {"status": "keep", "compared_with": None, "action": "git_reset"},
    ),
    "seconds that an agent only asked for are no other budget": (
        {"value": 0.9, "key": Key("H100", "e1"), "budget_s": 600.0},
        {"status": "keep", "compared_with": "mar11-1"},
    ),
    "a changed evaluator is invalid": (
        {"value": 0.5, "key": Key("H100", "e2", 300.0)},
        {"status": "invalid", "improved": False, "best_val_bpb": 1.0, "base_commit_sha": "aaaaaaa"},
    ),
    "a win within noise is provisional": (
        {"value": 0.998, "sigma": SIGMA, **TRAINED},
        {"status": "keep", "trust": "provisional", "retest": {"retest_id": "mar11-2.2", "seed": 104_729}},
    ),
    "a win that noise cannot explain is confirmed": (
        {"value": 0.99, "sigma": SIGMA, **TRAINED},
        {"trust": "confirmed", "retest": None},
    ),
    "unless it is implausible": (
        {"value": 0.9, "sigma": SIGMA, **TRAINED, **PLAUSIBLE},
        {"trust": "provisional"},
    ),
    "what no worker can run again is unconfirmed": (
        {"value": 0.998, "sigma": SIGMA, "keep_rule": "confirmed"},
        {"status": "keep", "trust": "unconfirmed", "retest": None},
    ),
    "an equal value is kept by no rule": (
        {"value": 1.0, "sigma": SIGMA, **TRAINED},
        {"status": "discard", "trust": None},
    ),
    "a branch keeps what is worse than the tag's best": (
        {"value": 1.1, **ON_A_BRANCH, "beside": {"base": WORSE_BASE}},
        {"status": "keep", "improved": False, "branch_improved": True, "base_commit_sha": "bbbbbbb"},
    ),
    "what does not beat its branch goes back to the branch's base": (
        {"value": 1.3, **ON_A_BRANCH, "beside": {"base": WORSE_BASE}},
        {"status": "discard", "branch_improved": False, "base_commit_sha": "ccccccc"},
    ),
    "a base of another class of GPU is not beaten": (
        {
            "value": 1.1,
            **ON_A_BRANCH,
            "beside": {"base": WORSE_BASE.model_copy(update={"gpu_class": "A100"})},
        },
        {"status": "discard", "branch_improved": None},
    ),
    "the best's code is kept on no other branch": (
        {"value": 0.9, "before": (1.0,), "commit_sha": "aaaaaaa", **ON_A_BRANCH},
        {"status": "discard", "branch_improved": False},
    ),
    "what the hidden split refuses is a discard": (
        {"value": 0.9, "beside": {"hidden": Refusals("why", None)}},
        {"status": "discard", "improved": False, "hidden_refused": True, "reason": "why"},
    ),
    "and what it refuses for the tag may be kept on its branch": (
        {"value": 0.9, **ON_A_BRANCH, "beside": {"base": WORSE_BASE, "hidden": Refusals("why", None)}},
        {"status": "keep", "improved": False, "branch_improved": True, "hidden_refused": False},
    ),
    "unless it is refused there, too": (
        {"value": 1.1, **ON_A_BRANCH, "beside": {"base": WORSE_BASE, "hidden": Refusals(None, "why")}},
        {"status": "discard", "branch_improved": False, "hidden_refused": True, "reason": "why"},
    ),
    "what is worse is told nothing of a hidden split": (
        {"value": 1.25, "beside": {"hidden": Refusals("why", "why")}},
        {"status": "discard", "hidden_refused": False, "reason": None},
    ),
    "with a hidden split a win that noise cannot explain runs again, too": (
        {"value": 0.99, "sigma": SIGMA, **TRAINED, "beside": {"hidden": Refusals(is_run_again=True)}},
        {"trust": "provisional", "retest": {"retest_id": "mar11-2.2", "seed": 104_729}},
    ),
}


@pytest.mark.parametrize("which", VERDICTS)
def test_a_verdict(which: str) -> None:
    given, expected = VERDICTS[which]
    answer = Completed.model_validate(judged(**given).answer).model_dump()
    assert {name: answer[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("key", "status", "learns"), [(KEY, "measured", True), (Key("A100", "e1", 300.0), "invalid", False)]
)
def test_a_retest_is_evidence_only_under_its_first_run_s_conditions(
    key: Key, status: str, learns: bool
) -> None:
    first = BEST.model_copy(update={"evaluator_hash": "e1", "budget_seconds": 300.0})

    ending = judged(0.5, key=key, retest_of="mar11-1", known={"first": first})

    assert (ending.status, ending.repeat is not None, ending.best, ending.crashes) == (
        status,
        learns,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("policy", "lifts"),
    [(Policy(on_abort="block", crash_limit=3), True), (Policy(on_abort="advise", crash_limit=3), False)],
)
def test_a_result_ends_a_row_of_crashes_and_lifts_the_abort_of_a_tag_that_was_closed(
    policy: Policy, lifts: bool
) -> None:
    ending = judged(1.25, known={"crashes_in_a_row": 3, "policy": policy})
    assert (ending.crashes, ending.lifts_abort) == (0, lifts)


@pytest.mark.parametrize(
    ("kind", "first", "status", "in_a_row", "on_gpu"),
    [
        ("oom", None, "crash", 3, 1),
        ("timeout", None, "timeout", 3, 1),
        ("infra", None, "crash", None, 1),
        ("patch", None, "crash", 3, None),
        ("constant", None, "crash", 3, None),
        ("evaluator", None, "invalid", None, None),
        ("leak", None, "invalid", None, None),
        ("oom", BEST, "crash", None, 1),  # a retest tries nothing of its own
    ],
)
def test_a_failure_counts_against_its_tag_its_gpu_or_neither(
    kind: str, first: Experiment | None, status: str, in_a_row: int | None, on_gpu: int | None
) -> None:
    run = facts(experiment(2, status="running", attempt=1), first=first, crashes_in_a_row=2)
    beside = Comparison(gpu(), run.best, "noise", Spread())
    ending = judge_failure(FailureReport(kind, "boom", "d"), run, beside, Breaker(60.0))
    counted = ending.gpu.in_a_row if ending.gpu else None
    assert (ending.status, ending.crashes, counted) == (status, in_a_row, on_gpu)
