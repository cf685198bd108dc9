"""Trace schedulers: which of a tag's traces grows next; they rank all, and whoever asks takes the first free one."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, pstdev
from typing import ClassVar, Protocol

from state.errors import Conflict, Invalid

LEAST_WEIGHT = 0.05
"""Of a trace that did badly or only crashed: it is selected now and then, so that it gets better or dies."""


@dataclass(frozen=True)
class TraceView:
    """What a scheduler knows of one trace."""

    trace_id: str
    number: int
    """In the order of creation in the tag."""
    virtual_time: int = 0
    """When it is its turn, in selections of a trace; see `turn_taken`."""
    last_selected: int = 0
    """The `select_seq` of its newest selection; 0: none."""
    length: int = 0
    """Committed nodes, crashes too."""
    kept: int = 0
    children: int = 0
    """Its selections that were committed."""
    in_flight: int = 0
    """Its selections that are open."""
    scores: Sequence[float | None] = ()
    """Of its newest committed nodes, newest last: lower is better (see `verdict.score`), None is a crash."""
    best_score: float | None = None
    """Of all its nodes."""
    priority: float = 0.0


@dataclass(frozen=True)
class ForestView:
    """A tag's traces that may be selected, at one moment."""

    tag: str
    select_seq: int
    """Number of the selection to be made."""
    traces: Sequence[TraceView]
    virtual_time: int = 0
    """That of the newest selection."""
    params: Mapping[str, float] = field(default_factory=dict)
    """As `checked_params` answers them."""


@dataclass(frozen=True)
class Ranked:
    """One trace in a scheduler's order."""

    trace_id: str
    score: float | None
    """What it goes by, larger is better: a weight or a probability; None: by its turn alone."""


@dataclass(frozen=True)
class Parameter:
    """A value of `scheduler_params`, with its range (both ends included)."""

    default: float
    least: float
    most: float


class TraceScheduler(ABC):
    """Orders traces. The answer depends on the forest alone, so that the same log replays the same selections."""

    parameters: ClassVar[Mapping[str, Parameter]] = {}

    @abstractmethod
    def rank(self, forest: ForestView) -> list[Ranked]:
        """Every trace once, that to be selected first; chance comes from `drawn`."""


class RoundRobin(TraceScheduler):
    """The trace whose turn it is: each gets as many selections as the others."""

    def rank(self, forest: ForestView) -> list[Ranked]:
        return [Ranked(t.trace_id, None) for t in sorted(forest.traces, key=lambda t: turn(t, forest))]


class Priority(TraceScheduler):
    """The trace of the highest priority, equal ones by turns."""

    def rank(self, forest: ForestView) -> list[Ranked]:
        return _by_score(forest, {t.trace_id: t.priority for t in forest.traces})


class Weighted(TraceScheduler):
    """The trace with the largest sigmoid((score - median) / MAD) / (1 + children + in flight).

    The weights are those by which ShinkaEvolve samples parents (Lange, Imajuku and Cetin 2025, arXiv:2509.19349). To
    take the largest quotient each time is d'Hondt's method: without chance, selections come in proportion to the
    numerators. A score is that of the trace's best node, better is larger; MAD is the median absolute deviation. A
    trace without any node counts as the median one.
    """

    def rank(self, forest: ForestView) -> list[Ranked]:
        best = {t.trace_id: -t.best_score for t in forest.traces if t.best_score is not None}
        promise = {name: max(LEAST_WEIGHT, _sigmoid(z)) for name, z in _deviations(best).items()}
        for trace in forest.traces:
            promise.setdefault(trace.trace_id, LEAST_WEIGHT if trace.scores else 0.5)
        return _by_score(
            forest,
            {t.trace_id: promise[t.trace_id] / (1 + t.children + t.in_flight) for t in forest.traces},
        )


class Softmax(TraceScheduler):
    """A draw by softmax over standardised potentials, of which nobody gets less than `eps` / traces.

    A trace's potential is the sum of its length, its keeps and a random number, each standardised over the traces
    and times its parameter. A negative `length` prefers short traces; `kept` cannot be negative, because then a crash
    would be worth more than a keep. The order is drawn without replacement (Efraimidis and Spirakis, Information
    Processing Letters 97, 2006, algorithm A), so that the chances are as the shares among the free traces, too.
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
        # An exponential race: who has the share p arrives after a time of the mean 1 / p.
        arrival = {name: -math.log(drawn(forest, name, "order")) / p for name, p in shares.items()}
        order = sorted(forest.traces, key=lambda t: (arrival[t.trace_id], *turn(t, forest)))
        return [Ranked(t.trace_id, shares[t.trace_id]) for t in order]

    def shares(self, forest: ForestView) -> dict[str, float]:
        """The probability of each trace to be the first; they add up to 1."""
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

    n are the trace's committed selections, o its open ones, N and O their sums. An open selection makes its trace
    less uncertain before anything is known of it, so selections made together spread. Q is the mean reward of the
    trace's committed nodes, 0.5 without any: a node's reward is the share of the forest's other nodes that it beats,
    equal ones count half. So every success is worth more than every crash, and the metric's scale, direction and
    outliers do not matter.
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


def scheduler_named(
    name: str, plugins: Mapping[str, TraceScheduler], allowed: Iterable[str] = ()
) -> TraceScheduler:
    """One of ours, or one of `plugins`; `allowed` are those that might be loaded.

    Raises:
        Invalid: there is none of this name.
    """
    found = SCHEDULERS.get(name) or plugins.get(name)
    if found is None:
        raise Invalid(
            f"there is no scheduler {name!r}",
            hint=f"name one of {', '.join([*SCHEDULERS, *allowed])}; a plug-in, package.module:Class, has to stand in"
            " NIGHTJAR_PLUGINS",
        )
    return found


def checked_params(name: str, scheduler: TraceScheduler, params: Mapping[str, float]) -> dict[str, float]:
    """All parameters of a scheduler, those not given at their defaults.

    Raises:
        Invalid: it has no parameter of that name, or not this value.
    """
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
    """A scheduler's order, of which nobody has to believe a plug-in that it is one.

    Raises:
        Conflict: a plug-in fails, does not name every trace once, or goes by what is no number.
    """
    if name in SCHEDULERS:
        return scheduler.rank(forest)
    try:
        ranked = list(scheduler.rank(forest))
        named = [r.trace_id for r in ranked]
        counts = all(r.score is None or math.isfinite(r.score) for r in ranked)
    except Exception as problem:  # whatever somebody else's class does
        raise _unusable(name, f"failed with {type(problem).__name__}: {problem}") from problem
    if sorted(named, key=str) != sorted(t.trace_id for t in forest.traces):
        raise _unusable(name, f"ranked {named!r}, which are not the traces, each once")
    if not counts:
        raise _unusable(name, "gave a trace a score that is no finite number")
    return ranked


def _unusable(name: str, problem: str) -> Conflict:
    return Conflict(
        f"the scheduler {name!r} {problem}",
        hint="mend the plug-in, or name another scheduler with POST /api/trace/configure",
        fields={"code": "broken_scheduler"},
    )


class HasTurn(Protocol):
    """A trace or a forest, as a scheduler sees it or as it is kept."""

    @property
    def virtual_time(self) -> int: ...


def turn_taken(trace: HasTurn, forest: HasTurn) -> tuple[int, int]:
    """Virtual times of a trace and of its forest when the trace is selected.

    Stride scheduling with equal strides (Waldspurger and Weihl, MIT/LCS/TM-528, 1995), with the virtual time of
    start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996): a trace that was busy, closed or is new stands
    where the forest is now, and neither makes up for the turns that it was away nor waits for those that it had.
    """
    start = max(trace.virtual_time, forest.virtual_time)
    return start + 1, start


def turn(trace: TraceView, forest: ForestView) -> tuple[int, int, int]:
    """Orders traces by their turns, no two alike; a plug-in may break its ties by it.

    Of those whose turn it is together the one not selected for longest comes first: so no other trace passes a free
    one over twice.
    """
    return max(trace.virtual_time, forest.virtual_time), trace.last_selected, trace.number


def drawn(forest: ForestView, *what: str) -> float:
    """A number between 0 and 1, both excluded: the same for the same selection and text, in any process."""
    text = "\n".join((forest.tag, str(forest.select_seq), *what))
    bits = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 12
    return (bits + 0.5) / 2.0**52


def _by_score(forest: ForestView, scores: Mapping[str, float]) -> list[Ranked]:
    """The largest score first, equal ones by their turns."""
    order = sorted(forest.traces, key=lambda t: (-scores[t.trace_id], *turn(t, forest)))
    return [Ranked(t.trace_id, scores[t.trace_id]) for t in order]


def _deviations(values: Mapping[str, float]) -> dict[str, float]:
    """By how many median absolute deviations each lies above the median."""
    if not values:
        return {}
    middle = median(values.values())
    apart = [abs(value - middle) for value in values.values()]
    # More than half may be equal: then the mean deviation says what is far.
    scale = median(apart) or fmean(apart)
    return {name: (value - middle) / scale if scale else 0.0 for name, value in values.items()}


def _standardised(values: Sequence[float]) -> list[float]:
    spread = pstdev(values) if values else 0.0
    return [(value - fmean(values)) / spread if spread else 0.0 for value in values]


def _sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))


def _qualities(forest: ForestView) -> dict[str, float]:
    """The mean reward of every trace's nodes; a crash is beaten by all successes."""
    nodes = sorted(_worth(s) for t in forest.traces for s in t.scores)

    def reward(worth: float) -> float:
        beaten, upto = bisect_left(nodes, worth), bisect_right(nodes, worth)
        return (beaten + upto - 1) / 2 / (len(nodes) - 1)  # the node itself is among the equal ones

    return {
        t.trace_id: fmean(reward(_worth(s)) for s in t.scores) if t.scores and len(nodes) > 1 else 0.5
        for t in forest.traces
    }


def _worth(score: float | None) -> float:
    return -math.inf if score is None else -score
