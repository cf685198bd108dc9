"""Trace schedulers rank a tag's traces; the first free trace in that order is selected."""

from __future__ import annotations

import hashlib
import itertools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, pstdev
from typing import ClassVar, Protocol

from state.errors import Conflict, Invalid

LEAST_WEIGHT = 0.05
"""Least weight of a trace: a bad trace is selected now and then, too, until it improves or dies."""


@dataclass(frozen=True)
class TraceView:
    trace_id: str
    number: int
    """By creation, in the tag."""
    virtual_time: int = 0
    """The trace with the lowest one is next; see `turn_taken`."""
    last_selected: int = 0
    """The `select_seq` of its newest selection; 0: none."""
    length: int = 0
    """Number of committed nodes, including crashes."""
    kept: int = 0
    children: int = 0
    """Number of its committed selections."""
    in_flight: int = 0
    """Number of its open selections."""
    scores: Sequence[float | None] = ()
    """Scores of its newest committed nodes, newest last: lower is better (`verdict.score`), None is a crash."""
    best_score: float | None = None
    """The lowest score of all its nodes."""
    priority: float = 0.0


@dataclass(frozen=True)
class ForestView:
    """A tag's traces at one moment."""

    tag: str
    select_seq: int
    """Number of the selection to be made."""
    traces: Sequence[TraceView]
    virtual_time: int = 0
    """The virtual time at which the newest selection started."""
    params: Mapping[str, float] = field(default_factory=dict)
    """From `checked_params`."""


@dataclass(frozen=True)
class Ranked:
    """One trace in a scheduler's order."""

    trace_id: str
    score: float | None
    """Weight or probability, larger is better; None if traces take turns."""


@dataclass(frozen=True)
class Parameter:
    """A parameter in `scheduler_params`; the range includes both ends."""

    default: float
    least: float
    most: float


class TraceScheduler(ABC):
    """Orders traces. The order depends on the forest alone, so a replay selects the same traces."""

    parameters: ClassVar[Mapping[str, Parameter]] = {}

    @abstractmethod
    def rank(self, forest: ForestView) -> list[Ranked]:
        """Every trace once, most wanted first; random numbers come from `drawn`."""


class RoundRobin(TraceScheduler):
    """Traces take turns: all get the same number of selections."""

    def rank(self, forest: ForestView) -> list[Ranked]:
        return [Ranked(t.trace_id, None) for t in sorted(forest.traces, key=lambda t: turn(t, forest))]


class Priority(TraceScheduler):
    """The trace with the highest priority; equal ones take turns."""

    def rank(self, forest: ForestView) -> list[Ranked]:
        return _by_score(forest, {t.trace_id: t.priority for t in forest.traces})


class Weighted(TraceScheduler):
    """The trace with the largest sigmoid((score - median) / MAD) / (1 + children + in flight).

    ShinkaEvolve samples parents by these weights (Lange, Imajuku and Cetin 2025, arXiv:2509.19349). The largest
    quotient each time is d'Hondt's method: numbers of selections are proportional to the numerators, without chance.
    The score is the negated best score of the trace; MAD is the median absolute deviation. A trace without a node
    counts as median.
    """

    def rank(self, forest: ForestView) -> list[Ranked]:
        best = {t.trace_id: -t.best_score for t in forest.traces if t.best_score is not None}
        promise = {name: max(LEAST_WEIGHT, _sigmoid(z)) for name, z in _deviations(best).items()}
        for trace in forest.traces:
            promise.setdefault(trace.trace_id, LEAST_WEIGHT if trace.scores else 0.5)
        return _by_score(
            forest, {t.trace_id: promise[t.trace_id] / (1 + t.children + t.in_flight) for t in forest.traces}
        )


class Softmax(TraceScheduler):
    """A draw by softmax over potentials; each trace has at least the probability `eps` / number of traces.

    A trace's potential is the sum of its length, its keeps and a random number, each standardised over the traces
    and times its parameter. A negative `length` prefers short traces; `kept` cannot be negative, because then a crash
    would be worth more than a keep. The order is drawn without replacement (Efraimidis and Spirakis, Information
    Processing Letters 97, 2006, algorithm A), so that the shares also hold among the free traces only.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "length": Parameter(0.0, -100.0, 100.0),
        "kept": Parameter(1.0, 0.0, 100.0),
        "random": Parameter(0.0, 0.0, 100.0),
        "temperature": Parameter(1.0, 0.01, 100.0),
        "eps": Parameter(0.1, 0.001, 1.0),
    }

    def rank(self, forest: ForestView) -> list[Ranked]:
        shares = self.shares(forest)
        # an exponential race: the trace with share p arrives after a time with mean 1 / p
        arrival = {name: -math.log(drawn(forest, name, "order")) / p for name, p in shares.items()}
        order = sorted(forest.traces, key=lambda t: (arrival[t.trace_id], *turn(t, forest)))
        return [Ranked(t.trace_id, shares[t.trace_id]) for t in order]

    def shares(self, forest: ForestView) -> dict[str, float]:
        """The probability of each trace to be first; they add up to 1."""
        traces, eps = forest.traces, self._value(forest, "eps")
        potentials = {
            "length": [float(t.length) for t in traces],
            "kept": [float(t.kept) for t in traces],
            "random": [drawn(forest, t.trace_id, "potential") for t in traces],
        }
        standard = {name: _standardised(values) for name, values in potentials.items()}
        heats = [
            math.fsum(self._value(forest, name) * standard[name][n] for name in potentials)
            / self._value(forest, "temperature")
            for n in range(len(traces))
        ]
        grown = [math.exp(heat - max(heats)) for heat in heats]
        whole = math.fsum(grown)
        return {
            t.trace_id: (1 - eps) * g / whole + eps / len(traces) for t, g in zip(traces, grown, strict=True)
        }

    def _value(self, forest: ForestView, name: str) -> float:
        return forest.params.get(name, self.parameters[name].default)


class Uct(TraceScheduler):
    """The trace with the largest Q + c * sqrt(ln(1 + N + O) / (1 + n + o)): WU-UCT (Liu et al., ICLR 2020).

    n and o are the numbers of the trace's committed and open selections; N and O are their sums over all traces.
    Open selections count, so that parallel selections spread over the traces. Q is the mean reward of the trace's
    committed nodes, or 0.5 without nodes. The reward of a node is the share of the forest's other nodes that it
    beats; equal nodes count half. So every success is worth more than every crash. The metric's scale, direction
    and outliers do not matter.
    """

    parameters: ClassVar[Mapping[str, Parameter]] = {"c": Parameter(math.sqrt(2), 0.0, 100.0)}

    def rank(self, forest: ForestView) -> list[Ranked]:
        c = forest.params.get("c", self.parameters["c"].default)
        begun = sum(t.children + t.in_flight for t in forest.traces)
        quality = _qualities(forest)
        return _by_score(
            forest,
            {
                t.trace_id: quality[t.trace_id]
                + c * math.sqrt(math.log1p(begun) / (1 + t.children + t.in_flight))
                for t in forest.traces
            },
        )


SCHEDULERS: Mapping[str, TraceScheduler] = {
    "round_robin": RoundRobin(),
    "priority": Priority(),
    "weighted": Weighted(),
    "softmax": Softmax(),
    "uct": Uct(),
}


OWN: dict[str, TraceScheduler] = {}
"""Schedulers of your own, see `kernel.own.load`."""


def scheduler_named(name: str) -> TraceScheduler:
    """A scheduler of Nightjar's or of your own. Raises Invalid: there is none with this name."""
    found = SCHEDULERS.get(name) or OWN.get(name)
    if found is None:
        raise Invalid(
            f"there is no scheduler {name!r}",
            hint=f"name one of {', '.join([*SCHEDULERS, *OWN])}; one of your own is FILE.CLASS",
        )
    return found


def checked_params(name: str, scheduler: TraceScheduler, params: Mapping[str, float]) -> dict[str, float]:
    """All parameters of a scheduler, defaults included. Raises Invalid: unknown, or out of range."""
    known = scheduler.parameters
    hint = (
        "its parameters: " + ", ".join(f"{each} ({p.least:g} to {p.most:g})" for each, p in known.items())
        if known
        else "leave scheduler_params empty"
    )
    for each, value in params.items():
        if each not in known:
            raise Invalid(f"the scheduler {name!r} has no parameter {each!r}", hint=hint)
        if not known[each].least <= value <= known[each].most:
            raise Invalid(f"{each!r} of the scheduler {name!r} is {value!r}", hint=hint)
    return {each: float(params.get(each, p.default)) for each, p in known.items()}


def ranking(name: str, scheduler: TraceScheduler, forest: ForestView) -> list[Ranked]:
    """A scheduler's order. Raises Conflict: one of your own fails, misses a trace, or gives no finite score."""
    if name in SCHEDULERS:
        return scheduler.rank(forest)
    try:
        ranked = list(scheduler.rank(forest))
        named = [r.trace_id for r in ranked]
        counts = all(r.score is None or math.isfinite(r.score) for r in ranked)
    except Exception as problem:  # a foreign class may raise anything
        raise _unusable(name, f"failed with {type(problem).__name__}: {problem}") from problem
    if sorted(named, key=str) != sorted(t.trace_id for t in forest.traces):
        raise _unusable(name, f"ranked {named!r}, not every trace once")
    if not counts:
        raise _unusable(name, "gave a trace a score that is not a finite number")
    return ranked


def _unusable(name: str, problem: str) -> Conflict:
    return Conflict(
        f"the scheduler {name!r} {problem}",
        hint="repair it, or choose another scheduler with POST /api/trace/configure",
        fields={"code": "broken_scheduler"},
    )


class HasTurn(Protocol):
    """A trace or a forest: a record or a view."""

    @property
    def virtual_time(self) -> int: ...


def turn_taken(trace: HasTurn, forest: HasTurn) -> tuple[int, int]:
    """New virtual times of a trace and of its forest when the trace is selected.

    Stride scheduling with equal strides (Waldspurger and Weihl, MIT/LCS/TM-528, 1995), with the virtual time of
    start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). A trace that is new, or was busy or closed, starts
    at the forest's time: it gets no extra turns for its absence.
    """
    start = max(trace.virtual_time, forest.virtual_time)
    return start + 1, start


def turn(trace: TraceView, forest: ForestView) -> tuple[int, int, int]:
    """Sort key for turns: the next trace has the least key, and no two are equal. Your own may use it.

    Among equal virtual times, the trace that was not selected for longest comes first.
    """
    return max(trace.virtual_time, forest.virtual_time), trace.last_selected, trace.number


def drawn(forest: ForestView, *what: str) -> float:
    """A pseudo-random number in (0, 1), the same in any process for the same selection and text."""
    text = "\n".join((forest.tag, str(forest.select_seq), *what))
    bits = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 12
    return (bits + 0.5) / 2.0**52


def _by_score(forest: ForestView, scores: Mapping[str, float]) -> list[Ranked]:
    """The largest score first; equal ones take turns."""
    order = sorted(forest.traces, key=lambda t: (-scores[t.trace_id], *turn(t, forest)))
    return [Ranked(t.trace_id, scores[t.trace_id]) for t in order]


def _deviations(values: Mapping[str, float]) -> dict[str, float]:
    """How many median absolute deviations each value lies above the median."""
    if not values:
        return {}
    middle = median(values.values())
    apart = [abs(value - middle) for value in values.values()]
    # if more than half are equal, the median deviation is 0: take the mean
    scale = median(apart) or fmean(apart)
    return {name: (value - middle) / scale if scale else 0.0 for name, value in values.items()}


def _standardised(values: Sequence[float]) -> list[float]:
    spread = pstdev(values) if values else 0.0
    return [(value - fmean(values)) / spread if spread else 0.0 for value in values]


def _sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def _qualities(forest: ForestView) -> dict[str, float]:
    """The mean reward of each trace's nodes, see `Uct`; every success beats a crash."""
    equal = Counter(itertools.chain.from_iterable(t.scores for t in forest.traces))
    others = equal.total() - 1
    if others < 1:
        return {t.trace_id: 0.5 for t in forest.traces}
    rewards: dict[float | None, float] = {None: (equal[None] - 1) / 2 / others}
    left = others + 1
    for score in sorted(score for score in equal if score is not None):  # the best first
        left -= equal[score]
        rewards[score] = (left + (equal[score] - 1) / 2) / others  # the node itself is among the equal ones
    return {
        t.trace_id: math.fsum(map(rewards.__getitem__, t.scores)) / len(t.scores) if t.scores else 0.5
        for t in forest.traces
    }
