"""A tag in memory, changed by the rules of complete and judge_retests, without a lab."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from functions.experiments.rules.keeping import (
    KEEP_RULES,
    SURE_SIGMAS,
    SeedScores,
    falls,
    new_best,
    plausible_margin,
    restored,
    revalued,
    rises,
    stands,
    without_rivals,
)
from functions.experiments.rules.verdict import judge
from functions.trust.rules.noise import Repeats, cautious, further_mean, run_again, run_of_worker, without
from functions.trust.rules.retests import (
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
    learned,
    own_noise,
    shift_of,
)
from state.facts import Noise, Spread
from state.noise import noise_entry
from state.records import Best, Direction, Experiment, Link, Trust, score

ENOUGH = 1000
"""More steps than any result causes."""

_ANY = Experiment(
    experiment_id="",
    tag="",
    number=0,
    status="running",
    hypothesis="",
    description="",
    category="other",
    commit_sha="",
    diff_summary="",
    registered_at=0.0,
    attempt=1,
)


@dataclass
class SimulatedRetest:
    """A retest; `outcome` is its value, or why there is none."""

    of: str
    nth: int
    """Counts from 0, and decides the seed."""
    outcome: float | Literal["open", "broke", "lost"] = "open"


@dataclass
class TriedExperiment:
    """An experiment that has a value."""

    name: str
    value: float
    trainable: bool
    status: Literal["keep", "discard"]
    trust: Trust | None
    is_baseline: bool
    gain: float = 0.0
    """Gain over the best; 0 if that is not plausible."""
    retests: list[SimulatedRetest] = field(default_factory=list)

    @property
    def fresh(self) -> tuple[float, ...]:
        return tuple(r.outcome for r in self.retests if isinstance(r.outcome, float))


class KeepingTag:
    """Judges first runs by a keep rule, asks for retests, and confirms or demotes keeps by them."""

    def __init__(self, keep_rule: str, effort: Effort, direction: Direction = "minimize") -> None:
        self.effort = effort
        self.direction: Direction = direction
        self.best: Best | None = None
        self.tried: dict[str, TriedExperiment] = {}
        self.waiting: deque[SimulatedRetest] = deque()
        """Retests that have not run yet."""
        self.judged: list[tuple[str, str]] = []
        """Every present or former incumbent, with its predecessor."""
        self.sums = Spread()
        self.largest_gain: float | None = None
        self._codes: dict[str, str] = {}
        """Code of each experiment. Several may have the same code."""
        self._repeats: dict[str, Repeats] = {}
        """Repeats by code, and in a swarm by worker and code."""
        self.keep_rule = keep_rule
        """The tag's policy for the next completed experiments. A worker trains all of them."""

    @property
    def noise(self) -> Noise | None:
        """Measured from the repeats so far."""
        return self.sums.noise

    @property
    def own_noise(self) -> Noise | None:
        """Noise without the effect of the seed that all runs share."""
        return own_noise(self.noise, self.best.seeds) if self.best else self.noise

    def standing(self) -> list[str]:
        """The incumbent, then every keep on top of it."""
        return [link.experiment_id for link in self.best.chain] if self.best else []

    def replaced(self) -> list[tuple[str, str]]:
        """Every present keep, with the one that it replaced."""
        return self.judged + [(over, under) for under, over in pairwise(self.standing())]

    def complete(
        self,
        name: str,
        value: float,
        trainable: bool = True,
        code: str | None = None,
        worker: str | None = None,
    ) -> TriedExperiment | None:
        """Judge a first run by the mean of all runs of its code. None: its code is on the chain already.

        `worker`: the worker, in a swarm.
        """
        self._codes[name] = code or name
        self._learn(name, value, worker)
        if self._codes[name] in map(self._codes.get, self.standing()):
            return None
        value = self._repeats[self._codes[name]].mean
        best = self.best
        kept = judge(value, best.val_bpb if best else None, self.direction, 0.0)
        tried = TriedExperiment(name, value, trainable, kept.status, None, best is None)
        plausible = plausible_margin(self.largest_gain, sum(t.status == "keep" for t in self.tried.values()))
        e = _ANY.model_copy(update={"experiment_id": name, "commit_sha": name, "keep_rule": self.keep_rule})
        tried.trust = self._trust(tried, e.judged_by, plausible)
        is_plausible = kept.improved and best and (plausible is None or kept.delta <= plausible)
        tried.gain = kept.delta if is_plausible else 0.0
        if tried.trust != "provisional":
            self.largest_gain = max(tried.gain, self.largest_gain or 0.0) or None
        self.tried[name] = tried
        after = new_best(e, value, best, self.direction)
        if kept.improved and best is not None and after is not None and not after.chain:
            self.judged.append((name, best.experiment_id))
        self.best = after or best
        return tried

    def end(
        self, retest: SimulatedRetest, outcome: float | Literal["broke", "lost"], worker: str | None = None
    ) -> None:
        """Take the outcome of a retest."""
        retest.outcome = outcome
        if isinstance(outcome, float):
            self._learn(retest.of, outcome, worker)

    def judge_retests(self) -> list[Step]:
        """Take all steps that are due, and return them."""
        steps: list[Step] = []
        while (step := self.due_step()) is not None:
            self.take(step)
            steps.append(step)
            assert len(steps) < ENOUGH, steps[-9:]
        return steps

    def due_step(self) -> Step | None:
        """The next step of `judge_retests`, or None."""
        if self.best is None or not self.best.chain:
            return None
        return due_step(
            self._contenders(self.best.chain),
            self._contenders(self.best.rivals),
            own.sigma if (own := self.own_noise) else None,
            self.effort,
            shift_of(self.best.seeds),
        )

    def take(self, step: Step) -> None:
        assert self.best is not None
        chain, rivals = self._contenders(self.best.chain), self._contenders(self.best.rivals)
        seeds = learned(step, chain, rivals, self.best.seeds, self.noise)
        best = self.best.model_copy(update={"seeds": seeds})
        match step:
            case RunAgain(name):
                its = self.tried[name].retests
                its.append(SimulatedRetest(name, len(its)))
                self.waiting.append(its[-1])
            case Confirm(name):
                self.tried[name].trust = "confirmed"
                self.largest_gain = max(self.tried[name].gain, self.largest_gain or 0.0) or None
                self.best = stands(best, name, self.direction)
                if (further := self.trial(name).further) is not None:
                    self.tried[name].value = score(further, self.direction)
                    self.best = revalued(self.best, name, self.tried[name].value, self.direction)
                gone = best.chain[: len(best.chain) - len(self.best.chain) + 1]
                self.judged += [(o.experiment_id, u.experiment_id) for u, o in pairwise(gone)]
            case Demote(name):
                self.tried[name].trust, self.tried[name].status = "demoted", "discard"
                self.best = falls(best, name, self.direction)
            case GiveUp(name):
                self.tried[name].trust = "unconfirmed"
            case Promote(name):
                self.tried[name].trust, self.tried[name].status = "confirmed", "keep"
                self.best = rises(best, name)
                self.judged.append((name, best.experiment_id))
            case Revalue(name):
                further = self.trial(name).further
                assert further is not None
                self._revalue(name, best, further)
            case Dismiss():
                self.best = without_rivals(best)

    def _revalue(self, name: str, best: Best, further: float) -> None:
        """Set the incumbent's value to the mean of its further runs. A better keep before it takes its place."""
        value = score(further, self.direction)
        worth = {t.name: t.value for t in self.tried.values() if t.status == "keep"} | {name: value}
        kept = sorted(worth, key=lambda n: score(worth[n], self.direction))
        links = [Link(experiment_id=n, val_bpb=worth[n], commit_sha=n) for n in kept]
        after = restored(best, name, links, [], self.direction)
        self.tried[name].value = value
        if after is not None and after.experiment_id != name:
            self.tried[name].trust, self.tried[name].status = "demoted", "discard"
        self.best = after

    def _contenders(self, links: list[Link]) -> list[Contender]:
        return [self.contender(link.experiment_id) for link in links]

    def contender(self, name: str) -> Contender:
        its = self.tried[name]
        return Contender(
            self.trial(name),
            its.trust,
            started=len(its.retests),
            under_way=sum(r.outcome == "open" for r in its.retests),
            broke=any(r.outcome == "broke" for r in its.retests),
            trainable=its.trainable,
            is_baseline=its.is_baseline,
        )

    def trial(self, name: str) -> SeedScores:
        its = self.tried[name]
        further = further_mean(self._repeats[self._codes[name]], its.value)
        return SeedScores(
            name,
            score(its.value, self.direction),
            tuple(score(value, self.direction) for value in its.fresh),
            None if further is None else score(further, self.direction),
        )

    def _trust(self, tried: TriedExperiment, rule: str, plausible: float | None) -> Trust | None:
        if self.best is None:
            return "first"
        if rule == "strict" or tried.status == "discard":
            return None
        noise = self.own_noise
        decision = KEEP_RULES[rule](
            SeedScores(tried.name, score(tried.value, self.direction)),
            self.trial(self.best.experiment_id),
            cautious(noise, SURE_SIGMAS) if noise else None,
            plausible,
        )
        match decision:
            case "discard":
                return None
            case "keep":
                return "confirmed"
            case "provisional":
                return "provisional" if tried.trainable else "unconfirmed"

    def _learn(self, name: str, value: float, worker: str | None) -> None:
        code = self._codes[name]
        before, own = self._repeats.get(code), noise_entry(code, worker)
        if worker is None:
            self._repeats[code], learned = run_again(before, value, without(self.sums, before))
        else:
            its = self._repeats.get(own)
            others = without(self.sums, its)
            self._repeats[code], self._repeats[own], learned = run_of_worker(before, its, value, others)
        self.sums = self.sums.with_(learned)
