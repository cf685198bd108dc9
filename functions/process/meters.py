"""What a process counts: calls of functions and HTTP requests, in its own registry.

Labels are names out of this code (functions, routes, kinds, outcomes), never ids or anything that a caller sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.process_collector import ProcessCollector

from state.tallies import Tallies

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0, 3600.0)
"""Seconds: requests take milliseconds, waits up to 50 s, trainings minutes to hours."""
HTTP_BUCKETS = BUCKETS[:-2]


class Meters:
    """The counters of one process."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.registry = CollectorRegistry()
        self._shared = CollectorRegistry()
        """What other kinds than web hand over to the lab; gauges of a process mean nothing in a sum."""
        self._calls = Counter(
            "nightjar_function_calls",
            "Calls of functions, by what fired them and how they ended.",
            ("process", "function", "trigger", "outcome"),
            registry=self._shared,
        )
        self._seconds = Histogram(
            "nightjar_function_duration_seconds",
            "How long calls of functions took.",
            ("process", "function", "trigger"),
            registry=self._shared,
            buckets=BUCKETS,
        )
        self._running = Gauge(
            "nightjar_functions_in_flight",
            "Calls of functions that this web process is answering.",
            registry=self.registry,
        )
        self._requests = Counter(
            "nightjar_http_requests",
            "HTTP requests, by route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._request_seconds = Histogram(
            "nightjar_http_request_duration_seconds",
            "How long HTTP requests took to their last byte.",
            ("method", "route"),
            registry=self.registry,
            buckets=HTTP_BUCKETS,
        )
        self._open = Gauge(
            "nightjar_http_requests_in_flight",
            "HTTP requests that are being answered.",
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)
        self._handed_over: dict[str, float] = {}

    @contextmanager
    def calling(self) -> Iterator[None]:
        """A call of a function is in flight."""
        with self._running.track_inprogress():
            yield

    def called(self, function: str, trigger: str, outcome: str, seconds: float) -> None:
        """A call of a function ended."""
        self._calls.labels(self.kind, function, trigger, outcome).inc()
        self._seconds.labels(self.kind, function, trigger).observe(seconds)

    @contextmanager
    def requesting(self) -> Iterator[None]:
        """An HTTP request is in flight."""
        with self._open.track_inprogress():
            yield

    def requested(self, method: str, route: str, status: int, seconds: float) -> None:
        """An HTTP request ended."""
        self._requests.labels(method, route, str(status)).inc()
        self._request_seconds.labels(method, route).observe(seconds)

    def families(self) -> list[Metric]:
        """Everything that this process counted."""
        return [*self._shared.collect(), *self.registry.collect()]

    async def hand_over(self, tallies: Tallies) -> None:
        """Add what was counted since the last time to the lab's tallies.

        Raises:
            Unavailable: Redis does not answer; it is added the next time (twice, if only the answer was lost).
        """
        counted = {
            json.dumps([s.name, s.labels]): s.value
            for family in self._shared.collect()
            for s in family.samples
            if not s.name.endswith("_created")
        }
        fresh = {
            name: value - self._handed_over.get(name, 0.0)
            for name, value in counted.items()
            if value != self._handed_over.get(name)
        }
        if fresh:
            await tallies.add(fresh)
        self._handed_over = counted
