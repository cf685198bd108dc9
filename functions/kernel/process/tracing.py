"""Spans: a trace goes on through every request and call, and is exported where an operator asks for it.

Without an exporter a `traceparent` passes through unchanged, as the standard asks where nothing is recorded.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Self

from state import traceparent

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as Recorded
    from opentelemetry.trace import Tracer

log = logging.getLogger(__name__)

PACKAGES = "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
EXPORT_S = 3.0
"""Timeout of an export in seconds, also when the process ends."""


class Span:
    """One piece of work. Everything that it causes has `traceparent` as its parent."""

    def __init__(self, traceparent: str, recorded: Recorded | None = None) -> None:
        self.traceparent = traceparent
        self._recorded = recorded

    def __enter__(self) -> Self:
        self._before = traceparent.current.set(self.traceparent)
        return self

    def __exit__(self, *_: object) -> None:
        traceparent.current.reset(self._before)

    def rename(self, name: str) -> None:
        if self._recorded is not None:
            self._recorded.update_name(name)

    def note(self, **facts: str | int | None) -> None:
        """Attributes of the span; None is left out."""
        if self._recorded is not None:
            self._recorded.set_attributes(
                {f"nightjar.{name}": value for name, value in facts.items() if value is not None}
            )


class Tracing:
    """Begins spans; they are exported only with a `provider`."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("nightjar") if provider is not None else None

    def span(self, name: str, parent: str | None) -> AbstractContextManager[Span]:
        """Work of this name under `parent`; without one it begins a trace."""
        return (
            Span(parent or traceparent.begun())
            if self._tracer is None
            else self._recorded(self._tracer, name, parent)
        )

    @contextmanager
    def _recorded(self, tracer: Tracer, name: str, parent: str | None) -> Iterator[Span]:
        from opentelemetry.context import Context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {"traceparent": parent} if parent else {}
        context = TraceContextTextMapPropagator().extract(carrier, Context())
        # Exceptions are not recorded: their text may quote what a caller sent.
        with tracer.start_as_current_span(
            name, context, record_exception=False, set_status_on_exception=False
        ) as recorded:
            own = recorded.get_span_context()
            began = f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"
            with Span(began, recorded) as span:
                yield span

    def close(self) -> None:
        """Hand over what is left; waits for the collector."""
        if self._provider is not None:
            self._provider.shutdown()


def exporting(process: str) -> Tracing:
    """Tracing that exports by OTLP over HTTP, if a variable names a collector and the packages are there."""
    collector = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if not collector:
        return Tracing()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # pyright: ignore[reportMissingImports]
            OTLPSpanExporter,  # of the extra: not there in development
        )
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("no traces are exported to %s: pip install %s", collector, PACKAGES)
        return Tracing()
    provider = TracerProvider(
        resource=Resource.create({"service.name": "nightjar", "service.instance.id": process})
    )
    exporter = OTLPSpanExporter(f"{collector.rstrip('/')}/v1/traces", timeout=EXPORT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider)
