"""What is decided about an experiment, with the versions that it was decided on: a script commits it, or refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from state.records import Best, Experiment, Gpu, Status, Trace


@dataclass(frozen=True)
class Breaker:
    """When a GPU is taken out of the pool for its crashes, and for how long."""

    crash_limit: int
    cooldown_s: float
    """Doubled with each time that it opens again, up to `longest_s`."""
    longest_s: float = 3600.0


@dataclass(frozen=True)
class Repeat:
    """What a run's value adds to the noise of its tag and GPU class; see `state.noise`."""

    key: str
    code: str
    before: str
    """What was kept of the code's runs when this was decided; empty: nothing."""
    after: str
    squares: float | None
    """Squared deviations that it adds; None where it tells nothing of the noise: it is its code's first, or broke."""


@dataclass(frozen=True)
class Growth:
    """What a node changes of its trace, with the versions it was decided on."""

    trace: Trace
    """As it was read."""
    epoch: int
    fields: Mapping[str, Any]
    """Fields of the trace after."""
    status: Literal["", "live", "dead"] = ""
    """What the trace becomes by it; empty: it stays what it is."""
    why: str = ""
    """It ends."""
    ends: Sequence[Trace] = ()
    """Traces that a kept merge ends, as they were read."""


@dataclass(frozen=True)
class Finish:
    """A decision about an experiment, with the versions it was made on."""

    experiment: Experiment
    status: Status
    fields: Mapping[str, Any]
    """Fields of the experiment that the decision sets."""
    answer: Mapping[str, Any] | None = None
    """What a retry of the same operation is answered: {op, digest, answer}."""
    other_key: str | None = None
    """Comparability key, where it is not the tag's main one."""
    best_version: int | None = None
    """Version of the best that was compared with; None where none was."""
    new_best: Best | None = None
    """The best with what the decision changes of it; it may still be the same experiment."""
    near_miss_score: float | None = None
    """The value with lower = better, for a discard under the main key."""
    crashes_before: int | None = None
    """Crashes in a row that the answer was computed from; None where it does not depend on them."""
    crash_count: Literal["count", "worker", "reset", "keep"] = "keep"
    """`worker`: a fault of the infrastructure counts against its GPU, never against the tag."""
    breaker: Breaker | None = None
    """Of the GPU it ran on, where a crash counts."""
    key_version: int | None = None
    tag_fields: Mapping[str, Any] | None = None
    """Fields of the tag that the first judged run fixes."""
    training_seconds: float | None = None
    reason: str | None = None
    repeat: Repeat | None = None
    growth: Growth | None = None
    """Where it is a node of a trace."""


@dataclass(frozen=True)
class Settled:
    """A decision about an experiment from its retests, with the version of the best that it was made on."""

    experiment: Experiment
    status: Status
    fields: Mapping[str, Any]
    """Fields of the experiment that the decision sets."""
    best: Best
    """As it was read."""
    after: Best
    near_miss_score: float | None
    """The value with lower = better, of a discard under the main key."""
    verdict: Literal["confirmed", "demoted", "promoted", "unconfirmed"] | None
    """What the event is called; None: there is nothing to tell."""
    facts: Mapping[str, Any]
    """What the event says, beside who it is about."""
    growths: Sequence[Growth] = ()
    """Of its trace, and of those that stand on it."""


Gone = Literal["silent", "expired", "dead", "unproven"]
"""Why a lease ends without its holder: the sweep judges the first two by Redis' clock, the GPU's keeper reports the
others (`dead`: nothing of the run is left on the GPU; `unproven`: something may be)."""


@dataclass(frozen=True)
class Requeued:
    """The experiment waits for another attempt."""


@dataclass(frozen=True)
class SameAttempt:
    """The experiment waits again with the attempt that it had."""


@dataclass(frozen=True)
class Ended:
    """The experiment has its final status."""

    status: Literal["stopped", "lost"]


Outcome = Requeued | SameAttempt | Ended


@dataclass(frozen=True)
class BrokenLease:
    """The decision to end a lease whose holder is gone.

    `gpu` and `experiment` are as they were read. Guards: the GPU's holder and fence; for `silent` and `expired` also
    its heartbeat and the lease's end; with an outcome also the experiment's status, attempt, fence and stop order.
    """

    gpu: Gpu
    experiment: Experiment
    why: Gone
    reason: str
    then: Outcome | None
    """None: no attempt of the experiment runs under the lease."""
    flags: Mapping[str, Any]
    """Flags of the GPU to set."""
    cleared: Sequence[str] = ()
    """Flags of the GPU to clear."""
