"""The hidden split: whether its numbers refuse a keep, and what is stored of them.

A keep has to be better on the visible metric, and not worse on the hidden one. Under the rule `strict` one number
decides. Under `confirmed` every keep is run again. Its first run must not be behind the best on the hidden split.
Then its mean has to be shown not to be worse: noise explains its gain with probability ALPHA at most.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from functions.experiments.rules.judging import RunConditions
from functions.trust.rules.noise import Mean, Repeats, run_again, standard_error, without
from state.decisions import Ending
from state.errors import Forbidden, Invalid
from state.facts import BASELINE, NOT_REFUSED, Comparison, HiddenFacts, Noise, Refusals, RunFacts, Spread
from state.noise import code_of
from state.policy import Policy
from state.records import Certificate, Direction, Experiment, Tag, dumps, score

ALPHA = 0.025
"""One-sided probability that noise alone explains the gain on the hidden split that a confirmed keep needs: its 95 %
confidence interval lies above zero."""
WORSE = "it is better on the visible metric, but the hidden split does not bear it out"
"""Reason of a discard. A run without a number there gets the same one: the verdict tells one bit."""


def unknown(name: str) -> str:
    """Reason of a discard while the best has no number: backups hold none."""
    return f"{name}, the best, has no number on the hidden split: have it run again (experiment::retest)"


@dataclass(frozen=True)
class HiddenRuns:
    """All known numbers of one class of GPU."""

    sums: Spread
    """Noise of the hidden metric, estimated as that of the visible one."""
    codes: Mapping[str, _CodeRuns] = field(repr=False)
    baseline: str | None = None
    """Identity of the baseline's code."""

    @classmethod
    def of(cls, facts: HiddenFacts) -> HiddenRuns:
        stored = dict(facts.stored)
        sums = Spread(int(stored.pop("df", None) or 0), float(stored.pop("squares", None) or 0))
        baseline = stored.pop(BASELINE, None)
        return cls(sums, {name: _parsed(text) for name, text in stored.items() if text}, baseline)

    def mean(self, code: str | None) -> Mean | None:
        found = self.codes.get(code or "")
        return Mean(found.repeats.mean, found.repeats.runs) if found else None

    def with_run(self, code: str, name: str, value: float) -> HiddenRuns:
        """With the number of one more run. A run that is there already stays as it is."""
        before = self.codes.get(code)
        if before is not None and name in before.runs:
            return self
        own = before.repeats if before else None
        after, learned = run_again(own, value, without(self.sums, own))
        kept = _CodeRuns({**(before.runs if before else {}), name: value}, after)
        return HiddenRuns(self.sums.with_(learned), {**self.codes, code: kept}, self.baseline)

    def without(self, code: str, names: Collection[str]) -> HiddenRuns:
        """Without these runs of a code."""
        before = self.codes[code]
        others = {name: runs for name, runs in self.codes.items() if name != code}
        left = HiddenRuns(without(self.sums, before.repeats), others, self.baseline)
        for name, value in before.runs.items():
            left = left if name in names else left.with_run(code, name, value)
        return left

    def fields(self, *codes: str) -> dict[str, str]:
        """Fields to store after a change of these codes. An empty text: the field goes."""
        texts = {code: _written(self.codes[code]) if code in self.codes else "" for code in codes}
        return {"df": str(self.sums.df), "squares": repr(self.sums.squares), **texts}


@dataclass(frozen=True)
class _CodeRuns:
    runs: Mapping[str, float]
    """Number of each run of the code, by its id, in the order in which they came."""
    repeats: Repeats
    """Their summary."""


def _parsed(text: str) -> _CodeRuns:
    kept = json.loads(text)
    return _CodeRuns(kept["runs"], Repeats(*kept["repeats"]))


def _written(kept: _CodeRuns) -> str:
    return dumps({"runs": kept.runs, "repeats": kept.repeats})


def is_behind(candidate: Mean | None, incumbent: Mean, direction: Direction) -> bool:
    """Whether a first look refuses it. A candidate without a number is refused."""
    return candidate is None or _gain(candidate, incumbent, direction) < 0


def is_unshown(candidate: Mean | None, incumbent: Mean, noise: Noise | None, direction: Direction) -> bool:
    """Whether the last look refuses it: noise may explain its gain (Student's t, one-sided, ALPHA)."""
    if candidate is None or noise is None or noise.sigma == 0:
        return is_behind(candidate, incumbent, direction)
    from scipy.special import stdtrit

    error = standard_error(noise.sigma, candidate.runs, incumbent.runs)
    return _gain(candidate, incumbent, direction) < float(stdtrit(noise.df, 1 - ALPHA)) * error


def _gain(candidate: Mean, incumbent: Mean, direction: Direction) -> float:
    return score(incumbent.value, direction) - score(candidate.value, direction)


# -- A tag that opens, and a run that ends.


def check_splits(tag: Tag, policy: Policy) -> None:
    """Refuse a split that nothing trusted can measure. Raises Invalid: of a swarm, or without what it asks for."""
    if tag.test_split and not tag.hidden_split:
        raise Invalid("a test split goes with a hidden split", hint="send hidden_split, too")
    if tag.hidden_split and tag.evaluator_command is None:
        raise Invalid("a hidden split is measured by the tag's evaluator", hint="send evaluator_command, too")
    if tag.hidden_split and policy.compare_by == "delta":
        raise Invalid(
            "a swarm's workers measure their runs on their own machines, and would read the hidden split there",
            hint="leave hidden_split out, or compare_by: delta",
        )


def check_hidden(value: float | None, run: RunFacts, beside: Comparison) -> None:
    """Refuse a number that no confined slot of the lab's own workers measured, and a first run without one.

    Raises:
        Forbidden: the run was on another slot. Invalid: the tag has no hidden split, or the first run no number.
    """
    e, tag, gpu = run.experiment, run.tag, beside.gpu
    if not tag.hidden_split or e.attempt == 0:
        if value is not None:
            raise Invalid(
                "no worker of the lab has measured a hidden split of this run", hint="leave hidden out"
            )
        return
    if gpu is None or not gpu.is_confined:
        raise Forbidden(
            f"{tag.name!r} has a hidden split, and {e.gpu_id or 'its GPU'} is no slot of the lab's own that confines"
            " its runs",
            hint="serve it with the lab's own worker in the isolation landlock or bwrap",
        )
    if value is None and run.first is None and (e.baseline or beside.best is None):
        raise Invalid(
            f"the evaluator has not measured the hidden split of {e.experiment_id}, which others are compared with",
            hint="run the evaluator's command by hand: docs/hidden-split.md says what it sends",
        )


def codes_beside(under: RunConditions, beside: Comparison) -> list[str]:
    """Identities of the codes whose numbers a verdict needs."""
    base = beside.base
    of_base = code_of(base, base.best_key) if base else None
    best = beside.best.code if beside.best else None
    return [code for code in (under.code, best, of_base) if code]


@dataclass(frozen=True)
class HiddenLook:
    """The hidden split's verdict on a run that ends."""

    refusals: Refusals = NOT_REFUSED
    fields: Mapping[str, str] = field(default_factory=dict, repr=False)
    """To be stored where the run counts."""

    def kept_after(self, ending: Ending) -> Mapping[str, str]:
        """Fields to store after this ending. Invalid runs and runs over their budget are no evidence."""
        is_evidence = ending.status in ("keep", "discard", "measured") and not ending.fields.get(
            "over_budget"
        )
        return self.fields if is_evidence else {}


def look(
    value: float | None, run: RunFacts, under: RunConditions, beside: Comparison, facts: HiddenFacts
) -> HiddenLook:
    """Weigh a run's number; None: it has none. The number of a claim's run by the lab is there already."""
    e, code = run.experiment, under.code
    known = HiddenRuns.of(facts)
    fields: dict[str, str] = {}
    if value is not None:
        known = known.with_run(code, e.experiment_id, value)
        fields = known.fields(code) | ({BASELINE: code} if e.baseline else {})
    if e.baseline or run.first is not None or (e.attempt == 0 and e.measured_by is None):
        return HiddenLook(NOT_REFUSED, fields)
    base = beside.base
    of_base = code_of(base, base.best_key) if base else known.baseline
    best = beside.best
    refusals = Refusals(
        _why(known, code, best.code, best.experiment_id, run) if best else None,
        _why(known, code, of_base, base.experiment_id if base else "the baseline", run),
        is_run_again=True,
    )
    return HiddenLook(refusals, fields)


def _why(known: HiddenRuns, code: str, other: str | None, name: str, run: RunFacts) -> str | None:
    """Why it is not kept above this code; None: it may be."""
    candidate, incumbent, e = known.mean(code), known.mean(other), run.experiment
    if incumbent is None:
        return unknown(name)
    runs_again = e.can_run_again and run.policy.max_retests > 0
    if e.judged_by == "confirmed" and not runs_again:
        refused = is_unshown(candidate, incumbent, known.sums.noise, run.tag.direction)
    else:
        refused = is_behind(candidate, incumbent, run.tag.direction)
    return WORSE if refused else None


def why_not_confirmed(
    e: Experiment, under: str | None, name: str, facts: HiddenFacts, direction: Direction
) -> str | None:
    """Why a keep that ran again is demoted; None: it stands. `under` is the code of the keep `name` below it."""
    known = HiddenRuns.of(facts)
    incumbent = known.mean(under)
    if incumbent is None:
        return unknown(name)
    candidate = known.mean(code_of(e, e.best_key))
    return WORSE if is_unshown(candidate, incumbent, known.sums.noise, direction) else None


# -- What operators are shown.


class Gains(BaseModel):
    """Means of gains on the visible split and on the hidden ones."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    keeps: int = Field(description="keeps that were compared with another run on both splits")
    visible_gain: float | None = Field(description="mean gain of these keeps; null: there is none")
    hidden_gain: float | None = Field(description="their mean gain on the hidden split")
    shrinkage: float | None = Field(description="share of the visible gain that the hidden split lacks")
    certificates: int = Field(description="certificates whose two sides were measured on the test split")
    test_gain: float | None = Field(description="mean gain of their candidates on the test split")
    test_reads: int = Field(description="experiments for which the test split was read, once each")


def gains_of(
    keeps: Sequence[Experiment],
    others: Sequence[Experiment],
    known: Mapping[str | None, HiddenFacts],
    certified: Sequence[Certificate],
    tests: HiddenFacts,
    direction: Direction,
) -> Gains:
    """Gains of keeps over the best of their time. `others` are these; `known` are the numbers by class of GPU."""
    by_name = {e.experiment_id: e for e in (*keeps, *others)}
    runs = {gpu_class: HiddenRuns.of(facts) for gpu_class, facts in known.items()}
    pairs = list[tuple[float, float]]()
    for e in keeps:
        other = by_name.get(e.compared_with or "")
        if other is None or e.delta is None or e.baseline:
            continue
        means = [runs[e.gpu_class].mean(code_of(each, each.best_key)) for each in (e, other)]
        if means[0] is not None and means[1] is not None:
            pairs.append((e.delta, _gain(means[0], means[1], direction)))
    visible, hidden = (_mean([pair[side] for pair in pairs]) for side in (0, 1))
    values = {
        name: json.loads(text).get("value") for name, text in tests.stored.items() if "test:" in name and text
    }
    both = [(values.get(f"test:{one.against}"), values.get(f"test:{one.experiment_id}")) for one in certified]
    tested = [score(a, direction) - score(b, direction) for a, b in both if a is not None and b is not None]
    return Gains(
        keeps=len(pairs),
        visible_gain=visible,
        hidden_gain=hidden,
        shrinkage=1 - hidden / visible if visible and hidden is not None else None,
        certificates=len(tested),
        test_gain=_mean(tested),
        test_reads=int(tests.stored.get("test_reads") or 0),
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
