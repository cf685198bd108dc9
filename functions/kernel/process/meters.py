"""Metrics of one process: calls, HTTP requests, texts of language models, and what blocks its event loop."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from state.presence import Tallies

if TYPE_CHECKING:
    from prometheus_client import Metric

log = logging.getLogger(__name__)

# -- Metrics of one process: calls of functions, HTTP requests, and texts of language models.
#
# Labels are names out of this code (functions, routes, kinds, outcomes), never ids or anything that a caller sent.

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0)
"""Seconds: requests take milliseconds, waits up to 50 s, trainings minutes to hours."""
HTTP_BUCKETS = BUCKETS[:-2]
HELD_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

LAST_CALL = "nightjar_function_last_call"
"""When a process handed over its newest call of a function: beside the counts, but no metric."""

AT_ONCE = 500
"""Most counts that are handed over in one change."""

Sample = tuple[str, Mapping[str, str], float]
"""Name, labels and value, as Prometheus has them."""


@dataclass(frozen=True)
class CounterMetric:
    name: str
    help: str
    labels: tuple[str, ...]
    counts: defaultdict[tuple[str, ...], float] = field(default_factory=lambda: defaultdict(float))
    kind = "counter"

    @property
    def samples_named(self) -> tuple[str, ...]:
        """Names of its samples."""
        return (f"{self.name}_total",)

    def add(self, *labels: str, amount: float = 1) -> None:
        self.counts[labels] += amount

    def samples(self) -> Iterator[Sample]:
        for labels, count in self.counts.items():
            yield f"{self.name}_total", dict(zip(self.labels, labels, strict=True)), float(count)


@dataclass(frozen=True)
class Durations:
    """A histogram of seconds by labels."""

    name: str
    help: str
    labels: tuple[str, ...]
    buckets: Sequence[float]
    """Upper bounds in seconds."""
    seen: dict[tuple[str, ...], list[float]] = field(default_factory=dict)
    """Number in each bucket, number above the last one, sum of all seconds."""
    kind = "histogram"

    @property
    def samples_named(self) -> tuple[str, ...]:
        """Names of its samples."""
        return tuple(f"{self.name}_{part}" for part in ("bucket", "count", "sum"))

    def add(self, seconds: float, *labels: str) -> None:
        seen = self.seen.setdefault(labels, [0.0] * (len(self.buckets) + 2))
        seen[bisect_left(self.buckets, seconds)] += 1
        seen[-1] += seconds

    def samples(self) -> Iterator[Sample]:
        bounds = [*map(repr, self.buckets), "+Inf"]
        for values, (*counts, total) in self.seen.items():
            labels = dict(zip(self.labels, values, strict=True))
            up_to = 0.0
            for bound, count in zip(bounds, counts, strict=True):
                up_to += count
                yield f"{self.name}_bucket", {**labels, "le": bound}, up_to
            yield f"{self.name}_count", labels, up_to
            yield f"{self.name}_sum", labels, total


def _order(sample: Sample) -> tuple[list[tuple[str, str]], str, float]:
    name, labels, _ = sample
    whose = sorted((key, value) for key, value in labels.items() if key != "le")
    return whose, name, float(labels.get("le", "0"))


@dataclass
class CallCount:
    calls: int = 0
    errors: int = 0
    """Calls that were refused or failed."""
    last_at: float | None = None
    """When the last one ended, in seconds since 1970; where another process ran it, when that handed it over."""


class Meters:
    """The counters of one process. They are plain numbers until a scrape: prometheus_client takes 0.1 s to import."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._calls = CounterMetric(
            "nightjar_function_calls",
            "Calls of functions, by what fired them and how they ended.",
            ("process", "function", "trigger", "outcome"),
        )
        self._seconds = Durations(
            "nightjar_function_duration_seconds",
            "How long calls of functions took.",
            ("process", "function", "trigger"),
            BUCKETS,
        )
        self._requests = CounterMetric(
            "nightjar_http_requests", "HTTP requests, by route and status.", ("method", "route", "status")
        )
        self._request_seconds = Durations(
            "nightjar_http_request_duration_seconds",
            "How long HTTP requests took to their last byte.",
            ("method", "route"),
            HTTP_BUCKETS,
        )
        self._held = Durations(
            "nightjar_event_loop_held_seconds",
            "CPU time for which the event loop's thread let nothing else run, where it was 0.1 s or more.",
            ("process",),
            HELD_BUCKETS,
        )
        self._written = CounterMetric(
            "nightjar_author_calls",
            "Texts that a language model was asked for, by the form and how it ended.",
            ("provider", "kind", "outcome"),
        )
        self._tokens = CounterMetric(
            "nightjar_author_tokens", "Tokens that it has read and written.", ("provider", "direction")
        )
        self._usd = CounterMetric("nightjar_author_usd", "What it has cost, in US dollars.", ("provider",))
        self._calling: Counter[str] = Counter()
        self._last_at: dict[str, float] = {}
        self._called_lately: set[str] = set()
        self.requests_in_flight = 0
        """HTTP requests that are being answered."""
        self._handed_over: dict[str, float] = {}
        self._tallies = Counter[str]()
        """The lab's sums when they were last read, with what this process has handed over since."""

    def begun(self, function: str) -> None:
        """A call of a function began; `called` ends it."""
        self._calling[function] += 1
        self._called_lately.add(function)

    def called_lately(self) -> Sequence[str]:
        """The functions that ran at some time since this was asked before."""
        lately = sorted(self._called_lately)
        self._called_lately = {name for name, count in self._calling.items() if count}
        return lately

    def held(self, seconds: float) -> None:
        """The event loop was held for so much CPU time."""
        self._held.add(seconds, self.kind)

    def called(self, function: str, trigger: str, outcome: str, seconds: float) -> None:
        """A call of a function ended."""
        self._calling[function] -= 1
        self._last_at[function] = time.time()
        self._calls.add(self.kind, function, trigger, outcome)
        self._seconds.add(seconds, self.kind, function, trigger)

    def requested(self, method: str, route: str, status: int, seconds: float) -> None:
        """An HTTP request ended."""
        self._requests.add(method, route, str(status))
        self._request_seconds.add(seconds, method, route)

    def of_functions(self, tallies: Mapping[str, float]) -> dict[str, CallCount]:
        """Calls by function: what is in these tallies, and what this process has not handed over yet."""
        found = defaultdict[str, CallCount](CallCount)
        for key, count in (*self._fresh(self._counted()).items(), *tallies.items()):
            name, labels = json.loads(key)
            if name == f"{self._calls.name}_total":
                of_function = found[labels["function"]]
                of_function.calls += int(count)
                of_function.errors += 0 if labels["outcome"] in ("ok", "cancelled") else int(count)
            elif name == LAST_CALL:
                found[labels["function"]].last_at = count
        for function, at in self._last_at.items():
            found[function].last_at = max(at, found[function].last_at or at)
        return found

    def author_called(self, provider: str, kind: str, outcome: str) -> None:
        """A request for a text of a language model ended."""
        self._written.add(provider, kind, outcome)

    def author_spent(self, provider: str, read: int, written: int, usd: float) -> None:
        """A request to it has ended: so many tokens, so many US dollars."""
        self._tokens.add(provider, "in", amount=read)
        self._tokens.add(provider, "out", amount=written)
        self._usd.add(provider, amount=usd)

    @property
    def _of_all_processes(self) -> list[CounterMetric | Durations]:
        """Metrics that may be added up over processes."""
        return [
            *(self._calls, self._seconds, self._written, self._tokens, self._usd),
            *(self._requests, self._request_seconds, self._held),
        ]

    def _counted(self) -> dict[str, float]:
        """All counts of this process, by name and labels."""
        return {
            json.dumps([name, labels]): value
            for those in self._of_all_processes
            for name, labels, value in those.samples()
        }

    def _fresh(self, counted: Mapping[str, float]) -> dict[str, float]:
        """Those of these counts, or parts of them, that were not handed over yet."""
        before = self._handed_over
        return {key: n - before.get(key, 0.0) for key, n in counted.items() if n != before.get(key)}

    def families(self, tallies: Mapping[str, float] | None) -> list[Metric]:
        """Gauges of this process, and what all processes of the lab have counted.

        Without `tallies` the last ones count: a counter that falls means to a scraper that it began anew.
        """
        from prometheus_client import Metric
        from prometheus_client.core import GaugeMetricFamily
        from prometheus_client.process_collector import ProcessCollector

        found = [
            GaugeMetricFamily(
                "nightjar_functions_in_flight",
                "Calls of functions that this web process is answering.",
                self._calling.total(),
            ),
            GaugeMetricFamily(
                "nightjar_http_requests_in_flight",
                "HTTP requests that are being answered.",
                self.requests_in_flight,
            ),
            *ProcessCollector(registry=None).collect(),
        ]
        # the greater of each: something may have been handed over since they were read
        self._tallies |= Counter(tallies or {})
        sums = self._tallies.copy()
        sums.update(self._fresh(self._counted()))
        # a histogram's buckets have to stand together and in order
        samples = sorted(((*json.loads(key), value) for key, value in sums.items()), key=_order)
        for counted in self._of_all_processes:
            family = Metric(counted.name, counted.help, counted.kind)
            for name, labels, value in samples:
                if name in counted.samples_named:
                    family.add_sample(name, labels, value)
            found.append(family)
        return found

    async def hand_over(self, tallies: Tallies) -> None:
        """Add what was counted since the last time to the lab's tallies. (Gauges of a process mean nothing in a sum.)

        Raises:
            Unavailable: Redis does not answer; it is added the next time (twice, if only the answer was lost).
        """
        counted = self._counted()
        fresh = [*self._fresh(counted).items()]
        for first in range(0, len(fresh), AT_ONCE):
            some = dict(fresh[first : first + AT_ONCE])
            called = {
                json.dumps([LAST_CALL, {"function": labels["function"]}])
                for name, labels in map(json.loads, some)
                if name == f"{self._calls.name}_total"
            }
            await tallies.add(some, called)
            self._tallies.update(some)
            self._handed_over |= {name: counted[name] for name in some}


# -- Watches for code that blocks the event loop.

LOOK_S = 0.05
"""Seconds between two looks, and the error of a measured block."""
NOTED_S = 0.1
HELD_MOST_S = 0.25
"""CPU seconds without a pause that no function may take of the event loop's thread."""


LATE = ("apscheduler.triggers.cron", "httpx", "prometheus_client.process_collector", "scipy.special")
"""Modules that functions import late, because each takes 0.1 to 1 s."""


async def import_late() -> None:
    """Import them before anybody waits for them, beside the event loop."""
    for name in LATE:
        await asyncio.to_thread(importlib.import_module, name)


async def watch(meters: Meters) -> None:
    """Count how long the event loop is blocked, until cancelled; log long blocks.

    It counts CPU time of the loop's thread. On a busy machine, waiting for a core does not count.
    """
    while True:
        before = time.thread_time()
        await asyncio.sleep(LOOK_S)
        held = time.thread_time() - before
        lately = meters.called_lately()
        if held >= NOTED_S:
            meters.held(held)
        if held > HELD_MOST_S:
            log.warning(
                "the event loop was held for %.2f s of CPU time; functions that ran meanwhile: %s",
                held,
                ", ".join(lately) or "none",
            )
