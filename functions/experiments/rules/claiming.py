"""Claims: results that an agent measured itself in a tag that the lab measures.

A claim is a discard until the lab has run its code.
"""

from __future__ import annotations

from dataclasses import replace

from functions.branches.rules.forest import claim_measured, grown
from functions.experiments.rules.judging import (
    MEASURES,
    Completed,
    QueuedRetest,
    ResultReport,
    RunConditions,
    branch_base,
    judge_run,
    reset_to,
)
from functions.experiments.rules.verdict import NOT_COMPARED, key_of
from functions.trust.rules.retests import SPARE, next_seed
from functions.trust.rules.ruling import retest_of
from state.decisions import Ending, Retest
from state.derived import judged_score
from state.errors import Conflict
from state.facts import Comparison, RetestFacts, RunFacts
from state.records import OPEN, Experiment

CLAIMED = (
    "the lab trains this tag: what its agent measured is a claim, and only the lab's run of its code counts"
)
"""Reason of a claim's discard, and of an agent's own retest that is no evidence."""

OF_THE_RUN = ("tree_id", "diff_id", "diff_differs", "sent_diff_id", "score")
"""Fields of a claim that the lab's run of its code sets."""
FAILED = frozenset({"crash", "timeout", "invalid"})
"""Final statuses of a run of the lab after which a claim is not run again."""
NODE_FIELDS = ("committed", "forked", "outdated")
"""Fields that a node's place in its trace sets; a claim has its place before it is measured."""


def is_claim(run: RunFacts) -> bool:
    """Whether a report on this run is a claim."""
    return run.experiment.attempt == 0 and run.tag.takes_claims


def judge_report(report: ResultReport, run: RunFacts, under: RunConditions, beside: Comparison) -> Ending:
    """The verdict on a reported result. A claim is a discard, and an agent's own retest is no evidence."""
    judged = judge_run(report, run, under, beside)
    if not is_claim(run) or judged.status == "invalid":
        return judged
    answer = Completed.model_validate(judged.answer)
    if run.first is not None:
        told = {"claimed": True, "reason": CLAIMED}
        answer = answer.model_copy(update={**told, "p_better": None})
        return judged._replace(fields={**judged.fields, **told}, answer=answer, repeat=None)
    return _claimed(judged, answer, report, run, under, beside)


def _claimed(
    judged: Ending,
    if_true: Completed,
    report: ResultReport,
    run: RunFacts,
    under: RunConditions,
    beside: Comparison,
) -> Ending:
    """The ending of a claim; `if_true`: what a true claim would be answered."""
    e, best = run.experiment, beside.best
    base = branch_base(run, under.key, beside)
    retest = QueuedRetest(retest_id=f"{e.experiment_id}.2", seed=next_seed(e.seed, ()))
    answer = if_true.model_copy(
        update={
            **vars(replace(NOT_COMPARED, delta=if_true.delta)),
            "status": "discard",
            "best_val_bpb": best.val_bpb if best else None,
            "action": "git_reset",
            "base_commit_sha": reset_to(run, base),
            "p_better": None,
            "trust": None,
            "retest": retest if judged.status == "keep" else None,
            "branch_improved": False if if_true.branch_improved is False else None,
            "judged_val_bpb": None,
            "repeats_best": False,
            "reason": if_true.reason if if_true.guard else CLAIMED,
            "claimed": True,
        }
    )
    growth, committed = grown(run, beside, "discard", None, builds_on=False)
    fields = {
        **report.measured,
        **report.key._asdict(),
        **committed,
        **answer.kept(),
        "claimed": True,
        "val_bpb": report.value,
        "score": report.score,
        "policy_version": run.policy_version,
    }
    return Ending(
        e,
        "discard",
        fields,
        answer=answer,
        report=judged.report,
        training_seconds=report.training_seconds,
        growth=growth,
    )


def owes_run(facts: RetestFacts) -> bool:
    """Whether the lab has to run a claim's code: no run is under way, and none has failed.

    After a failure it is not repeated: a commit that no clone has would fail on every GPU.
    """
    ours = [r for r in facts.retests if r.attempt > 0]  # the others are its agent's own
    return len(ours) <= SPARE and not any(r.status in (*OPEN, *FAILED) for r in ours)


def measured_by(facts: RetestFacts) -> Experiment | None:
    """The run of the lab that measured a claim; None while there is none."""
    return next((r for r in facts.retests if r.is_evidence), None)


def run_asked_for(facts: RetestFacts, *, train: bool = True) -> Retest:
    """One more run of an experiment's code. A claim's runs on the lab's class of GPU, in its agent's turn."""
    e = facts.experiment
    if not e.is_claim:
        return retest_of(e, facts.retests, facts.policy, train=train)
    on_its_class = e.model_copy(update={"gpu_class": facts.tag.claims_class, "best_key": None})
    retest = retest_of(on_its_class, facts.retests, facts.policy, train=train)
    return replace(retest, agent=e.agent, priority=0, takes_turn=True) if train else retest


def check_unmeasured(facts: RetestFacts) -> None:
    """Refuse another run of the lab for a claim that has one already. Raises Conflict: naming that run."""
    ours = (r for r in facts.retests if r.attempt > 0 and (r.status in OPEN or r.is_evidence))
    if facts.experiment.is_claim and (run := next(ours, None)) is not None:
        raise Conflict(
            f"the lab runs the code of this claim already: {run.experiment_id}",
            hint=f"wait for it: GET /api/experiment/{run.experiment_id}/wait; it judges the claim",
            fields={"retest_id": run.experiment_id},
        )


def would_be_kept(run: RunFacts, under: RunConditions, beside: Comparison) -> bool:
    """Whether a claim would be kept if it were true."""
    e = run.experiment
    return judge_run(ResultReport(e.val_bpb or 0.0, key_of(e), ""), run, under, beside).status == "keep"


def as_measured(run: RunFacts, by: Experiment) -> tuple[RunFacts, ResultReport]:
    """A claim and its report, as if the lab's run of its code were its own."""
    code = {name: getattr(by, name) for name in OF_THE_RUN}
    code["duplicate_of"] = run.experiment.duplicate_of or by.duplicate_of
    # each of the two has its own training time in the books
    names = MEASURES - {"training_seconds"}
    measured = {name: value for name in names if (value := getattr(by, name)) is not None}
    e = run.experiment.model_copy(update={**code, "measured_by": by.experiment_id, "gpu_class": by.gpu_class})
    return run._replace(experiment=e), ResultReport(by.val_bpb or 0.0, key_of(by), "", measured)


def judge_claim(
    claim: Experiment, report: ResultReport, run: RunFacts, under: RunConditions, beside: Comparison
) -> Ending:
    """The verdict on a claim by the lab's run, as if that were its first report.

    `run` and `report` are those of `as_measured`; `claim` is the experiment as it was read.
    """
    judged = judge_run(report, run, under, beside)
    told = {
        **{name: value for name, value in judged.fields.items() if name not in NODE_FIELDS},
        **{name: getattr(run.experiment, name) for name in (*OF_THE_RUN, "duplicate_of", "measured_by")},
        "reported": claim.val_bpb,
        "reason": judged.fields.get("reason") or "",
    }
    builds_on = under.agrees and bool(judged.fields.get("branch_improved"))
    points = judged_score(claim.model_copy(update={**told, "status": judged.status}), run.tag.direction)
    return judged._replace(
        experiment=claim,
        fields=told,
        answer=None,
        report=None,
        crashes=None,
        lifts_abort=False,
        gpu=None,
        training_seconds=None,
        growth=claim_measured(beside, beside.epoch, claim, judged.status, points, builds_on),
    )
