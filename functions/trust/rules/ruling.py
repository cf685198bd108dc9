"""The next step for a best and its rivals, and the ruling that commits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from functions.experiments.rules.judging import mean_of
from functions.experiments.rules.keeping import (
    SeedScores,
    falls,
    restored,
    revalued,
    rises,
    stands,
    without_rivals,
)
from functions.experiments.rules.verdict import judge
from functions.fold import CONTRADICTED, largest_gain
from functions.runs.rules.time_limits import limits_again
from functions.trust.rules.noise import further_mean, near_margin, p_better, parsed
from functions.trust.rules.retests import (
    NO_FAULT,
    Confirm,
    Contender,
    Demote,
    Dismiss,
    Effort,
    GiveUp,
    Promote,
    Revalue,
    RunAgain,
    Step,
    due_step,
    fresh_runs,
    learned,
    next_seed,
    own_noise,
    shift_of,
)
from functions.trust.rules.retracting import largest_gain_now, link_of, lost_to
from state.decisions import Retest, Ruling
from state.facts import Noise, RaceFacts, RetractionFacts
from state.policy import Policy
from state.records import OPEN, RETESTED, Best, Experiment, score

HOPELESS = "it beats the first run of the keep under it, but not what both runs of that bear out: it is not run again"
"""Reason of a demotion without a retest."""


@dataclass(frozen=True)
class Race:
    """A best with its rivals, and the next step."""

    facts: RaceFacts

    @property
    def noise(self) -> Noise | None:
        """Noise on the best's class of GPU."""
        return self.facts.noise.noise

    @property
    def effort(self) -> Effort:
        policy = self.facts.policy
        return Effort(policy.baseline_repeats, policy.max_retests)

    def step(self, *, may_run: bool = True) -> Step | None:
        """The next step; None: there is nothing to do, or a retest is awaited. `may_run`: the budget allows a run."""
        seeds = self.facts.best.seeds
        own = own_noise(self.noise, seeds)
        chain, rivals = self._contenders()
        effort = self.effort if may_run else replace(self.effort, may_run=False)
        return due_step(chain, rivals, own.sigma if own else None, effort, shift_of(seeds))

    def retest(self, step: RunAgain) -> Retest:
        first = self.facts.runs[step.name]
        return retest_of(first, self.facts.retests[step.name], self.facts.policy)

    def revaluation(self, step: Revalue, facts: RetractionFacts) -> Ruling:
        """The ruling that gives the incumbent the mean of its further runs.

        `facts` have the other keeps and the results that lost to it.
        """
        e, direction = self.facts.runs[step.name], self.facts.tag.direction
        value = self._borne_out(e)
        kept = [link_of(k) for k in facts.keeps if k.experiment_id != e.experiment_id]
        kept.append(link_of(e).model_copy(update={"val_bpb": value}))
        kept.sort(key=lambda link: score(link.val_bpb, direction))
        after = restored(self.facts.best, e.experiment_id, kept, lost_to(e, facts.beaten), direction)
        assert after is not None  # it is there itself
        if after.experiment_id != e.experiment_id:
            return without_gain(self._demoted(e, after), facts)
        fields, told = self._revalued(e, value), {"judged_val_bpb": value, **_told_of(after)}
        tag_fields = {"baseline_val_bpb": value} if e.baseline else {}
        ruling = Ruling(e, "keep", fields, self.facts.best, after, "revalued", told, tag_fields)
        return without_gain(ruling, facts)

    def ruling(self, step: Confirm | Demote | GiveUp | Promote | Dismiss) -> Ruling:
        """The changes that a step makes, with what it teaches about seeds."""
        ruling = self._ruling(step)
        chain, rivals = self._contenders()
        seeds = learned(step, chain, rivals, self.facts.best.seeds, self.noise)
        return replace(ruling, after=ruling.after.model_copy(update={"seeds": seeds}))

    def loses_largest_gain(self, ruling: Ruling) -> bool:
        """Whether the ruling demotes or contradicts the keep with the tag's largest gain."""
        e = ruling.experiment
        is_largest = e.best_key is None and e.delta is not None and e.delta == self.facts.tag.largest_gain
        is_contradicted = ruling.fields.get("reason") == CONTRADICTED
        return is_largest and e.status == "keep" and (ruling.status == "discard" or is_contradicted)

    def _ruling(self, step: Confirm | Demote | GiveUp | Promote | Dismiss) -> Ruling:
        best, direction = self.facts.best, self.facts.tag.direction
        if isinstance(step, Dismiss):
            incumbent = self.facts.runs[best.chain[0].experiment_id]
            return Ruling(incumbent, incumbent.status, {}, best, without_rivals(best), None, {})
        e = self.facts.runs[step.name]
        match step:
            case GiveUp():
                return Ruling(e, "keep", {"trust": "unconfirmed"}, best, best, "unconfirmed", {})
            case Confirm():
                return self._confirmed(e, stands(best, step.name, direction))
            case Promote():
                return self._promoted(e, rises(best, step.name))
            case Demote():
                after = falls(best, step.name, direction)
                return self._demoted(e, after, step.reason, is_hidden=step.is_hidden)

    def _confirmed(self, e: Experiment, after: Best) -> Ruling:
        value = self._borne_out(e)
        if value != e.judged:
            after = revalued(after, e.experiment_id, value, self.facts.tag.direction)
        fields: dict[str, Any] = {"p_better": self._chance(e), **self._revalued(e, value)}
        if e.trust in ("provisional", "unconfirmed"):
            fields["trust"] = "confirmed"
            told = self._told(e, after)
            ruling = Ruling(e, "keep", fields, self.facts.best, after, "confirmed", told)
        elif value != e.judged:
            told = {"judged_val_bpb": value, **_told_of(after)}
            ruling = Ruling(e, "keep", fields, self.facts.best, after, "revalued", told)
        else:
            ruling = Ruling(e, "keep", fields, self.facts.best, after, None, {})
        before, sure = self.facts.tag.largest_gain, e.model_copy(update={**fields, "trust": "confirmed"})
        gain = largest_gain(before, self.facts.tag.kept, sure)
        return replace(ruling, tag_fields={"largest_gain": gain} if gain != before else {})

    def _promoted(self, e: Experiment, after: Best) -> Ruling:
        best = self.facts.best
        fields = {
            **self._against(best, _judged(e), improved=True),
            "trust": "confirmed",
            "compared_with": best.experiment_id,
            "base_commit_sha": e.commit_sha,
            "p_better": self._chance(e),
        }
        return Ruling(e, "keep", fields, best, after, "promoted", self._told(e, after))

    def _demoted(
        self, e: Experiment, after: Best, reason: str | None = None, *, is_hidden: bool = False
    ) -> Ruling:
        value = self._borne_out(e)
        fields = {
            **self._against(after, value, improved=False),
            **self._revalued(e, value),
            "delta": e.delta,  # the gain of its time stays
            "trust": "demoted",
            "base_commit_sha": after.commit_sha,
            "p_better": self._chance(e),
        }
        if not fields.get("reason") and (reason or not self.facts.retests[e.experiment_id]):
            fields["reason"] = reason or HOPELESS
        if is_hidden:
            fields["hidden_refused"] = True
        told = self._told(e, after)
        if len(after.chain) == 1:
            told["retest"] = [rival.experiment_id for rival in after.rivals]
        return Ruling(e, "discard", fields, self.facts.best, after, "demoted", told)

    def _against(self, best: Best, value: float, *, improved: bool) -> dict[str, Any]:
        """The fields of a verdict that compare a value with a best."""
        margin = near_margin(self.facts.policy, self.noise)
        return vars(judge(value, best.val_bpb, self.facts.tag.direction, margin, improved=improved))

    def _borne_out(self, e: Experiment) -> float:
        """An experiment's value, or the mean of its further runs if they contradict it."""
        trial = self._contender(e.experiment_id).trial
        if trial.further is None:
            return _judged(e)
        return score(trial.further, self.facts.tag.direction)  # and back

    def _revalued(self, e: Experiment, value: float) -> dict[str, Any]:
        if value == e.judged:
            return {}
        return {"judged_val_bpb": value, "reason": CONTRADICTED}

    def _contenders(self) -> tuple[list[Contender], list[Contender]]:
        """The chain and the rivals of its incumbent."""
        best = self.facts.best
        chain, rivals = (
            [self._contender(link.experiment_id) for link in links] for links in (best.chain, best.rivals)
        )
        return chain, rivals

    def _contender(self, name: str) -> Contender:
        e, its = self.facts.runs[name], self.facts.retests[name]
        direction = self.facts.tag.direction
        by_seed = sorted(its, key=lambda r: r.seed or 0)
        fresh = [r.own_value for r in fresh_runs(e, by_seed) if r.own_value is not None]
        links = (*self.facts.best.chain, *self.facts.best.rivals)
        first, runs = next(
            (link.val_bpb, parsed(kept))
            for link, kept in zip(links, self.facts.noise.runs, strict=True)
            if link.experiment_id == name
        )
        further = further_mean(runs, first)
        return Contender(
            SeedScores(
                name,
                score(first, direction),
                tuple(score(value, direction) for value in fresh),
                None if further is None else score(further, direction),
            ),
            e.trust,
            started=len(its),
            under_way=sum(r.status in OPEN for r in its),
            broke=any(r.status in ("crash", "timeout") and r.error_kind not in NO_FAULT for r in its),
            overran=any(r.over_budget for r in its),
            trainable=e.can_run_again,
            is_baseline=e.baseline
            or (self.facts.tag.baseline_id is None and bool(e.improved) and e.delta == 0),
        )

    def _told(self, e: Experiment, after: Best) -> dict[str, Any]:
        """Fields of a ruling's event: the values that decided, and the new best."""
        retests = self.facts.retests[e.experiment_id]
        return {
            "retests": [r.own_value for r in fresh_runs(e, retests)],
            "against": self.facts.best.chain[0].experiment_id,
            **_told_of(after),
        }

    def _chance(self, e: Experiment) -> float | None:
        """Probability to beat the incumbent, from all runs of both; None while it is not known."""
        links = (*self.facts.best.chain, *self.facts.best.rivals)
        chain = [link.experiment_id for link in self.facts.best.chain]
        under = chain[: chain.index(e.experiment_id)] if e.experiment_id in chain else chain
        if not under or self.noise is None:
            return e.p_better
        kept = {link.experiment_id: runs for link, runs in zip(links, self.facts.noise.runs, strict=True)}
        mine, theirs = (mean_of(parsed(kept[name])) for name in (e.experiment_id, under[0]))
        if mine is None or theirs is None:
            return e.p_better
        return p_better(mine, theirs, self.noise, self.facts.tag.direction)


def _told_of(after: Best) -> dict[str, Any]:
    """The new best, its value and its commit."""
    return {
        "best_experiment_id": after.experiment_id,
        "best_val_bpb": after.val_bpb,
        "base_commit_sha": after.commit_sha,
    }


def without_gain(ruling: Ruling, behind: RetractionFacts) -> Ruling:
    """The ruling with another keep's gain as the tag's largest, if its experiment had the largest."""
    tag_fields = {**ruling.tag_fields, **largest_gain_now(behind)}
    return replace(ruling, tag_fields=tag_fields, finishes=behind.tag.finishes)


def _judged(e: Experiment) -> float:
    assert e.judged is not None  # it is in the chain, or one of its rivals
    return e.judged


def retest_of(
    first: Experiment, retests: Sequence[Experiment], policy: Policy, *, train: bool = True
) -> Retest:
    """One more run on the next fixed seed, as long as the first; without `train` by its agent or a swarm's worker."""
    seed = next_seed(first.seed, [r.seed for r in retests if r.status in (*OPEN, RETESTED)])
    if not train or first.worker_id is not None:
        return Retest(first, seed, agent=first.agent or "agent")
    run_s, timeout_s = limits_again(first, policy)
    return Retest(first, seed, run_s=run_s, timeout_s=timeout_s)


def in_words(step: Step) -> str:
    """A step for operators, such as `confirm mar11-7`."""
    return f"{type(step).__name__} {getattr(step, 'name', 'rivals')}".lower()
